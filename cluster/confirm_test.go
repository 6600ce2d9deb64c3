package cluster

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
)

// TestRounds_batching: calls during a round wait for the next one, together.
func TestRounds_batching(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := make(chan chan uint64)
		asked := 0
		r := &rounds{asking: new(gate), ask: func() (uint64, error) {
			asked++
			reply := make(chan uint64)
			began <- reply
			return <-reply, nil
		}}
		results := make(chan uint64, 100)
		join := func(n int) {
			for range n {
				go func() {
					index, err := r.join(t.Context())
					if err != nil {
						t.Errorf("join: %v", err)
					}
					results <- index
				}()
			}
			synctest.Wait()
		}
		collect := func(n int, want uint64) {
			t.Helper()
			synctest.Wait()
			if got := len(results); got != n {
				t.Errorf("%d calls were answered, want %d", got, n)
			}
			for range n {
				if got := <-results; got != want {
					t.Errorf("answered by the round that said %d, want %d", got, want)
				}
			}
		}

		join(1)
		first := <-began
		join(50) // while the first round runs: its answer may be older than they are
		first <- 1
		collect(1, 1)
		second := <-began
		join(3)
		second <- 2
		collect(50, 2)
		third := <-began
		third <- 3
		collect(3, 3)
		if asked != 3 {
			t.Errorf("the majority was asked %d times for 54 calls, want 3", asked)
		}
		if r.running || r.next != nil {
			t.Errorf("after the last call: running = %v, next = %v", r.running, r.next)
		}
		r.asking.shut()
	})
}

func TestRounds_ends(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reply := make(chan error)
		r := &rounds{asking: new(gate), ask: func() (uint64, error) { return 0, <-reply }}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := r.join(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("join when nobody answers = %v, want %v", err, context.DeadlineExceeded)
		}
		failed := make(chan error)
		go func() {
			_, err := r.join(t.Context())
			failed <- err
		}()
		synctest.Wait()
		reply <- nil // the round that nobody waits for any more
		reply <- raft.ErrNotLeader
		if err := <-failed; !errors.Is(err, raft.ErrNotLeader) {
			t.Errorf("join = %v, want the round's error, %v", err, raft.ErrNotLeader)
		}
		r.asking.shut()
		if _, err := r.join(t.Context()); !errors.Is(err, ErrClosed) {
			t.Errorf("join after the end = %v, want %v", err, ErrClosed)
		}
	})
}

// TestNode_Confirm_waitsForApply: what was committed before the call must be
// seen by the FSM when it returns.
func TestNode_Confirm_waitsForApply(t *testing.T) {
	fsm := new(ledger)
	n := lead(t, testConfig(t.TempDir()), fsm)
	hold, entered := make(chan struct{}), make(chan struct{}, 1)
	fsm.mu.Lock()
	fsm.hold, fsm.entered = hold, entered
	fsm.mu.Unlock()
	proposed := make(chan error, 1)
	go func() {
		_, err := n.Propose(testContext(t), []byte("committed"))
		proposed <- err
	}()
	<-entered

	why := errors.New("reader left")
	ctx, cancel := context.WithCancelCause(context.Background())
	confirmed := make(chan error, 1)
	go func() { confirmed <- n.Confirm(ctx) }()
	eventually(t, "Confirm waits", func() bool { return n.machine.waiting.Load() == 1 })
	cancel(why)
	if err := <-confirmed; !errors.Is(err, why) {
		t.Errorf("Confirm while the FSM is behind = %v, want %v", err, why)
	}

	go func() { confirmed <- n.Confirm(testContext(t)) }()
	eventually(t, "Confirm waits", func() bool { return n.machine.waiting.Load() == 1 })
	fsm.mu.Lock()
	fsm.hold, fsm.entered = nil, nil
	fsm.mu.Unlock()
	close(hold)
	if err := <-confirmed; err != nil {
		t.Errorf("Confirm = %v", err)
	}
	if got := fsm.content(); len(got) != 1 {
		t.Errorf("applied when Confirm returned: %q, want one command", got)
	}
	if err := <-proposed; err != nil {
		t.Errorf("Propose = %v", err)
	}
}

func TestNode_Confirm_alone(t *testing.T) {
	n := lead(t, testConfig(t.TempDir()), new(ledger))
	for range 100 {
		before := n.Status().LastIndex
		if err := n.Confirm(testContext(t)); err != nil {
			t.Fatal(err)
		}
		if after := n.Status().LastIndex; after != before {
			t.Fatalf("Confirm wrote to the log: last index %d, then %d", before, after)
		}
	}
}

func BenchmarkConfirm(b *testing.B) {
	n := lead(b, testConfig(b.TempDir()), new(ledger))
	ctx := context.Background()
	b.ReportAllocs()
	for b.Loop() {
		if err := n.Confirm(ctx); err != nil {
			b.Fatal(err)
		}
	}
}
