package prove

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"testing"

	_ "modernc.org/sqlite" // the driver

	"leased/client/guard"
	"leased/test/history"
)

// register is the guarded resource: a table in a database that all clients write to,
// in the order of its rows.
type register struct {
	db *sql.DB
	// fence is nil for one that takes everything.
	fence *guard.SQL
}

func openRegister(path string, fenced bool) (*register, error) {
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=journal_mode(WAL)&_pragma=synchronous(OFF)&_pragma=busy_timeout(5000)&_txlock=immediate")
	if err != nil {
		return nil, err
	}
	r := &register{db: db}
	if fenced {
		r.fence, err = guard.NewSQL(guard.SQLOptions{Dialect: guard.SQLite})
	}
	return r, err
}

// newRegister makes the tables and returns where they are.
func newRegister(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "register.db")
	r, err := openRegister(path, true)
	if err != nil {
		t.Fatal(err)
	}
	defer r.db.Close()
	if err := r.fence.CreateTable(t.Context(), r.db); err != nil {
		t.Fatal(err)
	}
	if _, err := r.db.ExecContext(t.Context(), `CREATE TABLE written (n INTEGER PRIMARY KEY AUTOINCREMENT, k TEXT NOT NULL, token INTEGER NOT NULL, instance TEXT NOT NULL)`); err != nil {
		t.Fatal(err)
	}
	return path
}

// write writes with a token and tells what became of it.
func (r *register) write(o *history.Op) string {
	ctx := context.Background()
	tx, err := r.db.BeginTx(ctx, nil)
	if err != nil {
		return history.NotSent
	}
	defer func() { _ = tx.Rollback() }() // nothing after Commit
	if r.fence != nil {
		err := r.fence.Accept(ctx, tx, guard.Fence{Key: o.Key, Token: o.Token})
		if errors.Is(err, guard.ErrStale) {
			return history.StaleToken
		}
		if err != nil {
			return history.NotSent
		}
	}
	if _, err := tx.ExecContext(ctx, `INSERT INTO written (k, token, instance) VALUES (?, ?, ?)`, o.Key, int64(o.Token), o.Instance); err != nil {
		return history.NotSent
	}
	if tx.Commit() != nil {
		return history.Lost
	}
	return history.Accepted
}

// written returns what was accepted, in order.
func written(t *testing.T, path string) []history.Written {
	t.Helper()
	r, err := openRegister(path, true)
	if err != nil {
		t.Fatal(err)
	}
	defer r.db.Close()
	rows, err := r.db.QueryContext(t.Context(), `SELECT k, token, instance FROM written ORDER BY n`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var all []history.Written
	for rows.Next() {
		var w history.Written
		if err := rows.Scan(&w.Key, &w.Token, &w.Instance); err != nil {
			t.Fatal(err)
		}
		all = append(all, w)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return all
}
