package cluster

import (
	"math"
	"time"

	"github.com/hashicorp/raft"
)

// The fail-over budget is in DESIGN.md.
const (
	heartbeatTimeout = 400 * time.Millisecond
	electionTimeout  = heartbeatTimeout
	// leaseTimeout is after how long without a majority a leader steps down. It
	// is shorter than heartbeatTimeout, so that the old leader has stopped before
	// the new one is elected.
	leaseTimeout = 350 * time.Millisecond
	// lookShorter is what the timeouts are shortened by to make raft look at its
	// timer, see lookNow.
	lookShorter = time.Millisecond

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
	c.HeartbeatTimeout = heartbeatTimeout + lookShorter
	c.ElectionTimeout = electionTimeout + lookShorter
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

// lookNow makes raft look now how long it has not heard of a leader, instead of at
// a random time of up to two heartbeat timeouts after it last looked, and stand for
// election if that is the timeout. raft looks when the timeout is made shorter while
// it runs, so it is made longer and shorter. A node whose vote alone decides is
// elected by that at once; starting it with short timeouts would have the same
// effect but could not be undone when the cluster grows, because the lease timeout
// cannot change.
//
// If a later raft no longer does so, it looks after 0.4 to 0.8 s.
func lookNow(r *raft.Raft) error {
	reloadable := r.ReloadableConfig()
	for _, more := range []time.Duration{lookShorter, 0} {
		reloadable.HeartbeatTimeout = heartbeatTimeout + more
		reloadable.ElectionTimeout = electionTimeout + more
		if err := r.ReloadConfig(reloadable); err != nil {
			return err
		}
	}
	return nil
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
