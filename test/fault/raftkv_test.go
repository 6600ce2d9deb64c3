package fault

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"leased/backends/raftkv"
	"leased/cluster"
)

// fault is what happens to a command on its way to the log and back.
type fault int

const (
	healthy fault = iota
	deposed       // this node does not lead
	cut           // the command does not reach the leader
	paused        // the command reaches the log only when the fault is over
	lost          // the command is applied and its answer lost
)

// submission is the error of the way to the leader.
type submission struct{ submitted bool }

func (e *submission) Error() string   { return "the way to the leader is broken" }
func (e *submission) Submitted() bool { return e.submitted }

// faultyLog is a raft node whose way can be broken.
type faultyLog struct {
	*cluster.Node

	mu      sync.Mutex
	fault   fault
	changed chan struct{} // closed and replaced when fault changes
}

func (l *faultyLog) set(f fault) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fault = f
	close(l.changed)
	l.changed = make(chan struct{})
}

func (l *faultyLog) now() (fault, <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.fault, l.changed
}

// Propose implements raftkv.Proposer.
func (l *faultyLog) Propose(ctx context.Context, command []byte) (any, error) {
	f, over := l.now()
	switch f {
	case deposed:
		return nil, raft.ErrNotLeader
	case cut:
		return nil, &submission{}
	case paused:
		select {
		case <-over:
			return l.Node.Propose(ctx, command)
		case <-ctx.Done():
			// The network still holds it, and delivers it when the fault is over.
			go func() { <-over; _, _ = l.Node.Propose(context.WithoutCancel(ctx), command) }()
			return nil, &submission{true}
		}
	case lost:
		_, _ = l.Node.Propose(ctx, command)
		select {
		case <-over:
		case <-ctx.Done():
		}
		return nil, &submission{true}
	case healthy:
	}
	return l.Node.Propose(ctx, command)
}

// Confirm implements raftkv.Proposer.
func (l *faultyLog) Confirm(ctx context.Context) error {
	f, over := l.now()
	switch f {
	case deposed:
		return raft.ErrNotLeader
	case cut:
		return &submission{}
	case paused, lost:
		select {
		case <-over:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	case healthy:
	}
	return l.Node.Confirm(ctx)
}

// Leadership implements raftkv.Proposer.
func (l *faultyLog) Leadership() (uint64, <-chan struct{}) {
	if f, over := l.now(); f == deposed {
		return 0, over
	}
	term, changed := l.Node.Leadership()
	_, over := l.now()
	either := make(chan struct{})
	go func() {
		select {
		case <-changed:
		case <-over:
		}
		close(either)
	}()
	return term, either
}

func raftScene(f fault) func(t *testing.T, ns string) *scene {
	return func(t *testing.T, _ string) *scene {
		t.Helper()
		fsm := raftkv.NewFSM()
		node, err := cluster.Open(t.Context(), cluster.Config{NodeID: "n1", DataDir: t.TempDir()}, fsm)
		if err != nil {
			t.Fatal(err)
		}
		log := &faultyLog{Node: node, changed: make(chan struct{})}
		engine := raftkv.New(raftkv.Options{FSM: fsm, Proposer: log})
		t.Cleanup(func() {
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			defer cancel()
			if err := engine.Close(ctx); err != nil {
				t.Errorf("close engine: %v", err)
			}
			log.set(healthy) // ends what Leadership started
			if err := node.Close(ctx); err != nil {
				t.Errorf("close node: %v", err)
			}
		})
		return &scene{
			store: engine.Store(),
			begin: func(*testing.T) { log.set(f) },
			end:   func(*testing.T) { log.set(healthy) },
		}
	}
}

func raftKilled(t *testing.T, ns string) *scene    { t.Helper(); return raftScene(deposed)(t, ns) }
func raftPaused(t *testing.T, ns string) *scene    { t.Helper(); return raftScene(paused)(t, ns) }
func raftCut(t *testing.T, ns string) *scene       { t.Helper(); return raftScene(cut)(t, ns) }
func raftSwallowed(t *testing.T, ns string) *scene { t.Helper(); return raftScene(lost)(t, ns) }
func raftFollower(t *testing.T, ns string) *scene  { t.Helper(); return raftScene(deposed)(t, ns) }
