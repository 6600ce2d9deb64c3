package etcd

import (
	"testing"
	"time"

	"leased/contract"
)

// TestStore_nextInLine tells who is served in the step of a release, and in which
// cases that is not for this gateway to say.
func TestStore_nextInLine(t *testing.T) {
	const mine, theirs = "mine", "theirs"
	for _, c := range []struct {
		name string
		spot func(*spot)
		st   func(*state)
		want bool
	}{
		{name: "the first waits here", want: true},
		{name: "another gateway's waiter is before", st: func(st *state) {
			st.queue.places = append([]place{{name: "0", At: []string{theirs}}}, st.queue.places...)
		}},
		{name: "one is before whose gateway is not known", st: func(st *state) {
			st.queue.places = append([]place{{name: "0", At: []string{"begun since"}}}, st.queue.places...)
		}},
		{name: "the head is another by now", st: func(st *state) { st.headMod++ }},
		{name: "no token is left", st: func(st *state) { st.floor = int64(contract.MaxToken) }},
		{name: "the place is of another request under its id", st: func(st *state) { st.queue.places[0].Fingerprint = []byte("other") }},
		{name: "a grant to it is on its way", spot: func(sp *spot) { sp.pending = true }},
		{name: "it leaves", spot: func(sp *spot) { sp.calls[0].leaving = true }},
		{name: "nobody is there", spot: func(sp *spot) { sp.calls = nil }},
		{name: "its owner has a quota", spot: func(sp *spot) { sp.a.req.Limits.LeasesPerOwner = 7 }},
	} {
		a := waitingAttempt(t)
		p := newPlace(a, &queue{})
		p.At, p.create, p.mod = []string{mine}, 5, 5
		st := &state{
			ref: a.ref, rev: 9, told: 9, headMod: 3, head: &record{State: contract.StateActive}, aliveMod: 3,
			queue: &queue{places: []place{p}}, sessions: map[string]bool{mine: true, theirs: true},
		}
		ends := *st
		sp := &spot{a: a, calls: []*waiter{{ch: make(chan told, 1)}}}
		if c.spot != nil {
			c.spot(sp)
		}
		if c.st != nil {
			c.st(st)
		}
		s := &Store{lines: map[keyRef]*line{}}
		s.presence = &presence{s: s, id: mine}
		l := &line{s: s, ref: a.ref, waiting: map[contract.Scope]*spot{a.scope: sp}, order: []contract.Scope{a.scope}}
		l.known.st, l.known.told = st, 9
		s.lines[a.ref] = l
		pending := sp.pending
		if n := s.nextInLine(&ends); (n != nil) != c.want {
			t.Errorf("%s: somebody is served: %v, want %v", c.name, n != nil, c.want)
		}
		if sp.pending != (pending || c.want) {
			t.Errorf("%s: a grant is on its way: %v", c.name, sp.pending)
		}
	}
}

// TestQueue_settle_left drops a place as long after its call has left as it is to be
// kept, and not before.
func TestQueue_settle_left(t *testing.T) {
	a := waitingAttempt(t)
	p := newPlace(a, &queue{})
	p.At = []string{"mine", "theirs"}
	sessions := map[string]bool{"mine": true, "theirs": true}
	if p.detach("mine"); p.Left != 0 {
		t.Error("a place at which somebody waits has been left")
	}
	before := now()
	p.detach("theirs")
	q := &queue{places: []place{p}}
	keep := a.req.Retention.Idempotency.Microseconds()
	if q.settle(sessions, before+keep); len(q.places) != 1 {
		t.Error("the place is dropped before its time")
	}
	if q.settle(sessions, now()+keep+time.Second.Microseconds()); len(q.places) != 0 {
		t.Error("the place is kept for ever")
	}
}

// TestState_remembers wants an ended lease to be known as long as one of its two
// events is among those that are kept.
func TestState_remembers(t *testing.T) {
	at := now()
	for _, c := range []struct {
		active      bool
		newer, keep int // grants since, events kept
		want        bool
	}{
		{false, 0, 1, true}, {false, 1, 2, false}, {false, 1, 3, true}, {false, 2, 4, false}, {false, 2, 5, true},
		{true, 1, 1, false}, {true, 1, 2, true}, {true, 2, 3, false}, {true, 2, 4, true},
	} {
		old := &record{Ordinal: 7, State: contract.StateReleased, Recorded: at}
		head := &record{Ordinal: 7 + uint64(c.newer), State: contract.StateReleased, KeepEvents: c.keep, KeepHistory: time.Hour}
		if c.active {
			head.State = contract.StateActive
		}
		if c.newer == 0 {
			old = head
			old.Recorded = at
		}
		st := &state{head: head}
		if got := st.remembers(old, at); got != c.want {
			t.Errorf("%d grants since, the last one active: %v, %d events kept: remembered %v, want %v", c.newer, c.active, c.keep, got, c.want)
		}
		if st.remembers(old, at+time.Hour.Microseconds()) {
			t.Errorf("remembered for longer than the history is kept")
		}
	}
}
