//go:build chaos

package raftkv_test

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"leased/backends/raftkv"
	"leased/cluster"
	"leased/contract"
	"leased/contract/contracttest"
	"leased/test/proc"
)

// trio is three nodes that are a cluster, in one process.
type trio struct {
	dir     string
	members map[string]string
	offset  atomic.Int64 // ns that passed besides, on the clocks of all nodes
	start   time.Time

	mu      sync.Mutex
	nodes   []*member
	next    int
	handles map[contract.Store]*handle
}

type member struct {
	node   *cluster.Node
	engine *raftkv.Engine
	peers  *raftkv.PeerHandler
}

func newTrio(t *testing.T) *trio {
	t.Helper()
	c := &trio{dir: t.TempDir(), members: make(map[string]string), start: time.Now(), handles: make(map[contract.Store]*handle)}
	for i := range 3 {
		c.members[fmt.Sprint("n", i)] = fmt.Sprint("127.0.0.1:", proc.FreePort(t))
	}
	c.open(t)
	t.Cleanup(func() { c.close(t) })
	return c
}

func (c *trio) open(t contracttest.TB) {
	t.Helper()
	c.nodes = nil
	for i := range 3 {
		c.nodes = append(c.nodes, c.openNode(t, fmt.Sprint("n", i)))
	}
	for _, m := range c.nodes {
		f := m.engine.Forwarder()
		for deadline := time.Now().Add(closeTimeout); ; {
			h, err := f.Health(t.Context(), &contract.HealthRequest{Namespace: "default"})
			if err == nil && h.Ready {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("no node leads: %+v, error %v", h, err)
			}
		}
		if err := f.Close(t.Context()); err != nil {
			t.Fatalf("close: %v", err)
		}
	}
}

func (c *trio) openNode(t contracttest.TB, id string) *member {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	fsm := raftkv.NewFSM()
	node, err := cluster.Open(ctx, cluster.Config{
		NodeID: id, DataDir: filepath.Join(c.dir, id), Listen: c.members[id], Members: c.members,
		CommandVersion: raftkv.CommandVersion,
	}, fsm)
	if err != nil {
		t.Fatalf("open node %s: %v", id, err)
	}
	m := &member{node: node}
	m.engine = raftkv.New(raftkv.Options{
		FSM: fsm, Proposer: node, NodeID: id, Peers: node, Members: node,
		Clock: func() time.Duration { return time.Since(c.start) + time.Duration(c.offset.Load()) },
		Wall:  func() time.Time { return time.Now().Add(time.Duration(c.offset.Load())) },
	})
	m.peers = m.engine.PeerHandler()
	node.Serve(m.peers)
	return m
}

// close stops all nodes at once: one after the other, each would hand over to the
// next.
func (c *trio) close(t contracttest.TB) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	var wg sync.WaitGroup
	for _, m := range c.nodes {
		wg.Go(func() {
			if err := m.peers.Close(ctx); err != nil {
				t.Errorf("close the handler: %v", err)
			}
			if err := m.engine.Close(ctx); err != nil {
				t.Errorf("close engine: %v", err)
			}
			if err := m.node.Close(ctx); err != nil {
				t.Errorf("close node: %v", err)
			}
		})
	}
	wg.Wait()
}

// handle returns a store of the next node: of a pair at least one follows.
func (c *trio) handle() contract.Store {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.next++
	dead, kill := context.WithCancel(context.Background())
	h := &handle{
		Store: c.nodes[c.next%len(c.nodes)].engine.Forwarder(), kill: kill,
		whenDead: func(f func()) func() bool { return context.AfterFunc(dead, f) },
	}
	c.handles[h] = h
	return h
}

func (c *trio) kill(s contract.Store) {
	c.mu.Lock()
	h := c.handles[s]
	delete(c.handles, s)
	c.mu.Unlock()
	h.kill()
}

func (c *trio) reopen(t contracttest.TB) {
	t.Helper()
	c.mu.Lock()
	old := c.handles
	c.handles = make(map[contract.Store]*handle)
	c.mu.Unlock()
	for _, h := range old {
		h.kill()
	}
	c.close(t)
	c.open(t)
}

func TestContract_cluster(t *testing.T) {
	contracttest.Run(t, func(t *testing.T) *contracttest.Harness {
		t.Helper()
		c := newTrio(t)
		return &contracttest.Harness{
			Name:       "raftkv, three nodes",
			Open:       func(contracttest.TB) contract.Store { return c.handle() },
			Kill:       func(_ contracttest.TB, s contract.Store) { c.kill(s) },
			Reopen:     c.reopen,
			Advance:    func(_ contracttest.TB, d time.Duration) { c.offset.Add(int64(d)) },
			Guarantees: raftkv.Guarantees(),
		}
	})
}
