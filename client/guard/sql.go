package guard

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"regexp"
	"slices"
)

// Dialect is the SQL of a database.
type Dialect int

// The dialects.
const (
	PostgreSQL Dialect = iota + 1 // 9.5 or later
	MySQL                         // and MariaDB, with InnoDB
	SQLite                        // 3.35 or later
)

// DefaultTable is the table of SQLOptions that name none.
const DefaultTable = "leased_fence"

// SQLOptions configure a SQL fence.
type SQLOptions struct {
	Dialect Dialect
	// Table is the table of the register, with a schema in front or without;
	// empty is DefaultTable. It must be in the database of the writes.
	Table string
	// Stale counts rejections; it may be nil.
	Stale Counter
}

// SQL is a fence in a database: a table with the highest token seen for each key.
// It may be used concurrently.
type SQL struct {
	stale  Counter
	text   statements
	schema string
	create string
}

// statements are the SQL of one dialect.
type statements struct {
	// accept takes key and token, so often as args says. It raises the key's token
	// unless it is higher already, and locks the row until the transaction ends.
	accept string
	args   int // of accept: the key and then the token, args − 1 times
	// read returns the key's token after accept where that returns none.
	read string
}

// NewSQL returns a fence. It does not use the database.
func NewSQL(o SQLOptions) (*SQL, error) {
	table := cmp.Or(o.Table, DefaultTable)
	if !regexp.MustCompile(`^([A-Za-z_][A-Za-z0-9_]{0,62}\.)?[A-Za-z_][A-Za-z0-9_]{0,62}$`).MatchString(table) {
		return nil, fmt.Errorf("guard: table %q: want a name of letters, digits and _, with a schema in front or without", table)
	}
	s := &SQL{stale: o.Stale}
	switch o.Dialect {
	case PostgreSQL:
		// The order of "C" never changes. An index in a language's order is damaged
		// by an upgrade of the C library, and then there are two rows of a key.
		s.schema = `CREATE TABLE IF NOT EXISTS ` + table + ` (fence_key text COLLATE "C" NOT NULL PRIMARY KEY, token bigint NOT NULL)`
		// Of two sessions that create a table at once, IF NOT EXISTS or not, one fails.
		s.create = `DO $$ BEGIN PERFORM pg_advisory_xact_lock(hashtext('` + table + `')); ` + s.schema + `; END $$`
		s.text = statements{args: 2, accept: `INSERT INTO ` + table + ` AS f (fence_key, token) VALUES ($1, $2)
			ON CONFLICT (fence_key) DO UPDATE SET token = GREATEST(f.token, EXCLUDED.token) RETURNING token`}
	case MySQL:
		// As bytes: the usual collations take "a" and "A" for the same key. And
		// InnoDB, for a table that rolls nothing back would keep what it had to.
		s.schema = `CREATE TABLE IF NOT EXISTS ` + table + ` (fence_key VARBINARY(255) NOT NULL PRIMARY KEY, token BIGINT NOT NULL) ENGINE=InnoDB`
		s.text = statements{args: 3, accept: `INSERT INTO ` + table + ` (fence_key, token) VALUES (?, ?)
			ON DUPLICATE KEY UPDATE token = GREATEST(token, ?)`,
			// Without FOR UPDATE it would read what was there when the transaction began.
			read: `SELECT token FROM ` + table + ` WHERE fence_key = ? FOR UPDATE`}
	case SQLite:
		s.schema = `CREATE TABLE IF NOT EXISTS ` + table + ` (fence_key TEXT NOT NULL PRIMARY KEY, token INTEGER NOT NULL) WITHOUT ROWID`
		s.text = statements{args: 2, accept: `INSERT INTO ` + table + ` (fence_key, token) VALUES (?, ?)
			ON CONFLICT (fence_key) DO UPDATE SET token = max(token, excluded.token) RETURNING token`}
	default:
		return nil, fmt.Errorf("guard: there is no dialect %d", o.Dialect)
	}
	s.create = cmp.Or(s.create, s.schema)
	return s, nil
}

// Schema returns the statement that creates the table unless it exists, for
// programs that keep their migrations elsewhere.
func (s *SQL) Schema() string { return s.schema }

// Execer is a *sql.DB, *sql.Conn or *sql.Tx.
type Execer interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// CreateTable creates the table unless it exists. Several processes may do so at
// the same time.
func (s *SQL) CreateTable(ctx context.Context, db Execer) error {
	if _, err := db.ExecContext(ctx, s.create); err != nil {
		return fmt.Errorf("create the table of the fence: %w", err)
	}
	return nil
}

// Accept lets the transaction go on if no higher token was seen for the key of
// each fence, and remembers these. It returns a *StaleError otherwise, ErrInvalid
// for a fence that no lease has, and else the database's error. After any error
// the transaction has to be rolled back; then the register is as it was before.
//
// Call it first in the transaction. It locks the key until the transaction ends,
// so that holders come one after the other, and what is read after it is what the
// holder before has left. What was read before it may be older than that.
//
// A transaction that fences several keys names them in one call, which takes them
// in the same order everywhere, so that no two wait for each other. The database
// may refuse a transaction that it could not put in order with another one
// (SQLSTATE 40001 and 40P01, MySQL's errors 1020 and 1213, SQLITE_BUSY): nothing
// of it was written, and it may be tried again as a whole.
//
// The lock ends early when the transaction is rolled back to a savepoint that was
// set before the call.
func (s *SQL) Accept(ctx context.Context, tx *sql.Tx, fences ...Fence) error {
	if len(fences) == 0 {
		return fmt.Errorf("%w: none is given", ErrInvalid)
	}
	for _, f := range fences {
		if err := f.check(); err != nil {
			return err
		}
	}
	// Of two tokens of one key the lower one is stale: the higher comes first.
	ordered := slices.SortedFunc(slices.Values(fences), func(a, b Fence) int {
		return cmp.Or(cmp.Compare(a.Key, b.Key), cmp.Compare(b.Token, a.Token))
	})
	for _, f := range ordered {
		highest, err := s.raise(ctx, tx, f)
		if err != nil {
			return fmt.Errorf("fence %s: %w", f.Key, err)
		}
		if highest > f.Token {
			return refuse(s.stale, f, highest)
		}
	}
	return nil
}

// raise returns the token of the key's row, which is the fence's or a higher one.
func (s *SQL) raise(ctx context.Context, tx *sql.Tx, f Fence) (highest uint64, err error) {
	args := []any{f.Key}
	for len(args) < s.text.args {
		args = append(args, int64(f.Token))
	}
	var row *sql.Row
	if s.text.read == "" {
		row = tx.QueryRowContext(ctx, s.text.accept, args...)
	} else {
		if _, err := tx.ExecContext(ctx, s.text.accept, args...); err != nil {
			return 0, err
		}
		row = tx.QueryRowContext(ctx, s.text.read, f.Key)
	}
	err = row.Scan(&highest)
	return highest, err
}
