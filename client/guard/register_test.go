package guard_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"leased/client/guard"
)

func enter(t *testing.T, m *guard.Memory, token uint64) (work context.Context, leave func()) {
	t.Helper()
	work, leave, err := m.Enter(t.Context(), guard.Fence{Key: "a", Token: token})
	if err != nil {
		t.Fatalf("token %d: %v", token, err)
	}
	return work, leave
}

func TestMemory_sequence(t *testing.T) {
	t.Parallel()
	stale := new(counter)
	m := guard.NewMemory(stale)
	if err := m.Raise(guard.Fence{Key: "raised", Token: 9}); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		key     string
		token   uint64
		highest uint64 // 0: accepted
	}{{"a", 5, 0}, {"a", 5, 0}, {"a", 7, 0}, {"a", 6, 7}, {"a", 7, 0}, {"A", 1, 0}, {"raised", 8, 9}, {"raised", 9, 0}} {
		ran := false
		err := m.Do(t.Context(), guard.Fence{Key: step.key, Token: step.token}, func(context.Context) error { ran = true; return nil })
		got, _ := errors.AsType[*guard.StaleError](err)
		switch {
		case step.highest == 0 && (err != nil || !ran):
			t.Errorf("%s %d: %v, ran %v, want it done", step.key, step.token, err, ran)
		case step.highest != 0 && (ran || got == nil || *got != guard.StaleError{Key: step.key, Token: step.token, Highest: step.highest}):
			t.Errorf("%s %d: %v, ran %v, want it stale after %d", step.key, step.token, err, ran, step.highest)
		}
	}
	if stale.Load() != 2 {
		t.Errorf("%d were counted as stale, want 2", stale.Load())
	}
	for _, f := range invalidFences() {
		_, _, err := m.Enter(t.Context(), f)
		if raised := m.Raise(f); !errors.Is(err, guard.ErrInvalid) || !errors.Is(raised, guard.ErrInvalid) {
			t.Errorf("%.20q, %d: got %v and %v, want ErrInvalid", f.Key, f.Token, err, raised)
		}
	}
}

// TestMemory_handover: a higher token ends the context of the work before it,
// waits until that has ended, and meanwhile keeps everybody with a lower one out.
func TestMemory_handover(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := guard.NewMemory(nil)
		work, leave := enter(t, m, 5)
		_, leaveToo := enter(t, m, 5) // the same holder, at once
		admitted := make(chan struct{})
		go func() {
			_, leave := enter(t, m, 8)
			defer leave()
			close(admitted)
		}()
		passed := make(chan error)
		go func() {
			_, _, err := m.Enter(t.Context(), guard.Fence{Key: "a", Token: 6})
			passed <- err
		}()
		// Either order of arrival: 6 waited when 8 came, or came after it.
		if err := <-passed; !errors.Is(err, guard.ErrStale) {
			t.Errorf("token 6 beside 8: got %v, want it stale", err)
		}
		<-work.Done()
		if stale, _ := errors.AsType[*guard.StaleError](context.Cause(work)); stale == nil || stale.Highest < 6 {
			t.Errorf("the work with token 5 ends with %v", context.Cause(work))
		}
		leave()
		leave() // again does nothing
		synctest.Wait()
		select {
		case <-admitted:
			t.Error("token 8 is admitted while work with 5 goes on")
		default:
		}
		leaveToo()
		<-admitted
	})
}

// TestMemory_impatient: whoever gave up waiting was seen all the same, and leaves
// nothing behind.
func TestMemory_impatient(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := guard.NewMemory(nil)
		_, leave := enter(t, m, 5)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, _, err := m.Enter(ctx, guard.Fence{Key: "a", Token: 8}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("waiting for work that does not end: got %v, want the context's error", err)
		}
		if _, _, err := m.Enter(t.Context(), guard.Fence{Key: "a", Token: 7}); !errors.Is(err, guard.ErrStale) {
			t.Errorf("a lower token than that of one who gave up: got %v, want it stale", err)
		}
		leave()
		_, leave = enter(t, m, 8)
		leave()
		if _, _, err := m.Enter(ctx, guard.Fence{Key: "a", Token: 9}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("with a context that has ended: got %v", err)
		}
	})
}

// TestMemory_writers: whatever comes when, no work begins after that of a higher
// token, and no two tokens work at once.
func TestMemory_writers(t *testing.T) {
	t.Parallel()
	m := guard.NewMemory(nil)
	var (
		mu     sync.Mutex
		begun  []uint64
		active = map[uint64]int{}
		all    sync.WaitGroup
	)
	for range 8 {
		all.Go(func() {
			for range 300 {
				token := 1 + rand.Uint64N(100)
				err := m.Do(t.Context(), guard.Fence{Key: "a", Token: token}, func(context.Context) error {
					mu.Lock()
					begun = append(begun, token)
					if active[token]++; len(active) != 1 {
						t.Errorf("tokens work at once: %v", active)
					}
					mu.Unlock()
					mu.Lock()
					if active[token]--; active[token] == 0 {
						delete(active, token)
					}
					mu.Unlock()
					return nil
				})
				if err != nil && !errors.Is(err, guard.ErrStale) {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	if !slices.IsSorted(begun) || len(begun) == 0 {
		t.Errorf("work began after that of a higher token: %v", begun)
	}
}
