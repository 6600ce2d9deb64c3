package raftkv_test

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"leased/backends/raftkv"
	"leased/cluster"
	"leased/contract"
	"leased/contract/contracttest"
)

// pair is a node that leads and a follower in one process: one raft node whose
// log goes to two state machines, each with an engine of its own, and HTTP
// between them. The log is real; who leads is said by the test.
type pair struct {
	dir    string
	offset atomic.Int64 // ns that passed besides
	start  time.Time
	change []func(*raftkv.Options) // before engines are made

	mu        sync.Mutex
	cluster   *cluster.Node
	engines   [2]*raftkv.Engine
	peers     *fakePeers // what the follower knows
	own       *fakePeers // what the node that leads knows
	transport *http.Transport
	handler   *raftkv.PeerHandler
	server    *httptest.Server
	next      int
	handles   map[contract.Store]*handle
}

// both hands a log to two state machines.
type both [2]*raftkv.FSM

func (b both) Apply(l *raft.Log) any { return b.ApplyBatch([]*raft.Log{l})[0] }

func (b both) ApplyBatch(logs []*raft.Log) []any {
	answers := b[0].ApplyBatch(logs)
	b[1].ApplyBatch(logs)
	return answers
}

func (b both) Snapshot() (raft.FSMSnapshot, error) { return b[0].Snapshot() }

func (b both) Restore(from io.ReadCloser) error {
	defer from.Close()
	content, err := io.ReadAll(from)
	if err != nil {
		return err
	}
	for _, fsm := range b {
		if err := fsm.Restore(io.NopCloser(bytes.NewReader(content))); err != nil {
			return err
		}
	}
	return nil
}

// follows is the log as a node sees it that never leads.
type follows struct{ never chan struct{} }

func (f follows) Propose(context.Context, []byte) (any, error) { return nil, raft.ErrNotLeader }
func (f follows) Confirm(context.Context) error                { return raft.ErrNotLeader }
func (f follows) Leadership() (uint64, <-chan struct{})        { return 0, f.never }

// fakePeers says who leads and leads to the one handler that there is.
type fakePeers struct {
	transport http.RoundTripper

	mu      sync.Mutex
	leader  string
	changed chan struct{}
}

func (p *fakePeers) Leader() (string, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.leader, p.changed
}

func (p *fakePeers) Transport() http.RoundTripper { return p.transport }

func (p *fakePeers) elect(id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.leader = id
	close(p.changed)
	p.changed = make(chan struct{})
}

func newPair(t contracttest.TB, change ...func(*raftkv.Options)) *pair {
	t.Helper()
	p := &pair{dir: t.TempDir(), start: time.Now(), change: change, handles: make(map[contract.Store]*handle)}
	p.open(t)
	t.Cleanup(func() { p.close(t) })
	return p
}

func (p *pair) open(t contracttest.TB) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	fsms := both{raftkv.NewFSM(), raftkv.NewFSM()}
	var err error
	p.cluster, err = cluster.Open(ctx, cluster.Config{NodeID: "n1", DataDir: p.dir, CommandVersion: raftkv.CommandVersion}, fsms)
	if err != nil {
		t.Fatalf("open node: %v", err)
	}
	p.peers = &fakePeers{leader: "n1", changed: make(chan struct{})}
	p.own = &fakePeers{leader: "n1", changed: make(chan struct{})}
	options := raftkv.Options{
		FSM: fsms[0], Proposer: p.cluster, NodeID: "n1", Peers: p.own, Members: p.cluster,
		Clock: func() time.Duration { return time.Since(p.start) + time.Duration(p.offset.Load()) },
		Wall:  func() time.Time { return time.Now().Add(time.Duration(p.offset.Load())) },
	}
	for _, change := range p.change {
		change(&options)
	}
	p.engines[0] = raftkv.New(options)
	options.FSM, options.NodeID, options.Proposer, options.Peers = fsms[1], "n2", follows{make(chan struct{})}, p.peers
	p.engines[1] = raftkv.New(options)
	p.handler = p.engines[0].PeerHandler()
	p.server = httptest.NewUnstartedServer(p.handler)
	p.server.Config.Protocols, p.server.Config.HTTP2 = h2c(), &http.HTTP2Config{MaxConcurrentStreams: 1 << 16}
	p.server.Start()
	p.transport = &http.Transport{
		Protocols: h2c(),
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			c, err := new(net.Dialer).DialContext(ctx, network, p.server.Listener.Addr().String())
			if err != nil {
				return nil, notSentError{err}
			}
			return c, nil
		},
	}
	p.peers.transport = p.transport
}

// notSentError is an error from before anything was sent.
type notSentError struct{ error }

func (notSentError) NotSent() bool { return true }

func h2c() *http.Protocols {
	p := new(http.Protocols)
	p.SetUnencryptedHTTP2(true)
	return p
}

func (p *pair) close(t contracttest.TB) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	if err := p.handler.Close(ctx); err != nil {
		t.Errorf("close the handler: %v", err)
	}
	p.transport.CloseIdleConnections()
	p.server.Close()
	for _, e := range []*raftkv.Engine{p.engines[1], p.engines[0]} {
		if err := e.Close(ctx); err != nil {
			t.Errorf("close engine: %v", err)
		}
	}
	if err := p.cluster.Close(ctx); err != nil {
		t.Errorf("close node: %v", err)
	}
}

// handle returns a store of the follower and of the node that leads in turn: as
// two gateways have.
func (p *pair) handle() contract.Store {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.next++
	return p.handleAt(p.next % 2)
}

func (p *pair) handleAt(i int) *handle {
	dead, kill := context.WithCancel(context.Background())
	h := &handle{
		Store: p.engines[i].Forwarder(), kill: kill,
		whenDead: func(f func()) func() bool { return context.AfterFunc(dead, f) },
	}
	p.handles[h] = h
	return h
}

func (p *pair) kill(s contract.Store) {
	p.mu.Lock()
	h := p.handles[s]
	delete(p.handles, s)
	p.mu.Unlock()
	h.kill()
}

func (p *pair) reopen(t contracttest.TB) {
	t.Helper()
	p.mu.Lock()
	old := p.handles
	p.handles = make(map[contract.Store]*handle)
	p.mu.Unlock()
	for _, h := range old {
		h.kill()
	}
	p.close(t)
	p.open(t)
}

func TestContract_forwarded(t *testing.T) {
	contracttest.Run(t, func(t *testing.T) *contracttest.Harness {
		t.Helper()
		p := newPair(t)
		return &contracttest.Harness{
			Name:       "raftkv, two nodes",
			Open:       func(contracttest.TB) contract.Store { return p.handle() },
			Kill:       func(_ contracttest.TB, s contract.Store) { p.kill(s) },
			Reopen:     p.reopen,
			Advance:    func(_ contracttest.TB, d time.Duration) { p.offset.Add(int64(d)) },
			Guarantees: raftkv.Guarantees(),
		}
	})
}
