package cluster

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/raft"
	"go.uber.org/goleak"

	"leased/contract"
	"leased/test/proc"
)

func TestNode_Propose_answers(t *testing.T) {
	fsm := new(ledger)
	n := lead(t, testConfig(t.TempDir()), fsm)
	const callers, each = 16, 50
	indices := make([][]uint64, callers)
	var wg sync.WaitGroup
	for i := range callers {
		wg.Go(func() {
			for j := range each {
				got, err := n.Propose(testContext(t), fmt.Appendf(nil, "%d/%d", i, j))
				if err != nil {
					t.Errorf("propose: %v", err)
					return
				}
				indices[i] = append(indices[i], got.(uint64))
			}
		})
	}
	wg.Wait()
	// Each caller got the answer to its own command: the index of an entry that
	// holds it.
	for i := range callers {
		for j, index := range indices[i] {
			var entry raft.Log
			if err := n.storage.log.GetLog(index, &entry); err != nil {
				t.Fatal(err)
			}
			if got, want := string(entry.Data), fmt.Sprintf("%d/%d", i, j); got != want {
				t.Errorf("caller %d's command %d was answered with index %d, which is %q", i, j, index, got)
			}
		}
	}
	if got, want := len(fsm.content()), callers*each; got != want {
		t.Errorf("applied %d commands, want %d", got, want)
	}
}

// TestNode_Propose_deadline blocks the FSM: the caller must not wait for it.
func TestNode_Propose_deadline(t *testing.T) {
	late := proc.WatchLateness(t)
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	fsm := new(ledger)
	n := lead(t, testConfig(t.TempDir()), fsm)
	hold, entered := make(chan struct{}), make(chan struct{}, 1)
	fsm.mu.Lock()
	fsm.hold, fsm.entered = hold, entered
	fsm.mu.Unlock()

	// Its time begins when raft has the command: before, it would be told that the
	// command was not submitted.
	ctx, cancel := context.WithCancelCause(context.Background())
	var deadline time.Time
	ending := submitting{ctx, sync.OnceFunc(func() {
		time.AfterFunc(60*time.Millisecond, func() {
			deadline = time.Now()
			cancel(context.DeadlineExceeded)
		})
	})}
	_, err := n.Propose(ending, []byte("slow"))
	if over := late.Took(deadline); over > contract.AnswerSlack {
		t.Errorf("Propose returned %v after the deadline, want at most %v", over, contract.AnswerSlack)
	}
	if !errors.Is(err, ErrNoAnswer) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Propose = %v, want %v and %v", err, ErrNoAnswer, context.DeadlineExceeded)
	}
	<-entered

	// The cause of a cancellation is passed on.
	why := errors.New("client went away")
	canceled, stopIt := context.WithCancelCause(context.Background())
	waiting := make(chan error, 1)
	go func() {
		_, err := n.Propose(canceled, []byte("abandoned"))
		waiting <- err
	}()
	eventually(t, "the second command is committed", func() bool { return n.raft.CommitIndex() >= 5 })
	stopIt(why)
	if err := <-waiting; !errors.Is(err, ErrNoAnswer) || !errors.Is(err, why) {
		t.Errorf("canceled Propose = %v, want %v and %v", err, ErrNoAnswer, why)
	}

	// What was called unknown is applied after all.
	fsm.mu.Lock()
	fsm.entered = nil
	fsm.mu.Unlock()
	close(hold)
	propose(t, n, "next")
	if diff := cmp.Diff([]string{"slow", "abandoned", "next"}, fsm.content()); diff != "" {
		t.Errorf("applied (-want +got):\n%s", diff)
	}
	stop(t, n)
}

func TestNode_Propose_notSubmitted(t *testing.T) {
	fsm := new(ledger)
	n := lead(t, testConfig(t.TempDir()), fsm)
	why := errors.New("too late")
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(why)
	if _, err := n.Propose(ctx, []byte("a")); !errors.Is(err, ErrNotSubmitted) || !errors.Is(err, why) {
		t.Errorf("Propose with a context that has ended = %v, want %v and %v", err, ErrNotSubmitted, why)
	}
	past, cancelPast := context.WithDeadline(context.Background(), time.Now().Add(-time.Second))
	defer cancelPast()
	if _, err := n.Propose(past, []byte("a")); !errors.Is(err, ErrNotSubmitted) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Propose after its deadline = %v, want %v", err, ErrNotSubmitted)
	}
	propose(t, n, "b")
	if diff := cmp.Diff([]string{"b"}, fsm.content()); diff != "" {
		t.Errorf("applied (-want +got):\n%s", diff)
	}
}

// TestNode_Propose_full stops raft's main loop and proposes more than raft may
// hold: what is beyond is certainly not applied, a caller who gives up is noticed
// at once, and no goroutine stays behind for it.
func TestNode_Propose_full(t *testing.T) {
	fsm := new(ledger)
	n := lead(t, testConfig(t.TempDir()), fsm)
	release := stopMainLoop(t, n)
	var waiting, answered sync.WaitGroup
	waiting.Add(maxInFlight)
	for i := range maxInFlight {
		ctx := submitting{testContext(t), sync.OnceFunc(waiting.Done)}
		answered.Go(func() {
			if _, err := n.Propose(ctx, fmt.Appendf(nil, "held %d", i)); err != nil {
				t.Errorf("a command that raft holds: %v", err)
			}
		})
	}
	waiting.Wait()
	before := runtime.NumGoroutine()
	const refused = 20 // in each of two ways
	why := errors.New("client went away")
	for range refused {
		ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
		if _, err := n.Propose(ctx, []byte("late")); !errors.Is(err, ErrNotSubmitted) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Propose when raft takes nothing = %v, want %v and %v", err, ErrNotSubmitted, context.DeadlineExceeded)
		}
		cancel()
		leaving, leave := context.WithCancelCause(context.Background())
		gone := make(chan error, 1)
		asked := make(chan struct{})
		go func() {
			_, err := n.Propose(submitting{leaving, sync.OnceFunc(func() { close(asked) })}, []byte("late"))
			gone <- err
		}()
		<-asked
		leave(why)
		if err := <-gone; !errors.Is(err, ErrNotSubmitted) || !errors.Is(err, why) {
			t.Errorf("canceled Propose when raft takes nothing = %v, want %v and %v", err, ErrNotSubmitted, why)
		}
	}
	// raft starts some of its own for the new peer when it comes to it.
	eventually(t, "the goroutines of refused calls have ended", func() bool { return runtime.NumGoroutine() < before+refused/2 })
	release()
	answered.Wait()
	propose(t, n, "last")
	if got, want := len(fsm.content()), maxInFlight+1; got != want {
		t.Errorf("applied %d commands, want the %d that raft held, and the last", got, maxInFlight)
	}
}

// stopMainLoop keeps raft's main loop waiting until the returned function is
// called: raft waits for observers that ask for it, here one of a new peer.
func stopMainLoop(t *testing.T, n *Node) (release func()) {
	t.Helper()
	observed := make(chan raft.Observation)
	stopped := make(chan struct{})
	n.raft.RegisterObserver(raft.NewObserver(observed, true, func(o *raft.Observation) bool {
		if _, ok := o.Data.(raft.PeerObservation); !ok {
			return false
		}
		close(stopped)
		return true
	}))
	added := n.raft.AddNonvoter("ghost", "ghost", 0, 0)
	select {
	case <-stopped:
	case <-time.After(patience):
		t.Fatal("raft does not add the peer")
	}
	release = sync.OnceFunc(func() {
		<-observed
		if err := added.Error(); err != nil {
			t.Errorf("add a peer: %v", err)
		}
	})
	t.Cleanup(release)
	return release
}

// submitting is a context that tells when a caller starts to wait for raft's
// answer, which is after raft took its command.
type submitting struct {
	context.Context //nolint:containedctx // it is one itself

	tell func()
}

func (s submitting) Done() <-chan struct{} {
	s.tell()
	return s.Context.Done()
}

func TestNode_Propose_closed(t *testing.T) {
	n := lead(t, testConfig(t.TempDir()), new(ledger))
	stop(t, n)
	if _, err := n.Propose(testContext(t), []byte("a")); !errors.Is(err, ErrClosed) {
		t.Errorf("Propose after Close = %v, want %v", err, ErrClosed)
	}
	if err := n.Confirm(testContext(t)); !errors.Is(err, ErrClosed) {
		t.Errorf("Confirm after Close = %v, want %v", err, ErrClosed)
	}
	if err := n.Snapshot(testContext(t)); !errors.Is(err, ErrClosed) {
		t.Errorf("Snapshot after Close = %v, want %v", err, ErrClosed)
	}
	if term, _ := n.Leadership(); term != 0 {
		t.Errorf("term after Close = %d, want 0", term)
	}
}

// TestErrors_submitted: what raftkv looks for, through any wrapping.
func TestErrors_submitted(t *testing.T) {
	for err, want := range map[error]bool{ErrNotSubmitted: false, ErrClosed: false, ErrNoAnswer: true} {
		var told interface{ Submitted() bool }
		wrapped := fmt.Errorf("propose: %w", fmt.Errorf("%w: %w", err, context.DeadlineExceeded))
		if !errors.As(wrapped, &told) || told.Submitted() != want {
			t.Errorf("%v: Submitted = %v, want %v", err, told, want)
		}
	}
}

// batching is a ledger that takes batches.
type batching struct {
	ledger

	types   []raft.LogType
	batches int
}

func (b *batching) ApplyBatch(entries []*raft.Log) []any {
	if len(entries) > 0 {
		b.batches++
	}
	answers := make([]any, len(entries))
	for i, e := range entries {
		b.types = append(b.types, e.Type)
		answers[i] = b.Apply(e)
	}
	return answers
}

// TestNode_batchingFSM: the FSM gets batches, of commands only, although raft
// passes configurations too.
func TestNode_batchingFSM(t *testing.T) {
	dir := t.TempDir()
	fsm := new(batching)
	n := lead(t, testConfig(dir), fsm)
	release := stopMainLoop(t, n)
	futures := make([]raft.ApplyFuture, 20)
	for i := range futures {
		futures[i] = n.raft.Apply(fmt.Append(nil, i), 0)
	}
	release()
	for _, f := range futures {
		if err := f.Error(); err != nil {
			t.Errorf("apply: %v", err)
		}
	}
	stop(t, n)
	if got, want := fsm.batches, 1; got != want {
		t.Errorf("%d batches, want %d for commands that raft held together", got, want)
	}

	fsm = new(batching)
	n = lead(t, testConfig(dir), fsm)
	propose(t, n, "x")
	if got, want := len(fsm.types), 21; got != want {
		t.Errorf("entries seen after a restart = %d, want %d", got, want)
	}
	for _, typ := range fsm.types {
		if typ != raft.LogCommand {
			t.Errorf("the FSM was given an entry of type %v", typ)
		}
	}
	stop(t, n)
}
