package cluster

import "testing"

// TestRaftConfig_trailing: a follower can have the entries of a deposed leader above
// the log of the next one, as many as that had in flight. It must not be sent a
// snapshot below them, which raft then sends again for ever.
func TestRaftConfig_trailing(t *testing.T) {
	c := raftConfig(Config{Snapshot: SnapshotConfig{Entries: 1}}, "n1@a", nil, nil)
	if c.TrailingLogs < 2*maxInFlight {
		t.Errorf("%d entries stay in the log, want more than the %d in flight by far", c.TrailingLogs, maxInFlight)
	}
}
