package raftkv

import (
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
	r.append(ringEvents(1, 3), 1)
	r.append(ringEvents(2, 3), 2)
	// Six events went in and the newest four are kept: 1.2, 2.0, 2.1, 2.2.
	_, ok, lost, floor, _ := r.after(pos{})
	if ok || !lost || floor != (pos{index: 1, n: 1}) {
		t.Fatalf("from the start: ok %v, lost %v, floor %v; want a loss up to 1.1", ok, lost, floor)
	}
	at := floor
	var got []pos
	for {
		e, ok, lost, _, grew := r.after(at)
		if lost {
			t.Fatalf("lost again after %v", at)
		}
		if !ok {
			if grew == nil {
				t.Errorf("nothing more, and no way to wait for more")
			}
			break
		}
		got, at = append(got, e.pos), e.pos
	}
	if len(got) != 4 || got[0] != (pos{1, 2}) || got[3] != (pos{2, 2}) {
		t.Errorf("events after the floor: %v", got)
	}
	if !r.known(pos{2, 1}) || !r.known(pos{1, 0}) || r.known(pos{2, 7}) || r.known(pos{3, 0}) {
		t.Errorf("known: 2.1 %v, 1.0 %v (want true); 2.7 %v, 3.0 %v (want false)",
			r.known(pos{2, 1}), r.known(pos{1, 0}), r.known(pos{2, 7}), r.known(pos{3, 0}))
	}
}

func TestRing_Reset(t *testing.T) {
	r := newRing(4)
	r.append(ringEvents(5, 2), 5)
	r.reset(9)
	if _, _, lost, floor, _ := r.after(pos{5, 1}); !lost || floor.index != 9 {
		t.Errorf("after a restore at entry 9: lost %v, floor %v", lost, floor)
	}
	r.append(ringEvents(10, 1), 10)
	if e, ok, lost, _, _ := r.after(r.floor); !ok || lost || e.index != 10 {
		t.Errorf("from the floor: %v, ok %v, lost %v; want entry 10", e.pos, ok, lost)
	}
}
