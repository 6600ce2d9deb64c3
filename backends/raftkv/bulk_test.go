package raftkv

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"testing"
	"time"

	"leased/contract"
)

// bulkOf is a renewal of leases, as a store proposes it.
func bulkOf(keep contract.Retention, requestID string, leases ...*lease) *renewCmd {
	l := leases[0]
	c := &renewCmd{Namespace: l.ns, Owner: l.owner, Instance: l.instance, RequestID: requestID, Keep: retentionOf(keep)}
	for _, l := range leases {
		r := contract.RenewRequest{
			Namespace: l.ns, Owner: l.owner, Instance: l.instance, RequestID: requestID, LeaseID: l.leaseID(), Token: contract.Token(l.token),
		}
		c.Items = append(c.Items, itemOf(&r))
	}
	return c
}

func heldBy(d *driver, owner string, n int) (leases []*lease) {
	for i := range n {
		key := fmt.Sprint(owner, "-", i)
		r := request(key, owner, key)
		r.TTL = time.Hour
		leases = append(leases, d.acquire(r).lease)
	}
	return leases
}

// TestFSM_BulkRepeated: each lease of a bulk renewal has an answer of its own, whether the
// request id comes back for all of them, for some, in another order or for one.
func TestFSM_BulkRepeated(t *testing.T) {
	t.Parallel()
	d := newDriver(t)
	leases := heldBy(d, "a", 12)
	d.now += int64(time.Second)
	first := d.do(kindRenew, bulkOf(d.keep, "r", leases[:8]...)).([]reply)
	d.now += int64(time.Second)
	d.do(kindRenew, bulkOf(d.keep, "later", leases...))
	renew := func(what string, c *renewCmd, of ...int) {
		t.Helper()
		for i, r := range d.do(kindRenew, c).([]reply) {
			switch want := of[i]; {
			case r.outcome != contract.OutcomeRenewed || r.replayed != (want >= 0):
				t.Errorf("%s: lease %d is %v, replayed %t", what, i, r.outcome, r.replayed)
			case want >= 0 && (r.first == nil || *r.first != first[want].lease.life):
				t.Errorf("%s: lease %d is answered %+v, want as at first, %+v", what, i, r.first, first[want].lease.life)
			}
		}
		checkInvariants(t, d.fsm.state)
	}
	renew("all", bulkOf(d.keep, "r", leases[:8]...), 0, 1, 2, 3, 4, 5, 6, 7)
	backwards := slices.Clone(leases[2:6])
	slices.Reverse(backwards)
	renew("some", bulkOf(d.keep, "r", backwards...), 5, 4, 3, 2)
	renew("one", bulkOf(d.keep, "r", leases[7]), 7)
	renew("some, and one that is new", bulkOf(d.keep, "r", leases[3], leases[9]), 3, -1)
	renew("another id", bulkOf(d.keep, "other", leases[:2]...), -1, -1)

	other := bulkOf(d.keep, "r", leases[:2]...)
	other.Items[1].TTL, other.Items[1].Print = int64(time.Minute), contract.Fingerprint{1}
	got := d.do(kindRenew, other).([]reply)
	if got[0].outcome != contract.OutcomeRenewed || got[1].outcome != contract.OutcomeRequestIDReused {
		t.Errorf("one item is another: %v and %v, want renewed and request id reused", got[0].outcome, got[1].outcome)
	}
	twice := d.do(kindRenew, bulkOf(d.keep, "twice", leases[0], leases[1], leases[0])).([]reply)
	if twice[0].replayed || !twice[2].replayed || twice[2].first == nil || *twice[2].first != twice[0].lease.life {
		t.Errorf("a lease that is named twice is answered %+v, then %+v", twice[0], twice[2])
	}
	checkInvariants(t, d.fsm.state)
}

// TestFSM_BulkRefused: what is kept of a bulk renewal is as much as was renewed, however
// many leases it named that are over.
func TestFSM_BulkRefused(t *testing.T) {
	t.Parallel()
	d := newDriver(t)
	leases := heldBy(d, "a", 100)
	for _, l := range leases[1:] {
		d.release(l)
	}
	d.do(kindRenew, bulkOf(d.keep, "r", leases...))
	if got := d.fsm.state.bulked; got != 1 {
		t.Errorf("%d answers are kept, want 1", got)
	}
	checkInvariants(t, d.fsm.state)
}

// TestFSM_BulkKept: a node that keeps the answers to bulk renewals together, and one that
// read them from a snapshot, or is of a release that kept each by itself, forget the same
// ones at every sweep.
func TestFSM_BulkKept(t *testing.T) {
	t.Parallel()
	d := newDriver(t)
	d.keep.Idempotency = time.Minute
	leases := heldBy(d, "a", 60)
	d.now += int64(time.Second)
	for i := range 2 * mostTogether { // with one request id, at one instant
		d.do(kindRenew, bulkOf(d.keep, "r", leases[3*i:3*i+3]...))
	}
	if got := d.fsm.state.bulks.Len(); got != mostTogether {
		t.Errorf("%d renewals with one request id keep their answers together, want %d", got, mostTogether)
	}
	d.now++
	d.do(kindRenew, bulkOf(d.keep, "s", leases...))
	d.do(kindRenew, bulkOf(d.keep, "t", leases[0]))

	apart := NewFSM()
	if err := apart.Restore(io.NopCloser(bytes.NewReader(snapshotBytes(t, d.fsm)))); err != nil {
		t.Fatal(err)
	}
	if n := apart.state.bulks.Len(); n != 0 {
		t.Fatalf("a snapshot has %d bulks", n)
	}
	d.now += int64(time.Minute)
	for sweep := range 60 {
		l := d.log(entry{term: d.term, header: header{kind: kindSweep, term: d.term, now: d.now}, body: &sweepCmd{Max: int32(1 + sweep%7)}})
		d.fsm.Apply(l)
		apart.Apply(l)
		checkInvariants(t, d.fsm.state)
		checkInvariants(t, apart.state)
		if !bytes.Equal(snapshotBytes(t, d.fsm), snapshotBytes(t, apart)) {
			t.Fatalf("after sweep %d the snapshots differ", sweep)
		}
		if d.fsm.agenda() != apart.agenda() || d.fsm.SnapshotCost() != apart.SnapshotCost() {
			t.Fatalf("after sweep %d: %+v and %+v", sweep, d.fsm.agenda(), apart.agenda())
		}
	}
	if d.fsm.state.bulks.Len() != 0 || d.fsm.state.bulked != 0 {
		t.Errorf("%d answers in %d bulks are never forgotten", d.fsm.state.bulked, d.fsm.state.bulks.Len())
	}
}

// checkBulks is checkInvariants of the answers that are kept together.
func checkBulks(t *testing.T, s *state) {
	t.Helper()
	bulked := 0
	s.bulks.Scan(func(b *bulk) bool {
		bulked += len(b.items)
		if cap(b.items) != len(b.items) {
			t.Errorf("%d answers are kept in the room of %d", len(b.items), cap(b.items))
		}
		for i := range b.items {
			if s.current(b.items[i].g) == nil {
				t.Errorf("the answer to a bulk renewal outlived its lease")
			}
			if _, ok := s.answers.Get(answer{scope: b.items[i].scope}); ok {
				t.Errorf("an answer is in a bulk and by itself")
			}
		}
		if got, ok := s.bulkDrops.Get(b); !ok || got != b {
			t.Errorf("a bulk's answers are not on the agenda")
		}
		return true
	})
	if bulked != s.bulked || s.bulks.Len() != s.bulkDrops.Len() {
		t.Errorf("%d answers in %d bulks; the state counts %d, the agenda %d", bulked, s.bulks.Len(), s.bulked, s.bulkDrops.Len())
	}
}
