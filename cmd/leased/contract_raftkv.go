package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"time"

	"leased/backends/raftkv"
	"leased/cluster"
	"leased/contract"
	"leased/contract/contracttest"
)

// raftNode is a raft node of its own, alone in its cluster, with the handles
// that a rule opened on it. They stand for gateways: each can die alone.
type raftNode struct {
	dir string

	mu      sync.Mutex
	cluster *cluster.Node
	engine  *raftkv.Engine
	handles map[*raftHandle]struct{}
}

// openRaftSubject prepares a folder for the nodes, of which each rule gets one of
// its own: some restart it, and one rule's traffic would push events out of the
// buffer that another one's stream reads. One more is for the suite itself.
func openRaftSubject(ctx context.Context, s *subject) (*openSubject, error) {
	scratch, err := os.MkdirTemp(s.dir, "leased-contract-")
	if err != nil {
		return nil, usagef("--backend: %w", err)
	}
	own, err := openRaftNode(ctx, filepath.Join(scratch, "suite"))
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(scratch))
	}
	return &openSubject{
		name: backendRaftKV, guarantees: raftkv.Guarantees(), restarts: true,
		store: func() (contract.Store, error) { return own.engine.Store(), nil },
		harness: func(rule contracttest.Rule) func(contracttest.TB) *contracttest.Harness {
			return func(t contracttest.TB) *contracttest.Harness {
				node := ownRaftNode(t, filepath.Join(scratch, rule.ID))
				return &contracttest.Harness{
					Name:       backendRaftKV,
					Open:       func(contracttest.TB) contract.Store { return node.handle() },
					Kill:       node.kill,
					Reopen:     node.reopen,
					Advance:    contracttest.AdvanceRealTime,
					Guarantees: raftkv.Guarantees(),
				}
			}
		},
		close: func(ctx context.Context) error {
			return errors.Join(own.close(ctx), os.RemoveAll(scratch))
		},
	}, nil
}

func openRaftNode(ctx context.Context, dir string) (*raftNode, error) {
	n := &raftNode{dir: dir, handles: make(map[*raftHandle]struct{})}
	err := n.open(ctx)
	return n, err
}

// ownRaftNode opens a node that is closed when the rule is over.
func ownRaftNode(t contracttest.TB, dir string) *raftNode {
	t.Helper()
	n, err := openRaftNode(t.Context(), dir)
	if err != nil {
		t.Fatalf("open a node: %v", err)
	}
	t.Cleanup(func() {
		if err := n.close(context.Background()); err != nil {
			t.Errorf("close the node: %v", err)
		}
	})
	return n
}

func (n *raftNode) open(ctx context.Context) error {
	fsm := raftkv.NewFSM()
	node, err := cluster.Open(ctx, cluster.Config{NodeID: "n1", DataDir: n.dir}, fsm)
	if err != nil {
		return err
	}
	n.cluster, n.engine = node, raftkv.New(raftkv.Options{FSM: fsm, Proposer: node})
	return nil
}

func (n *raftNode) close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, stopTimeout)
	defer cancel()
	return errors.Join(n.engine.Close(ctx), n.cluster.Close(ctx))
}

// raftHandle is a store whose calls are cut off when it is killed, as those of a
// gateway are when its machine dies. A gateway has nothing else in this store:
// its waiters are calls.
type raftHandle struct {
	contract.Store
	dead chan struct{}
	once sync.Once
}

func (h *raftHandle) kill() { h.once.Do(func() { close(h.dead) }) }

// Acquire implements contract.Store.
func (h *raftHandle) Acquire(ctx context.Context, r *contract.AcquireRequest) (contract.Result, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-h.dead:
			cancel()
		case <-ctx.Done():
		}
	}()
	return h.Store.Acquire(ctx, r)
}

func (n *raftNode) handle() contract.Store {
	n.mu.Lock()
	defer n.mu.Unlock()
	h := &raftHandle{Store: n.engine.Store(), dead: make(chan struct{})}
	n.handles[h] = struct{}{}
	return h
}

func (n *raftNode) kill(t contracttest.TB, s contract.Store) {
	t.Helper()
	h, ok := s.(*raftHandle)
	if !ok {
		t.Fatalf("the suite kills a store that it did not open")
	}
	n.mu.Lock()
	delete(n.handles, h)
	n.mu.Unlock()
	h.kill()
}

// reopen stops the node and starts it on what is on its disk.
func (n *raftNode) reopen(t contracttest.TB) {
	t.Helper()
	n.mu.Lock()
	defer n.mu.Unlock()
	for h := range n.handles {
		h.kill()
	}
	clear(n.handles)
	if err := n.close(context.Background()); err != nil {
		t.Errorf("stop the node: %v", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := n.open(ctx); err != nil {
		t.Fatalf("start the node again: %v", err)
	}
}
