package cluster

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

const (
	// settlePause is between two looks at the other members while this node does
	// not have its place in the cluster; settledPause once it has.
	settlePause  = 200 * time.Millisecond
	settledPause = time.Second
	// settleLine is how often it says what it waits for, when that stays the same.
	settleLine = 5 * time.Second
	// forgottenAfter is how long a member is without a leader before it asks whether it
	// still is one. An election takes less.
	forgottenAfter = 2 * time.Second
)

// founding is a first configuration that the members agree on. It is on the disk
// of each before it is in the log of any.
type founding struct {
	ClusterID string          `json:"cluster_id"`
	Servers   []foundingVoter `json:"servers"`
}

type foundingVoter struct {
	ID      string `json:"id"` // server id
	Address string `json:"address"`
}

func (f *founding) configuration() raft.Configuration {
	var c raft.Configuration
	for _, s := range f.Servers {
		c.Servers = append(c.Servers, raft.Server{
			Suffrage: raft.Voter, ID: raft.ServerID(s.ID), Address: raft.ServerAddress(s.Address),
		})
	}
	return c
}

// names tells whether f has exactly these servers.
func (f *founding) names(servers []foundingVoter) bool {
	return slices.Equal(f.Servers, servers)
}

// settler brings a node to its place in the cluster: it founds one with the other
// members, has itself admitted to theirs, or waits and says what for.
type settler struct {
	n *Node

	mu      sync.Mutex
	waiting string // what for; empty when the node has its place
	saidAt  time.Time

	ledAt time.Time // when it last knew of a leader; of run only

	stop    context.CancelFunc
	stopped chan struct{}
}

func newSettler(n *Node) *settler {
	return &settler{n: n, stopped: make(chan struct{})}
}

func (s *settler) start() {
	ctx, cancel := context.WithCancel(context.Background())
	s.stop = cancel
	go func() {
		defer close(s.stopped)
		s.run(ctx)
	}()
}

func (s *settler) close() error {
	s.stop()
	<-s.stopped
	return nil
}

func (s *settler) run(ctx context.Context) {
	for {
		s.say(s.step(ctx))
		pause := settledPause
		if s.waitsFor() != "" {
			pause = settlePause
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return
		}
	}
}

func (s *settler) waitsFor() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.waiting
}

// say records what the node waits for and logs it, each few seconds.
func (s *settler) say(waiting string) {
	s.mu.Lock()
	changed := waiting != s.waiting
	due := changed || time.Since(s.saidAt) >= settleLine
	s.waiting = waiting
	if due {
		s.saidAt = time.Now()
	}
	s.mu.Unlock()
	if due && waiting != "" {
		s.n.log.Info("node waits", "for", waiting)
	}
}

// step does what can be done now and returns what the node waits for.
func (s *settler) step(ctx context.Context) string {
	n := s.n
	id := n.storage.id.get()
	if id.member() {
		if s.placed(id) {
			n.reconcile(ctx)
			return s.forgotten(ctx, id)
		}
		return s.join(ctx, id, n.survey(ctx, n.others()))
	}
	others := n.others()
	reports := n.survey(ctx, others)
	for _, node := range others {
		r := reports[node]
		if r.err != nil || !r.Member {
			continue
		}
		if id.Pending != nil && r.ClusterID == id.Pending.ClusterID {
			// The founder has seen everybody agree and has begun.
			if err := s.begin(); err != nil {
				return "the first configuration can be written: " + err.Error()
			}
			return ""
		}
		return s.join(ctx, id, reports)
	}
	return s.found(ctx, others, reports)
}

// placed tells whether raft's configuration has this node as it should.
func (s *settler) placed(id *identity) bool {
	for _, server := range s.n.raft.GetConfiguration().Configuration().Servers {
		if server.ID == s.n.raftID {
			return server.Suffrage == raft.Voter || !id.Voter
		}
	}
	return false
}

// found has the member with the smallest id found the cluster once every member
// answers and is empty.
func (s *settler) found(ctx context.Context, others []string, reports map[string]report) string {
	n := s.n
	ids := slices.Sorted(maps.Keys(n.cfg.Members))
	var missing []string
	voters := []foundingVoter{{ID: string(n.raftID), Address: n.cfg.Members[n.cfg.NodeID]}}
	for _, node := range others {
		r := reports[node]
		switch {
		case r.err != nil:
			missing = append(missing, fmt.Sprintf("%s (%v)", node, r.err))
		case !slices.Equal(r.Members, ids):
			missing = append(missing, fmt.Sprintf("%s to have the same cluster.members: it has %s, this node %s",
				node, strings.Join(r.Members, ", "), strings.Join(ids, ", ")))
		default:
			voters = append(voters, foundingVoter{ID: r.ServerID, Address: n.cfg.Members[node]})
		}
	}
	if len(missing) > 0 {
		return "the first start needs every member; missing: " + strings.Join(missing, "; ")
	}
	if n.cfg.NodeID != ids[0] {
		return "node " + ids[0] + " founds the cluster"
	}
	err := n.storage.id.change(func(id *identity) error {
		if id.Pending == nil || !id.Pending.names(voters) {
			id.Pending = &founding{ClusterID: rand.Text(), Servers: voters}
		}
		return nil
	})
	if err != nil {
		return "the identity can be written: " + err.Error()
	}
	for _, node := range others {
		if err := n.tellPeer(ctx, node, pathFound, n.storage.id.get().Pending); err != nil {
			return fmt.Sprintf("node %s agrees to found the cluster: %v", node, err)
		}
	}
	if err := s.begin(); err != nil {
		return "the first configuration can be written: " + err.Error()
	}
	n.log.Info("cluster founded", "cluster", n.storage.id.get().ClusterID, "members", strings.Join(ids, ", "))
	return ""
}

// begin writes the agreed configuration into the log. Until the identity says so,
// too, nothing leaves this node and the next start begins with an empty log.
func (s *settler) begin() error {
	n := s.n
	if !n.calls.enter() {
		return ErrClosed
	}
	defer n.calls.leave()
	return n.storage.id.change(func(id *identity) error {
		if id.Pending == nil || id.member() {
			return errors.New("somebody else has decided otherwise meanwhile")
		}
		err := n.raft.BootstrapCluster(id.Pending.configuration()).Error()
		if errors.Is(err, raft.ErrCantBootstrap) && n.raft.LastIndex() > 0 {
			err = nil // written before, and then the identity could not be
		}
		if err != nil {
			return err
		}
		id.ClusterID, id.Founded, id.Voter, id.Pending = id.Pending.ClusterID, true, true, nil
		return nil
	})
}

// agree takes a founder's configuration, unless this node has a cluster already.
// A later one replaces an earlier one: its founder has seen that nobody began.
func (n *Node) agree(f *founding) error {
	if !slices.ContainsFunc(f.Servers, func(v foundingVoter) bool { return v.ID == string(n.raftID) }) {
		return fmt.Errorf("%s is not in the configuration: this node's folder was lost since it was asked", n.raftID)
	}
	return n.storage.id.change(func(id *identity) error {
		if id.member() {
			return fmt.Errorf("node %s belongs to cluster %s", id.NodeID, id.ClusterID)
		}
		id.Pending = f
		return nil
	})
}

// join asks the leader of the others' cluster for this node's place in it.
func (s *settler) join(ctx context.Context, id *identity, reports map[string]report) string {
	leader, have, last := s.leading(id, reports)
	switch {
	case leader == "" && have == "":
		return "a member of the cluster answers: " + missing(reports)
	case leader == "":
		return fmt.Sprintf("a leader: node %s belongs to a cluster with entries up to %d, but no majority of its members is there. "+
			"If they are down, start them. If a majority lost its data, no node may go on by itself: restore a backup into a new cluster, "+
			"see the operations guide", have, last)
	}
	answer, err := s.ask(ctx, id, leader)
	if err != nil {
		return fmt.Sprintf("its place in the cluster: node %s, which leads, says: %v", leader, err)
	}
	return "its place in the cluster: node " + leader + " makes it " + answer.Next
}

// leading returns the leader of the others' cluster, as far as anybody knows, a node
// that belongs to it, and how far the log is of the one that has most.
func (s *settler) leading(id *identity, reports map[string]report) (leader, have string, last uint64) {
	leader, _ = s.n.Leader()
	for _, node := range slices.Sorted(maps.Keys(reports)) {
		r := reports[node]
		if r.err != nil || !r.Member || id.member() && r.ClusterID != id.ClusterID {
			continue
		}
		if r.Leader != "" && r.Leader != s.n.cfg.NodeID {
			leader = r.Leader
		}
		have, last = node, max(last, r.LastIndex)
	}
	return leader, have, last
}

// ask asks the leader for this node's place.
func (s *settler) ask(ctx context.Context, id *identity, leader string) (admission, error) {
	n := s.n
	var answer admission
	err := n.askPeer(ctx, leader, pathAdmit, &admitRequest{
		NodeID: n.cfg.NodeID, ServerID: string(n.raftID), Address: n.address, Voter: id.Voter,
	}, &answer)
	return answer, err
}

// forgotten has a node that nobody leads ask whether it was removed: raft tells a
// member so once, and not again if that message is lost.
func (s *settler) forgotten(ctx context.Context, id *identity) string {
	n := s.n
	now := time.Now()
	if leader, _ := n.Leader(); leader != "" || s.ledAt.IsZero() {
		s.ledAt = now
	}
	if now.Sub(s.ledAt) < forgottenAfter {
		return ""
	}
	leader, _, _ := s.leading(id, n.survey(ctx, n.others()))
	if leader == "" {
		return ""
	}
	if _, err := s.ask(ctx, id, leader); errors.Is(err, ErrNoMember) {
		return fmt.Sprintf("its place in the cluster: node %s, which leads, says: %v", leader, err)
	}
	return "" // it is a member that hears of nobody
}

func missing(reports map[string]report) string {
	var lines []string
	for _, node := range slices.Sorted(maps.Keys(reports)) {
		if err := reports[node].err; err != nil {
			lines = append(lines, fmt.Sprintf("%s (%v)", node, err))
		}
	}
	return strings.Join(lines, "; ")
}

// others returns the ids of the other nodes that are known, in order.
func (n *Node) others() []string {
	known := make(map[string]bool)
	for id := range n.cfg.Members {
		known[id] = true
	}
	for _, s := range n.raft.GetConfiguration().Configuration().Servers {
		known[nodeOf(string(s.ID))] = true
	}
	delete(known, n.cfg.NodeID)
	return slices.Sorted(maps.Keys(known))
}
