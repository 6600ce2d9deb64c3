package cluster

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/raft"
)

// TestNode_Leadership_termRises: each start is a later term.
func TestNode_Leadership_termRises(t *testing.T) {
	dir := t.TempDir()
	var last uint64
	for i := range 3 {
		n := start(t, testConfig(dir), new(ledger))
		term := waitLeader(t, n)
		if term <= last {
			t.Errorf("term after %d restarts = %d, want above %d", i, term, last)
		}
		last = term
		_, changed := n.Leadership()
		stop(t, n)
		select {
		case <-changed:
		default:
			t.Error("the channel of Leadership is not closed when the node stops")
		}
	}
}

// TestNode_Leadership_afterReplay: raft is leader while it still has a log to
// apply. The term must not be known before the last old entry was applied.
func TestNode_Leadership_afterReplay(t *testing.T) {
	dir := t.TempDir()
	n := lead(t, testConfig(dir), new(ledger))
	for i := range 20 {
		propose(t, n, fmt.Sprint(i))
	}
	stop(t, n)

	hold, entered := make(chan struct{}), make(chan struct{}, 100)
	fsm := &ledger{hold: hold, entered: entered}
	n = start(t, testConfig(dir), fsm)
	for i := range 20 {
		select {
		case <-entered: // the i-th old entry is about to be applied
		case <-time.After(patience):
			t.Fatal("the log is not replayed")
		}
		if n.raft.State() != raft.Leader {
			t.Fatalf("entry %d is replayed by a %v; the test wants a leader", i, n.raft.State())
		}
		if term, _ := n.Leadership(); term != 0 {
			t.Fatalf("term %d is known before entry %d of 20 was applied", term, i)
		}
		// Neither may a reader be told that the state is current.
		ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
		if err := n.Confirm(ctx); err == nil {
			t.Fatalf("Confirm succeeded before entry %d of 20 was applied", i)
		}
		cancel()
		hold <- struct{}{}
	}
	waitLeader(t, n)
	if got, want := len(fsm.content()), 20; got != want {
		t.Errorf("applied when the term is known = %d, want %d", got, want)
	}
	fsm.mu.Lock()
	fsm.hold = nil
	fsm.mu.Unlock()
	if err := n.Confirm(testContext(t)); err != nil {
		t.Errorf("Confirm = %v", err)
	}
}

// TestNode_Leadership_interrupted: notices that come faster than a term can be
// confirmed leave the last one standing.
func TestNode_Leadership_interrupted(t *testing.T) {
	l := newLeadership()
	_, changed := l.get()
	first := l.begin()
	second := l.begin()
	if l.confirm(first, 7) {
		t.Error("a term was confirmed in a turn that is over")
	}
	select {
	case <-changed:
		t.Error("the channel was closed though the answer is still 0")
	default:
	}
	if !l.confirm(second, 8) {
		t.Error("the term of the current turn was not confirmed")
	}
	select {
	case <-changed:
	default:
		t.Error("the channel was not closed when the term became known")
	}
	if term, _ := l.get(); term != 8 {
		t.Errorf("term = %d, want 8", term)
	}
	_, changed = l.get()
	l.begin()
	select {
	case <-changed:
	default:
		t.Error("the channel was not closed when the term ended")
	}
}

// A leader that lost leadership while it handed it over, and was elected again, says
// so: raft calls that a success, and the node that was meant may never lead.
func TestNode_waitLeader_electedAgain(t *testing.T) {
	n := lead(t, testConfig(t.TempDir()), new(ledger))
	defer stop(t, n)
	term, _ := n.Leadership()
	if err := n.waitLeader(testContext(t), "n2", term-1); err == nil || !strings.Contains(err.Error(), "elected again") {
		t.Errorf("waiting for n2 with an earlier term: got %v, want that this node was elected again", err)
	}
	ctx, cancel := context.WithCancelCause(testContext(t))
	cancel(errInjected)
	if err := n.waitLeader(ctx, "n2", term); !errors.Is(err, errInjected) {
		t.Errorf("waiting for n2 in the term of the transfer: got %v, want to wait", err)
	}
}
