package cluster

import (
	"testing"

	"github.com/hashicorp/raft"
)

// TestPlaceInLine: followers that can be elected miss a leader one after the other.
func TestPlaceInLine(t *testing.T) {
	var c raft.Configuration
	for _, s := range []struct {
		id       raft.ServerID
		suffrage raft.ServerSuffrage
	}{
		// Not in order: where a node stands in the configuration is when it joined.
		{"n3@c", raft.Voter}, {"n1@a", raft.Voter}, {"n4@d", raft.Nonvoter}, {"n2@b", raft.Voter},
	} {
		c.Servers = append(c.Servers, raft.Server{ID: s.id, Suffrage: s.suffrage})
	}
	for _, test := range []struct {
		leader, id raft.ServerID
		want       int
	}{
		{"n1@a", "n2@b", 0},
		{"n1@a", "n3@c", 1},
		{"n2@b", "n1@a", 0},
		{"n2@b", "n3@c", 1},
		{"n3@c", "n2@b", 1},
		{"n1@a", "n1@a", -1}, // the leader itself
		{"n1@a", "n4@d", -1}, // no voter
		{"n1@a", "n5@e", -1}, // no member
		{"n0@z", "n3@c", 2},  // a leader that was removed
	} {
		if got := placeInLine(c, test.leader, test.id, nil); got != test.want {
			t.Errorf("place of %s under %s is %d, want %d", test.id, test.leader, got, test.want)
		}
	}
}

// TestPlaceInLine_logs: whoever comes later is elected by those before, so it has no
// less of the log.
func TestPlaceInLine_logs(t *testing.T) {
	var c raft.Configuration
	for _, id := range []raft.ServerID{"n1@a", "n2@b", "n3@c", "n4@d", "n5@e"} {
		c.Servers = append(c.Servers, raft.Server{ID: id, Suffrage: raft.Voter})
	}
	logs := map[raft.ServerID]uint64{"n2@b": 20, "n3@c": 10, "n5@e": 10} // n4 does not answer
	for id, want := range map[raft.ServerID]int{"n4@d": 0, "n3@c": 1, "n5@e": 2, "n2@b": 3} {
		if got := placeInLine(c, "n1@a", id, logs); got != want {
			t.Errorf("place of %s is %d, want %d", id, got, want)
		}
	}
}
