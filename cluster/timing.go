package cluster

import (
	"math"
	"time"

	"github.com/hashicorp/raft"
)

// The fail-over budget is in DESIGN.md: a node that fell silent was followed by
// another after 0.87 s, the mean of several runs of BenchmarkFailover.
const (
	heartbeatTimeout = 400 * time.Millisecond
	electionTimeout  = heartbeatTimeout
	// leaseTimeout is after how long without a majority a leader steps down. It
	// is shorter than heartbeatTimeout, so that the old leader has stopped before
	// the new one is elected.
	leaseTimeout = 250 * time.Millisecond
	// electNow is what the timeouts are shortened by to make a node stand for
	// election at once, see electAtOnce.
	electNow = time.Millisecond

	// maxBatch is how many commands share one fsync.
	maxBatch = 512

	// never is an interval and a threshold for what this package does itself.
	never = 24 * time.Hour
)

// raftConfig returns how raft is run. Leadership changes go to notify, which
// must be read until raft has stopped.
func raftConfig(cfg Config, server raft.ServerID, logger *raftLogger, notify chan<- bool) *raft.Config {
	c := raft.DefaultConfig()
	c.LocalID = server
	c.Logger = logger
	c.NotifyCh = notify
	c.HeartbeatTimeout = heartbeatTimeout + electNow
	c.ElectionTimeout = electionTimeout + electNow
	c.LeaderLeaseTimeout = leaseTimeout
	c.MaxAppendEntries = maxBatch
	// Without it each command that waits for the previous fsync is handed over by
	// a goroutine switch of its own.
	c.BatchApplyCh = true
	// A removed node that stops itself looks like a crash.
	c.ShutdownOnRemove = false
	c.SnapshotInterval = never
	c.SnapshotThreshold = math.MaxUint64
	c.TrailingLogs = uint64(max(cfg.Snapshot.Entries, minTrailing))
	c.NoLegacyTelemetry = true
	return c
}

// electAtOnce makes a node whose vote alone decides stand for election now
// instead of after a random time of up to two heartbeat timeouts. raft looks at
// its timer at once when the timeout is made shorter while it runs; starting
// with short timeouts would have the same effect but could not be undone when
// the cluster grows, because the lease timeout cannot change.
//
// If a later raft no longer does so, the node leads after 0.4 to 0.8 s.
func electAtOnce(r *raft.Raft) error {
	reloadable := r.ReloadableConfig()
	reloadable.HeartbeatTimeout = heartbeatTimeout
	reloadable.ElectionTimeout = electionTimeout
	return r.ReloadConfig(reloadable)
}

// soleVoter tells whether no other node can be elected: id has the only vote.
func soleVoter(r *raft.Raft, id raft.ServerID) bool {
	voters := 0
	mine := false
	for _, s := range r.GetConfiguration().Configuration().Servers {
		if s.Suffrage == raft.Voter {
			voters++
			mine = mine || s.ID == id
		}
	}
	return voters == 1 && mine
}
