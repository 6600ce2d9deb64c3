package cluster

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/raft"
)

// TestBound: a message has the entries that can be sent in its time, one at least,
// and says of nothing behind them that it is committed.
func TestBound(t *testing.T) {
	const kib = 1 << 10
	type message struct{ Prev, Entries, Commit uint64 }
	for _, test := range []struct {
		entries, size int
		in, want      message
	}{
		{0, 0, message{Prev: 9, Commit: 9}, message{9, 0, 9}},
		{0, 0, message{}, message{}}, // a heartbeat
		{0, 0, message{Prev: 9, Commit: 12}, message{9, 0, 9}},
		{512, kib, message{Prev: 9, Commit: 500}, message{9, 512, 500}},
		{512, 64 * kib, message{Prev: 9, Commit: 9}, message{9, 16, 9}},
		{512, 64 * kib, message{Prev: 9, Commit: 500}, message{9, 16, 25}},
		{3, 4 * maxEntriesBytes, message{Prev: 9, Commit: 12}, message{9, 1, 10}},
	} {
		t.Run(fmt.Sprintf("%d of %d bytes", test.entries, test.size), func(t *testing.T) {
			q := &raft.AppendEntriesRequest{PrevLogEntry: test.in.Prev, LeaderCommitIndex: test.in.Commit}
			for i := range test.entries {
				q.Entries = append(q.Entries, &raft.Log{Index: test.in.Prev + 1 + uint64(i), Data: make([]byte, test.size/2), Extensions: make([]byte, test.size/2)})
			}
			bound(q)
			got := message{q.PrevLogEntry, uint64(len(q.Entries)), q.LeaderCommitIndex}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
