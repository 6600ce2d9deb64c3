package cluster

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
)

// TestNode_Close_bounded: a blocked FSM keeps the node from stopping. Close
// returns at its bound, the same twice, and the node stops once it can.
func TestNode_Close_bounded(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	dir := t.TempDir()
	fsm := new(ledger)
	n := lead(t, testConfig(dir), fsm)
	hold, entered := make(chan struct{}), make(chan struct{}, 1)
	fsm.mu.Lock()
	fsm.hold, fsm.entered = hold, entered
	fsm.mu.Unlock()
	answers := make(chan error, 1)
	go func() {
		_, err := n.Propose(testContext(t), []byte("running"))
		answers <- err
	}()
	<-entered

	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Millisecond)
	defer cancel()
	begin := time.Now()
	err := n.Close(ctx)
	if took := time.Since(begin); took > time.Second {
		t.Errorf("Close with 30ms took %v", took)
	}
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "still waiting for calls") {
		t.Errorf("Close = %v, want %v and what it was waiting for", err, context.DeadlineExceeded)
	}
	if again := n.Close(testContext(t)); !errors.Is(again, err) {
		t.Errorf("second Close = %v, want the first answer, %v", again, err)
	}
	if _, err := n.Propose(testContext(t), []byte("late")); !errors.Is(err, ErrClosed) {
		t.Errorf("Propose during Close = %v, want %v", err, ErrClosed)
	}

	fsm.mu.Lock()
	fsm.entered = nil
	fsm.mu.Unlock()
	close(hold)
	if err := <-answers; err != nil {
		t.Errorf("a call that was running when Close began = %v, want its answer", err)
	}
	// The folder becomes free, which is the last thing that stopping does.
	fsm = new(ledger)
	stop(t, lead(t, testConfig(dir), fsm))
	if diff := cmp.Diff([]string{"running"}, fsm.content()); diff != "" {
		t.Errorf("after a restart (-want +got):\n%s", diff)
	}
}

// closing is an FSM that is closed with its node.
type closing struct {
	ledger
	closed int
}

func (c *closing) Close() error { c.closed++; return nil }

// TestNode_Close_fsm: an FSM that can be closed is, once, when it is given nothing more.
func TestNode_Close_fsm(t *testing.T) {
	fsm := new(closing)
	n := lead(t, testConfig(t.TempDir()), fsm)
	if _, err := n.Propose(testContext(t), []byte("last")); err != nil || fsm.closed != 0 {
		t.Fatalf("Propose = %v, closed %d times before Close", err, fsm.closed)
	}
	stop(t, n)
	if fsm.closed != 1 {
		t.Errorf("closed %d times, want once", fsm.closed)
	}
}

func TestNode_Close_twice(t *testing.T) {
	n := lead(t, testConfig(t.TempDir()), new(ledger))
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if err := n.Close(testContext(t)); err != nil {
				t.Errorf("Close = %v, want nil", err)
			}
		})
	}
	wg.Wait()
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	if err := n.Close(ended); err != nil {
		t.Errorf("Close of a closed node with a context that has ended = %v, want the first answer, nil", err)
	}
}

// TestNode_Close_underLoad: each call during Close gets a true answer.
func TestNode_Close_underLoad(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	dir := t.TempDir()
	n := lead(t, testConfig(dir), new(ledger))
	var mu sync.Mutex
	acknowledged := map[string]bool{}
	var wg sync.WaitGroup
	busy := make(chan struct{}, 1000)
	for i := range 8 {
		wg.Go(func() {
			for j := 0; ; j++ {
				command := strings.Repeat("x", i+1) + strings.Repeat("y", j)
				_, err := n.Propose(testContext(t), []byte(command))
				if errors.Is(err, ErrClosed) {
					return
				}
				if err != nil {
					t.Errorf("Propose while the node closes = %v, want nil or %v", err, ErrClosed)
					return
				}
				mu.Lock()
				acknowledged[command] = true
				mu.Unlock()
				select {
				case busy <- struct{}{}:
				default:
				}
				if err := n.Confirm(testContext(t)); err != nil && !errors.Is(err, ErrClosed) {
					t.Errorf("Confirm while the node closes = %v, want nil or %v", err, ErrClosed)
				}
			}
		})
	}
	for range 100 {
		<-busy
	}
	stop(t, n)
	wg.Wait()

	fsm := new(ledger)
	stop(t, lead(t, testConfig(dir), fsm))
	got := map[string]bool{}
	for _, line := range fsm.content() {
		got[line] = true
	}
	if diff := cmp.Diff(acknowledged, got); diff != "" {
		t.Errorf("acknowledged before, and applied after a restart (-want +got):\n%s", diff)
	}
}
