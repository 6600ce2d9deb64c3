package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/raft"
	"go.uber.org/goleak"
)

// peer is a bare raft node, so that a Node can be seen to lose its majority.
type peer struct {
	id   raft.ServerID
	raft *raft.Raft
	fsm  *ledger
	log  *fillingLog
	port *peerPort
	http *calls
}

// fillingLog is a log that is full when the test says so. Its node still hears the
// leader and answers it, and takes no entry.
type fillingLog struct {
	raft.LogStore

	full atomic.Bool
}

func (l *fillingLog) StoreLogs(entries []*raft.Log) error {
	if l.full.Load() {
		return errFull
	}
	return l.LogStore.StoreLogs(entries)
}

// startPeer starts a node that takes itself for a member of the cluster of n.
func startPeer(t *testing.T, n *Node, id string) *peer {
	t.Helper()
	cfg, err := Config{NodeID: id, DataDir: "unused", Listen: "127.0.0.1:0", Logger: testLogger(t)}.complete()
	if err != nil {
		t.Fatal(err)
	}
	book := newAddresses(map[string]string{n.cfg.NodeID: n.address})
	port, err := listenPeers(testContext(t), cfg, book, func() membership {
		return membership{serverID: id, clusterID: n.Status().ClusterID, member: true}
	})
	if err != nil {
		t.Fatal(err)
	}
	store := raft.NewInmemStore()
	p := &peer{id: raft.ServerID(id), fsm: new(ledger), log: &fillingLog{LogStore: store}, port: port}
	logger := newRaftLogger(cfg.Logger)
	conf := raftConfig(cfg, p.id, logger, make(chan bool, 1000))
	// On a busy machine n takes longer than the timeouts to write what the peer sends
	// it. The peer gives nobody up: who leads is for the test to say.
	conf.HeartbeatTimeout, conf.ElectionTimeout, conf.LeaderLeaseTimeout = patience, patience, patience
	p.raft, err = raft.NewRaft(conf, p.fsm, p.log, store, raft.NewInmemSnapshotStore(), newTransport(p.id, port, newReaddressing(), func() error { return nil }, logger))
	if err != nil {
		t.Fatal(err)
	}
	p.http = newCalls(port, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		answerJSON(w, termAnswer{ServerID: id, Term: p.raft.CurrentTerm()})
	}), cfg.Logger)
	t.Cleanup(func() { p.stop(t) })
	return p
}

func (p *peer) stop(t *testing.T) {
	t.Helper()
	if err := p.http.close(); err != nil {
		t.Errorf("stop peer %s: %v", p.id, err)
	}
	if err := p.raft.Shutdown().Error(); err != nil {
		t.Errorf("stop peer %s: %v", p.id, err)
	}
}

func join(t *testing.T, n *Node, peers ...*peer) {
	t.Helper()
	for _, p := range peers {
		if err := n.raft.AddVoter(p.id, raft.ServerAddress(p.port.address), 0, patience).Error(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestNode_majorityLost: without its peers a leader confirms nothing, steps
// down, and says of a command that it may have been applied.
func TestNode_majorityLost(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	cfg := testConfig(t.TempDir())
	cfg.Listen = "127.0.0.1:0"
	cfg.Logger = testLogger(t)
	n := lead(t, cfg, new(ledger))
	p2, p3 := startPeer(t, n, "n2"), startPeer(t, n, "n3")
	join(t, n, p2, p3)
	propose(t, n, "a")
	if err := n.Confirm(testContext(t)); err != nil {
		t.Errorf("Confirm with two peers = %v", err)
	}
	term, changed := n.Leadership()

	// The command is with raft before the peers are gone: a leader that has noticed
	// that they are would refuse it.
	p2.log.full.Store(true)
	p3.log.full.Store(true)
	last := n.raft.LastIndex()
	proposed := make(chan error, 1)
	go func() {
		_, err := n.Propose(testContext(t), []byte("b"))
		proposed <- err
	}()
	eventually(t, "raft has the command", func() bool { return n.raft.LastIndex() > last })
	p2.stop(t)
	p3.stop(t)
	confirmed := make(chan error, 1)
	go func() { confirmed <- n.Confirm(testContext(t)) }()
	if err := <-proposed; !errors.Is(err, raft.ErrLeadershipLost) {
		t.Errorf("Propose without a majority = %v, want %v", err, raft.ErrLeadershipLost)
	}
	if err := <-confirmed; !errors.Is(err, raft.ErrLeadershipLost) && !errors.Is(err, raft.ErrNotLeader) {
		t.Errorf("Confirm without a majority = %v, want %v or %v", err, raft.ErrLeadershipLost, raft.ErrNotLeader)
	}
	select {
	case <-changed:
	case <-time.After(patience):
		t.Errorf("the end of term %d is not told", term)
	}
	if got, _ := n.Leadership(); got != 0 {
		t.Errorf("term without a majority = %d, want 0", got)
	}
	if _, err := n.Propose(testContext(t), []byte("c")); !errors.Is(err, raft.ErrNotLeader) {
		t.Errorf("Propose of a deposed leader = %v, want %v", err, raft.ErrNotLeader)
	}
	if err := n.Confirm(testContext(t)); !errors.Is(err, raft.ErrNotLeader) {
		t.Errorf("Confirm of a deposed leader = %v, want %v", err, raft.ErrNotLeader)
	}
	stop(t, n)
}

// TestNode_leadsAgain: leadership goes to a peer and comes back. What was
// committed meanwhile is in the FSM when the new term is told.
func TestNode_leadsAgain(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	cfg := testConfig(t.TempDir())
	cfg.Listen = "127.0.0.1:0"
	cfg.Logger = testLogger(t)
	fsm := new(ledger)
	n := lead(t, cfg, fsm)
	p := startPeer(t, n, "n2")
	join(t, n, p)
	propose(t, n, "a")
	before, changed := n.Leadership()
	if err := n.raft.LeadershipTransferToServer(p.id, raft.ServerAddress(p.port.address)).Error(); err != nil {
		t.Fatal(err)
	}
	<-changed
	if term, _ := n.Leadership(); term != 0 {
		t.Errorf("term after handing leadership over = %d, want 0", term)
	}
	eventually(t, "the peer leads", func() bool { return p.raft.State() == raft.Leader })
	eventually(t, "the node follows it", func() bool { return n.Status().Role == "follower" })
	for i := range 10 {
		if err := p.raft.Apply(fmt.Append(nil, i), patience).Error(); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.raft.LeadershipTransferToServer(n.raftID, raft.ServerAddress(n.address)).Error(); err != nil {
		t.Fatal(err)
	}
	after := waitLeader(t, n)
	if after <= before {
		t.Errorf("term = %d, then %d: want it to rise", before, after)
	}
	if diff := cmp.Diff([]string{"a", "0", "1", "2", "3", "4", "5", "6", "7", "8", "9"}, fsm.content()); diff != "" {
		t.Errorf("applied when the new term is told (-want +got):\n%s", diff)
	}
	if err := n.Confirm(testContext(t)); err != nil {
		t.Errorf("Confirm in the new term = %v", err)
	}
	stop(t, n)
	p.stop(t)
}

// TestPeerPort_Close: connections that a peer leaves open end with the node.
func TestPeerPort_Close(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	cfg := testConfig(t.TempDir())
	cfg.Listen = "127.0.0.1:0"
	n := lead(t, cfg, new(ledger))
	conn, err := new(net.Dialer).DialContext(context.Background(), "tcp", n.address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	stop(t, n)
	if err := conn.SetReadDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Read(make([]byte, 1)); err == nil || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("read from a stopped node = %v, want the connection's end", err)
	}
	var timeout net.Error
	if _, err := conn.Read(make([]byte, 1)); errors.As(err, &timeout) && timeout.Timeout() {
		t.Error("a stopped node keeps the connection open")
	}
}
