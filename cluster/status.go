package cluster

import (
	"strings"
	"time"

	"github.com/hashicorp/raft"
)

const roleLeader = "leader"

// Status is what a node knows of itself and its cluster. The values are read one
// after the other while the node works, so they need not fit together.
type Status struct {
	NodeID string
	// ClusterID is empty while the node belongs to no cluster.
	ClusterID string
	// Waiting is what the node waits for on its way into the cluster; empty when it
	// has its place.
	Waiting string
	// Address is where peers reach the node; the node id when there is no peer
	// port.
	Address string
	// Role is leader, follower, candidate or shutdown.
	Role string
	// Term is the newest term this node has heard of.
	Term uint64
	// LeaderID and LeaderAddress are empty when no leader is known.
	LeaderID      string
	LeaderAddress string
	// LastContact is when a follower last heard from the leader; zero for never.
	LastContact time.Time

	// LastIndex is the newest entry in the log, CommitIndex the newest that a
	// majority has, AppliedIndex the newest that the FSM has seen.
	LastIndex    uint64
	CommitIndex  uint64
	AppliedIndex uint64

	// SnapshotIndex and SnapshotTime are of the newest snapshot, zero for none.
	SnapshotIndex uint64
	SnapshotTime  time.Time

	// LogError is why the log could not be written when that was last tried; empty
	// when it could.
	LogError string
	// LogBytes is how much of the disk the log has, 0 when it cannot be asked.
	LogBytes int64
}

// Status returns what the node knows now. It costs one look at the log's folder and
// waits for nothing. It also answers after Close.
func (n *Node) Status() Status {
	s := Status{
		NodeID:       n.cfg.NodeID,
		Waiting:      n.settler.waitsFor(),
		Address:      n.address,
		Role:         strings.ToLower(n.raft.State().String()),
		Term:         n.raft.CurrentTerm(),
		LastContact:  n.raft.LastContact(),
		LastIndex:    n.raft.LastIndex(),
		CommitIndex:  n.raft.CommitIndex(),
		AppliedIndex: n.machine.applied.Load(),
	}
	if id := n.storage.id.get(); id.member() {
		s.ClusterID = id.ClusterID
	}
	_, leader := n.raft.LeaderWithID()
	s.LeaderID = nodeOf(string(leader))
	s.LeaderAddress = n.addressOf(leader)
	s.SnapshotIndex, s.SnapshotTime = n.storage.snapshots.latest()
	s.LogBytes = n.storage.log.size()
	if err := n.storage.log.trouble(); err != nil {
		s.LogError = err.Error()
	}
	return s
}

// addressOf returns where a server is reached according to raft's configuration.
func (n *Node) addressOf(id raft.ServerID) string {
	for _, s := range n.raft.GetConfiguration().Configuration().Servers {
		if s.ID == id {
			return string(s.Address)
		}
	}
	return ""
}

// ListenAddress is where the peer port listens, empty when there is none.
func (n *Node) ListenAddress() string {
	if n.port == nil {
		return ""
	}
	return n.port.listener.Addr().String()
}
