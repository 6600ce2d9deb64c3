package guard_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgconn"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"
	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"leased/client/guard"
	"leased/test/proc"
)

// database is one kind of database, running.
type database struct {
	dialect guard.Dialect
	db      *sql.DB
	// impatient is the same database with calls that wait for a lock no longer than
	// the context or a moment.
	impatient *sql.DB
	// levels are the isolation levels beside the default.
	levels []sql.IsolationLevel
	// writes makes a table whose ids rise in the order of the inserts.
	writes string
	insert string
	// again tells that the transaction can be tried again.
	again func(error) bool
}

func open(t *testing.T, driver, source string) *sql.DB {
	t.Helper()
	db, err := sql.Open(driver, source)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	db.SetMaxOpenConns(20)
	proc.Succeeds(t, driver+" answers", proc.Patience, func() error { return db.PingContext(t.Context()) })
	return db
}

func TestSQL_postgres(t *testing.T) {
	t.Parallel()
	db := open(t, "pgx", "postgres://postgres@"+proc.StartPostgres(t)+"/postgres?sslmode=disable")
	testSQL(t, &database{
		dialect: guard.PostgreSQL, db: db, impatient: db,
		levels: []sql.IsolationLevel{sql.LevelRepeatableRead, sql.LevelSerializable},
		writes: "CREATE TABLE %s (id bigserial PRIMARY KEY, token bigint NOT NULL)", insert: "INSERT INTO %s (token) VALUES ($1)",
		again: func(err error) bool {
			e, ok := errors.AsType[*pgconn.PgError](err)
			return ok && (e.Code == "40001" || e.Code == "40P01")
		},
	})
}

func TestSQL_mariadb(t *testing.T) {
	t.Parallel()
	c := mysql.NewConfig()
	c.Net, c.Addr, c.User, c.DBName = "tcp", proc.StartMariaDB(t), "root", "test"
	db := open(t, "mysql", c.FormatDSN())
	testSQL(t, &database{
		dialect: guard.MySQL, db: db, impatient: db,
		levels: []sql.IsolationLevel{sql.LevelReadUncommitted, sql.LevelReadCommitted, sql.LevelSerializable},
		writes: "CREATE TABLE %s (id BIGINT AUTO_INCREMENT PRIMARY KEY, token BIGINT NOT NULL) ENGINE=InnoDB", insert: "INSERT INTO %s (token) VALUES (?)",
		again: func(err error) bool {
			e, ok := errors.AsType[*mysql.MySQLError](err)
			return ok && (e.Number == 1213 || e.Number == 1020)
		},
	})
}

func TestSQL_sqlite(t *testing.T) {
	t.Parallel()
	source := "file:" + filepath.Join(t.TempDir(), "data.db") + "?_pragma=journal_mode(WAL)&_pragma=synchronous(OFF)&_pragma=busy_timeout"
	testSQL(t, &database{
		dialect: guard.SQLite, db: open(t, "sqlite", source+"(60000)"), impatient: open(t, "sqlite", source+"(100)"),
		writes: "CREATE TABLE %s (id INTEGER PRIMARY KEY AUTOINCREMENT, token INTEGER NOT NULL)", insert: "INSERT INTO %s (token) VALUES (?)",
		again: func(err error) bool {
			e, ok := errors.AsType[*sqlite.Error](err)
			return ok && e.Code()&0xff == sqlite3.SQLITE_BUSY
		},
	})
}

// testSQL holds a database to what Accept promises. Each rule has a table of its
// own, so that all run at once.
func testSQL(t *testing.T, d *database) {
	t.Helper()
	if _, err := d.db.ExecContext(t.Context(), "CREATE TABLE untouched (n INTEGER)"); err != nil {
		t.Fatal(err)
	}
	for i, rule := range []struct {
		name string
		test func(*fenced)
	}{
		{"sequence", testSequence},
		{"rollback", testRollback},
		{"keys", testKeys},
		{"refusals", testRefusals},
		{"several", testSeveral},
		{"waits", testWaits},
		{"read_before", testReadBefore},
		{"order", testOrder},
		{"writers", testWriters},
		{"created_at_once", testCreatedAtOnce},
	} {
		t.Run(rule.name, func(t *testing.T) {
			t.Parallel()
			f := &fenced{database: d, t: t, table: fmt.Sprintf("fence_%d", i), other: "untouched", stale: new(counter)}
			var err error
			f.fence, err = guard.NewSQL(guard.SQLOptions{Dialect: d.dialect, Table: f.table, Stale: f.stale})
			if err != nil {
				t.Fatal(err)
			}
			if err := f.fence.CreateTable(t.Context(), d.db); err != nil {
				t.Fatal(err)
			}
			rule.test(f)
		})
	}
}

// counter is a guard.Counter.
type counter struct{ atomic.Int64 }

func (c *counter) Inc() { c.Add(1) }

// fenced is a database with a fence.
type fenced struct {
	*database
	t     *testing.T
	table string
	other string // a table that nothing is written to
	fence *guard.SQL
	stale *counter
}

func (f *fenced) begin() *sql.Tx {
	f.t.Helper()
	tx, err := f.db.BeginTx(f.t.Context(), nil)
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { _ = tx.Rollback() })
	return tx
}

// accept commits one transaction that does nothing else.
func (f *fenced) accept(fences ...guard.Fence) error {
	f.t.Helper()
	tx := f.begin()
	if err := f.fence.Accept(f.t.Context(), tx, fences...); err != nil {
		if err := tx.Rollback(); err != nil {
			f.t.Fatal(err)
		}
		return err
	}
	return tx.Commit()
}

// wantStale checks that the register has highest for the key: one less is stale.
func (f *fenced) wantHighest(key string, highest uint64) {
	f.t.Helper()
	if err := f.accept(guard.Fence{Key: key, Token: highest}); err != nil {
		f.t.Errorf("%s: the highest token, %d, is refused: %v", key, highest, err)
	}
	stale, ok := errors.AsType[*guard.StaleError](f.accept(guard.Fence{Key: key, Token: highest - 1}))
	if !ok || *stale != (guard.StaleError{Key: key, Token: highest - 1, Highest: highest}) {
		f.t.Errorf("%s: token %d: got %+v, want that it is stale after %d", key, highest-1, stale, highest)
	}
}

func testSequence(f *fenced) {
	t := f.t
	const most = 1<<53 - 1
	for _, step := range []struct {
		token   uint64
		highest uint64 // 0: accepted
	}{{9, 0}, {9, 0}, {10, 0}, {9, 10}, {10, 0}, {1, 10}, {100, 0}, {99, 100}, {most - 1, 0}, {most, 0}, {most - 1, most}, {most, 0}} {
		err := f.accept(guard.Fence{Key: "a", Token: step.token})
		stale, _ := errors.AsType[*guard.StaleError](err)
		switch {
		case step.highest == 0 && err != nil:
			t.Errorf("token %d: %v, want it accepted", step.token, err)
		case step.highest != 0 && (stale == nil || stale.Highest != step.highest || !errors.Is(err, guard.ErrStale)):
			t.Errorf("token %d: got %v, want it stale after %d", step.token, err, step.highest)
		}
	}
	if got := f.stale.Load(); got != 4 {
		t.Errorf("%d tokens were counted as stale, want 4", got)
	}
}

// testRollback: what was rolled back was not seen.
func testRollback(f *fenced) {
	t := f.t
	for _, before := range []uint64{0, 5} { // a new key, and one that has a row
		tx := f.begin()
		if err := f.fence.Accept(t.Context(), tx, guard.Fence{Key: "a", Token: 9}); err != nil {
			t.Fatal(err)
		}
		if err := tx.Rollback(); err != nil {
			t.Fatal(err)
		}
		f.wantHighest("a", before+5)
	}
	f.wantHighest("a", 10)
}

// testKeys: names that a database may take for the same are not.
func testKeys(f *fenced) {
	keys := []string{"a", "A", "a ", " a", "ä", "a\u0308", "%", "_", "'; DROP TABLE x; --", "ß", "ss", "default/AbC", "default/aBC"}
	for i, key := range keys {
		f.wantHighest(key, uint64(1000-10*i))
	}
	for i, key := range keys {
		f.wantHighest(key, uint64(1000-10*i))
	}
}

func testRefusals(f *fenced) {
	t := f.t
	tx := f.begin()
	for _, fence := range invalidFences() {
		if err := f.fence.Accept(t.Context(), tx, guard.Fence{Key: "ok", Token: 1}, fence); !errors.Is(err, guard.ErrInvalid) {
			t.Errorf("%.20q, %d: got %v, want ErrInvalid", fence.Key, fence.Token, err)
		}
	}
	if err := f.fence.Accept(t.Context(), tx); !errors.Is(err, guard.ErrInvalid) {
		t.Errorf("no fence at all: got %v, want ErrInvalid", err)
	}
	var rows int
	if err := tx.QueryRowContext(t.Context(), "SELECT count(*) FROM "+f.table).Scan(&rows); err != nil || rows != 0 {
		t.Errorf("%d rows, %v, want that nothing reached the register", rows, err)
	}
}

// testSeveral: all keys or none.
func testSeveral(f *fenced) {
	t := f.t
	a, b, c := guard.Fence{Key: "a", Token: 5}, guard.Fence{Key: "b", Token: 5}, guard.Fence{Key: "c", Token: 5}
	if err := f.accept(c, a, b); err != nil {
		t.Fatal(err)
	}
	a.Token, b.Token, c.Token = 7, 4, 7
	if err := f.accept(c, b, a); !errors.Is(err, guard.ErrStale) {
		t.Errorf("one of three is stale: got %v", err)
	}
	for _, key := range []string{"a", "b", "c"} {
		f.wantHighest(key, 5)
	}
	if err := f.accept(guard.Fence{Key: "d", Token: 1}, guard.Fence{Key: "d", Token: 2}); !errors.Is(err, guard.ErrStale) {
		t.Errorf("two tokens of one key: got %v, want that the lower one is stale", err)
	}
}

// testWaits: a lower token is not decided on while a transaction with a higher
// one goes on.
func testWaits(f *fenced) {
	t := f.t
	for _, before := range []uint64{0, 3} { // a new key, and one that has a row
		for _, commit := range []bool{false, true} {
			t.Run(fmt.Sprintf("row_%d_commit_%v", before, commit), func(t *testing.T) {
				key := t.Name()
				if before > 0 {
					f.wantHighest(key, before)
				}
				tx := f.begin()
				if err := f.fence.Accept(t.Context(), tx, guard.Fence{Key: key, Token: 8}); err != nil {
					t.Fatal(err)
				}
				if err := f.acceptImpatiently(guard.Fence{Key: key, Token: 7}); err == nil || errors.Is(err, guard.ErrStale) {
					t.Errorf("token 7 while the transaction with 8 goes on: got %v, want that it waits", err)
				}
				end := tx.Rollback
				if commit {
					end = tx.Commit
				}
				if err := end(); err != nil {
					t.Fatal(err)
				}
				if err := f.accept(guard.Fence{Key: key, Token: 7}); commit != errors.Is(err, guard.ErrStale) || !commit && err != nil {
					t.Errorf("token 7 after the end of 8: got %v", err)
				}
			})
		}
	}
}

// acceptImpatiently gives up after a moment. A connection whose call was given up
// is of no use, and closed.
func (f *fenced) acceptImpatiently(fence guard.Fence) error {
	ctx, cancel := context.WithTimeout(f.t.Context(), impatience)
	defer cancel()
	tx, err := f.impatient.BeginTx(f.t.Context(), nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	if err := f.fence.Accept(ctx, tx, fence); err != nil {
		if _, ok := errors.AsType[net.Error](err); ok || f.again(err) || ctx.Err() != nil {
			return err
		}
		f.t.Errorf("waiting for the key ends with %v", err)
		return err
	}
	return tx.Commit()
}
