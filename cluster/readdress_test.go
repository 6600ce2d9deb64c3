package cluster

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
)

// TestReaddressing: a member whose address changes is sent no entries, and raft is not
// told that it has those which were on their way.
func TestReaddressing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const id, before, after raft.ServerID = "n1", "a.test:1", "b.test:1"
		r := newReaddressing()
		// sent returns how many of two entries a member gets at an address, and how many
		// raft believes that it has.
		sent := func(member, address raft.ServerID, during func() error) (gets, told int) {
			q := &raft.AppendEntriesRequest{PrevLogEntry: 9, LeaderCommitIndex: 11, Entries: []*raft.Log{{Index: 10}, {Index: 11}}}
			err := r.send(member, raft.ServerAddress(address), q, func() error {
				if gets = len(q.Entries); q.LeaderCommitIndex != q.PrevLogEntry+uint64(gets) {
					t.Errorf("commit index %d beyond the %d entries after %d", q.LeaderCommitIndex, gets, q.PrevLogEntry)
				}
				return during()
			})
			if err != nil {
				return gets, 0
			}
			return gets, len(q.Entries)
		}
		check := func(what string, member, address raft.ServerID, during func() error, wantGets, wantTold int) {
			t.Helper()
			if gets, told := sent(member, address, during); gets != wantGets || told != wantTold {
				t.Errorf("%s: the member gets %d entries and raft is told of %d, want %d and %d", what, gets, told, wantGets, wantTold)
			}
		}
		nothing := func() error { return nil }
		begin := func() { r.begin(t.Context(), id, raft.ServerAddress(after)) }

		begin() // nothing was sent yet: there is nothing to wait for
		check("a change has begun", id, before, nothing, 0, 0)
		check("of another member", "n2", before, nothing, 2, 2)
		check("the change is made", id, after, nothing, 2, 2)

		r = newReaddressing()
		check("a change begins meanwhile", id, before, func() error { begin(); return nil }, 2, 0)
		r.abort(id, raft.ServerAddress(before)) // another one
		check("the change goes on", id, before, nothing, 0, 0)
		r.abort(id, raft.ServerAddress(after))
		check("it was refused", id, before, nothing, 2, 2)

		r = newReaddressing()
		begin()
		time.Sleep(readdressLimit + time.Nanosecond)
		check("it was never made", id, before, nothing, 2, 2)
		check("the message is lost", id, before, func() error { return errors.New("lost") }, 2, 0)
	})
}

// TestReaddressing_begin: a change waits until raft does not look at the member, unless
// raft does not come any more.
func TestReaddressing_begin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const id, before, after = "n1", "a.test:1", "b.test:1"
		r := newReaddressing()
		send := func(q *raft.AppendEntriesRequest) {
			if err := r.send(id, before, q, func() error { return nil }); err != nil {
				t.Error(err)
			}
		}
		var began sync.WaitGroup
		begin := func(ctx context.Context) (begun func() bool) {
			done := make(chan struct{})
			began.Go(func() { r.begin(ctx, id, after); close(done) })
			return func() bool {
				synctest.Wait()
				select {
				case <-done:
					return true
				default:
					return false
				}
			}
		}
		heartbeat := &raft.AppendEntriesRequest{Term: 1}
		entry := func() *raft.AppendEntriesRequest {
			return &raft.AppendEntriesRequest{PrevLogEntry: 1, Entries: []*raft.Log{{Index: 2}}}
		}
		send(entry())
		begun := begin(t.Context())
		if send(heartbeat); begun() {
			t.Error("begun although raft may look")
		}
		if r.came(id, before); !begun() {
			t.Error("not begun although raft has sent the next message")
		}
		r.abort(id, after)

		send(entry())
		ctx, cancel := context.WithCancel(t.Context())
		begun = begin(ctx)
		if cancel(); !begun() {
			t.Error("not begun although the context has ended")
		}
		r.abort(id, after)

		begun = begin(t.Context())
		time.Sleep(rpcTimeout)
		if !begun() {
			t.Error("not begun although raft does not come")
		}
		began.Wait()
	})
}
