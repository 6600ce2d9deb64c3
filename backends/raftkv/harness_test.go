package raftkv_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"leased/backends/raftkv"
	"leased/cluster"
	"leased/contract"
	"leased/contract/contracttest"
)

// closeTimeout bounds the closing of a test's node.
const closeTimeout = 30 * time.Second

// node is a raft node of its own with a clock that can be moved.
type node struct {
	dir    string
	offset atomic.Int64 // ns that passed besides: on the monotonic and the wall clock
	start  time.Time
	wall   atomic.Int64 // ns by which the wall clock is wrong
	// wrap stands between the engine and the log; nil for nothing.
	wrap func(raftkv.Proposer) raftkv.Proposer

	mu      sync.Mutex
	cluster *cluster.Node
	engine  *raftkv.Engine
	fsm     *raftkv.FSM
	expired []contract.Event
	handles map[contract.Store]*handle
}

func newNode(t contracttest.TB) *node {
	t.Helper()
	n := &node{dir: t.TempDir(), start: time.Now(), handles: make(map[contract.Store]*handle)}
	n.open(t)
	t.Cleanup(func() { n.close(t) })
	return n
}

func (n *node) open(t contracttest.TB) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	n.fsm = raftkv.NewFSM()
	var err error
	n.cluster, err = cluster.Open(ctx, cluster.Config{NodeID: "n1", DataDir: n.dir}, n.fsm)
	if err != nil {
		t.Fatalf("open node: %v", err)
	}
	var log raftkv.Proposer = n.cluster
	if n.wrap != nil {
		log = n.wrap(log)
	}
	n.engine = raftkv.New(raftkv.Options{
		FSM: n.fsm, Proposer: log, NodeID: "n1",
		Observer: func(e contract.Event) {
			n.mu.Lock()
			defer n.mu.Unlock()
			n.expired = append(n.expired, e)
		},
		Clock: func() time.Duration { return time.Since(n.start) + time.Duration(n.offset.Load()) },
		Wall:  func() time.Time { return time.Now().Add(time.Duration(n.wall.Load() + n.offset.Load())) },
	})
}

func (n *node) close(t contracttest.TB) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	if err := n.engine.Close(ctx); err != nil {
		t.Errorf("close engine: %v", err)
	}
	if err := n.cluster.Close(ctx); err != nil {
		t.Errorf("close node: %v", err)
	}
}

// handle is a Store whose calls can be cut off, as those of a gateway are when
// its connection to the leader breaks.
type handle struct {
	contract.Store
	kill func()
	// whenDead runs a function once the handle is killed, see context.AfterFunc.
	whenDead func(func()) (stop func() bool)
}

// Acquire is cut when the handle is killed. What the store answers then reaches
// nobody.
func (h *handle) Acquire(ctx context.Context, r *contract.AcquireRequest) (contract.Result, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := h.whenDead(cancel)
	res, err := h.Store.Acquire(ctx, r)
	if !stop() {
		return contract.Result{}, contract.Lost(ctx)
	}
	return res, err
}

func (n *node) handle() contract.Store {
	dead, kill := context.WithCancel(context.Background())
	h := &handle{
		Store: n.engine.Store(), kill: kill,
		whenDead: func(f func()) func() bool { return context.AfterFunc(dead, f) },
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.handles[h] = h
	return h
}

// kill cuts off a handle's calls. On this backend a gateway has nothing else in
// the store: its waiters are calls of the leader's.
func (n *node) kill(s contract.Store) {
	n.mu.Lock()
	h := n.handles[s]
	delete(n.handles, s)
	n.mu.Unlock()
	h.kill()
}

// reopen stops the node and opens it again on what is on disk.
func (n *node) reopen(t contracttest.TB) {
	t.Helper()
	n.mu.Lock()
	old := n.handles
	n.handles = make(map[contract.Store]*handle)
	n.mu.Unlock()
	for _, h := range old {
		h.kill()
	}
	n.close(t)
	n.open(t)
}

func (n *node) harness() *contracttest.Harness {
	return &contracttest.Harness{
		Name:       "raftkv",
		Open:       func(contracttest.TB) contract.Store { return n.handle() },
		Kill:       func(_ contracttest.TB, s contract.Store) { n.kill(s) },
		Reopen:     n.reopen,
		Advance:    func(_ contracttest.TB, d time.Duration) { n.offset.Add(int64(d)) },
		Guarantees: raftkv.Guarantees(),
	}
}

func TestContract(t *testing.T) {
	contracttest.Run(t, func(t *testing.T) *contracttest.Harness {
		t.Helper()
		return newNode(t).harness()
	})
}
