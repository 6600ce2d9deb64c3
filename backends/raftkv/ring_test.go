package raftkv

import (
	"math"
	"slices"
	"testing"

	"leased/contract"
)

func ringEvents(index uint64, n int) []event {
	var out []event
	for i := range n {
		out = append(out, event{pos: pos{index: index, n: uint32(i)}, kind: contract.EventAcquired})
	}
	return out
}

func TestRing_Overtaken(t *testing.T) {
	r := newRing(4)
	for index := range uint64(3) {
		r.append(ringEvents(index+1, 3), index+1)
	}
	r.append(nil, 4)
	// Nine events came in three pieces, of which the newest two have four at least.
	start := r.after(pos{})
	floor := start.at
	if !start.lost || floor != (pos{index: 1, n: 2}) {
		t.Fatalf("from the start: lost %v, floor %v; want a loss up to 1.2", start.lost, floor)
	}
	if !r.after(pos{1, 1}).lost {
		t.Error("an event after 1.1 is gone, and that is not told")
	}
	for _, from := range []pos{floor, {2, 0}, {2, 1}, {2, 2}, {3, 1}, {3, 2}} {
		var got []pos
		for at := from; ; at = got[len(got)-1] {
			next := r.after(at)
			if next.lost {
				t.Fatalf("lost after %v", at)
			}
			for _, e := range next.events {
				got = append(got, e.pos)
			}
			if len(next.events) == 0 {
				if next.grew == nil {
					t.Errorf("nothing more, and no way to wait for more")
				}
				if next.at != r.end() {
					t.Errorf("nothing more after %v, and the place to go on from is %v, want the end", at, next.at)
				}
				break
			}
		}
		var want []pos
		for _, p := range []pos{{2, 0}, {2, 1}, {2, 2}, {3, 0}, {3, 1}, {3, 2}} {
			if p.compare(from) > 0 {
				want = append(want, p)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("events after %v: %v, want %v", from, got, want)
		}
	}
	if end := r.end(); end != (pos{4, math.MaxUint32}) {
		t.Errorf("end %v, want behind entry 4", end)
	}
	for p, want := range map[pos]bool{{2, 1}: true, {1, 0}: true, {1, 9}: false, {2, 7}: false, {3, 2}: true, {4, 0}: false} {
		if got := r.known(p); got != want {
			t.Errorf("known %v: %v, want %v", p, got, want)
		}
	}
}

// TestRing_known_otherNode: where a node that was restarted begins is a place to resume
// from on the others too, which have the events around it.
func TestRing_known_otherNode(t *testing.T) {
	restarted, other := newRing(4), newRing(4)
	for index := range uint64(3) {
		other.append(ringEvents(index+8, 2), index+8)
	}
	restarted.reset(9)
	from := restarted.end()
	if !other.known(from) {
		t.Errorf("the place %v, where a stream of a restarted node begins, is unknown to another node", from)
	}
	if next := other.after(from); next.lost || len(next.events) != 2 || next.events[0].index != 10 {
		t.Errorf("after it: %v, lost %v; want entry 10", next.events, next.lost)
	}
	other.append(nil, 12) // entries without events
	restarted.reset(12)
	if !other.known(restarted.end()) {
		t.Error("the place behind the newest event is unknown to another node")
	}
	restarted.reset(13)
	if other.known(restarted.end()) {
		t.Error("the place behind an entry that was not applied is known")
	}
}

// TestRing_end_otherNode: a stream that begins now has lost nothing, though the node
// that it is on was restarted since the newest event, and another one says where it begins.
func TestRing_end_otherNode(t *testing.T) {
	leader, restarted := newRing(4), newRing(4)
	leader.append(ringEvents(8, 2), 8)
	leader.append(nil, 9) // an entry without events
	restarted.reset(9)
	from := leader.end()
	if next := restarted.after(from); next.lost {
		t.Errorf("a stream that begins at %v is told of a loss up to %v", from, next.at)
	}
	if next := leader.after(from); len(next.events) != 0 {
		t.Errorf("after its end: %v", next.events)
	}
}

func TestRing_Reset(t *testing.T) {
	r := newRing(4)
	r.append(ringEvents(5, 2), 5)
	r.reset(9)
	if next := r.after(pos{5, 1}); !next.lost || next.at.index != 9 {
		t.Errorf("after a restore at entry 9: lost %v, floor %v", next.lost, next.at)
	}
	r.append(ringEvents(10, 1), 10)
	if next := r.after(r.floor); len(next.events) != 1 || next.lost || next.events[0].index != 10 {
		t.Errorf("from the floor: %v, lost %v; want entry 10", next.events, next.lost)
	}
}

// TestRings_rare: a stream that does not show renewals is neither overtaken by them nor
// woken for them, and shows what else was in their entries.
func TestRings_rare(t *testing.T) {
	r := newRings(4)
	ends := r.of(contract.KindsOf(contract.EventReleased, contract.EventExpired, contract.EventRevoked))
	mixed := ringEvents(1, 3)
	mixed[0].kind, mixed[1].kind, mixed[2].kind = contract.EventRenewed, contract.EventRevoked, contract.EventRenewed
	r.append(mixed, 1)
	for index := range uint64(5) {
		renewals := ringEvents(index+2, 3)
		for i := range renewals {
			renewals[i].kind = contract.EventRenewed
		}
		grew := ends.after(ends.end()).grew
		r.append(renewals, index+2)
		select {
		case <-grew:
			t.Errorf("entry %d has renewals alone, and wakes who shows none", index+2)
		default:
		}
	}
	next := ends.after(pos{})
	if next.lost || len(next.events) != 1 || next.events[0].pos != (pos{1, 1}) {
		t.Errorf("from the start: %v, lost %v; want the revocation in entry 1", next.events, next.lost)
	}
	if next = ends.after(pos{1, 1}); next.at != (pos{6, math.MaxUint32}) || !r.all.known(next.at) {
		t.Errorf("behind it the place to go on from is %v, want that behind entry 6, known to the ring of all", next.at)
	}
	for _, kinds := range []contract.EventKinds{0, contract.KindsOf(contract.EventRenewed, contract.EventRevoked)} {
		if !r.of(kinds).after(pos{}).lost {
			t.Errorf("kinds %b: of eighteen events four are kept, and no loss is told", kinds)
		}
	}
	busy := ringEvents(7, 1000)
	for i := range busy[1:] {
		busy[i+1].kind = contract.EventRenewed
	}
	r.append(busy, 7)
	if room := cap(r.rare.pieces[1]); room > 16 {
		t.Errorf("one event beside 999 renewals takes the room of %d", room)
	}
}
