package guard_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"leased/client/guard"
)

// impatience is how long a call waits that should be made to wait for ever.
const impatience = 300 * time.Millisecond

const (
	workers = 8
	turns   = 15
)

// testReadBefore: a transaction that has read before, and may see what was there
// then until it ends, is no less told that it is stale.
func testReadBefore(f *fenced) {
	t := f.t
	for _, level := range append([]sql.IsolationLevel{sql.LevelDefault}, f.levels...) {
		key := level.String()
		f.wantHighest(key, 5)
		tx, err := f.db.BeginTx(t.Context(), &sql.TxOptions{Isolation: level})
		if err != nil {
			t.Fatal(err)
		}
		var n int
		if err := tx.QueryRowContext(t.Context(), "SELECT count(*) FROM "+f.other).Scan(&n); err != nil {
			t.Fatal(err)
		}
		f.wantHighest(key, 8)
		if err := f.fence.Accept(t.Context(), tx, guard.Fence{Key: key, Token: 7}); !errors.Is(err, guard.ErrStale) && !f.again(err) {
			t.Errorf("%s: token 7 after 8: got %v", key, err)
		}
		if err := tx.Rollback(); err != nil {
			t.Error(err)
		}
		f.wantHighest(key, 8)
	}
}

// testOrder: transactions that fence the same keys, named in any order, never
// wait for each other in a circle.
func testOrder(f *fenced) {
	t := f.t
	keys := []string{"a", "b", "c", "d"}
	for _, key := range keys {
		f.wantHighest(key, 2) // the rows are there: only the order is at stake
	}
	var all sync.WaitGroup
	for range workers {
		all.Go(func() {
			for range turns {
				fences := make([]guard.Fence, 0, len(keys))
				for _, i := range rand.Perm(len(keys)) {
					fences = append(fences, guard.Fence{Key: keys[i], Token: 2})
				}
				if err := f.accept(fences...); err != nil {
					t.Errorf("%v: %v", fences, err)
					return
				}
			}
		})
	}
	all.Wait()
}

// testWriters has transactions with tokens of any age write at once, and some of
// them roll back. Nobody's write comes after that of a higher token.
func testWriters(f *fenced) {
	t := f.t
	for _, level := range append([]sql.IsolationLevel{sql.LevelDefault}, f.levels...) {
		t.Run(level.String(), func(t *testing.T) {
			f := *f
			f.t, f.stale = t, new(counter)
			var err error
			if f.fence, err = guard.NewSQL(guard.SQLOptions{Dialect: f.dialect, Table: f.table, Stale: f.stale}); err != nil {
				t.Fatal(err)
			}
			w := &writers{fenced: &f, level: level, key: t.Name(), table: fmt.Sprintf("writes_%d", level)}
			w.run()
		})
	}
}

type writers struct {
	*fenced
	level   sql.IsolationLevel
	key     string
	table   string
	refused atomic.Int64
	again   atomic.Int64
}

func (w *writers) run() {
	t := w.t
	if _, err := w.db.ExecContext(t.Context(), fmt.Sprintf(w.writes, w.table)); err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	var next atomic.Uint64
	for range workers {
		all.Go(func() {
			for range turns {
				token := next.Add(1)
				if back := rand.Uint64N(8); back < token {
					token -= back // an old one
				}
				w.write(token)
			}
		})
	}
	all.Wait()
	rows, err := w.db.QueryContext(t.Context(), "SELECT token FROM "+w.table+" ORDER BY id")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = rows.Close() }()
	var tokens []uint64
	for rows.Next() {
		var token uint64
		if err := rows.Scan(&token); err != nil {
			t.Fatal(err)
		}
		tokens = append(tokens, token)
	}
	if err := rows.Err(); err != nil || len(tokens) == 0 {
		t.Fatalf("%d writes, %v", len(tokens), err)
	}
	if !slices.IsSorted(tokens) {
		t.Errorf("a write came after that of a higher token: %v", tokens)
	}
	if got, want := w.stale.Load(), w.refused.Load(); got != want {
		t.Errorf("%d were counted as stale, want %d", got, want)
	}
	t.Logf("%d written, %d stale, %d tried again", len(tokens), w.refused.Load(), w.again.Load())
}

// write is one fenced write, tried again while the database could not order it.
func (w *writers) write(token uint64) {
	const patience = 200
	for range patience {
		err := w.try(w.t.Context(), token)
		switch {
		case errors.Is(err, guard.ErrStale):
			w.refused.Add(1)
			return
		case err == nil:
			return
		case !w.fenced.again(err):
			w.t.Errorf("token %d: %v", token, err)
			return
		}
		w.again.Add(1)
	}
	w.t.Errorf("token %d: the database could not order it %d times", token, patience)
}

func (w *writers) try(ctx context.Context, token uint64) error {
	tx, err := w.db.BeginTx(ctx, &sql.TxOptions{Isolation: w.level})
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	if err := w.fence.Accept(ctx, tx, guard.Fence{Key: w.key, Token: token}); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, fmt.Sprintf(w.insert, w.table), int64(token)); err != nil {
		return err
	}
	if rand.IntN(4) == 0 {
		return nil // rolled back
	}
	return tx.Commit()
}

func testCreatedAtOnce(f *fenced) {
	t := f.t
	fence, err := guard.NewSQL(guard.SQLOptions{Dialect: f.dialect, Table: f.table + "_at_once"})
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for range workers {
		all.Go(func() {
			if err := fence.CreateTable(t.Context(), f.db); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	f.fence = fence
	f.wantHighest("a", 3)
	if _, err := f.db.ExecContext(t.Context(), fence.Schema()); err != nil {
		t.Errorf("Schema, where the table is there already: %v", err)
	}
	f.wantHighest("a", 3)
}
