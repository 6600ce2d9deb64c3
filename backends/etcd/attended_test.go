package etcd

import (
	"testing"

	"leased/contract"
)

// TestStore_attended tells who counts among those that wait: whoever has a place at
// a gateway that is there, but not a call of this one that has ended, or will have,
// since etcd has its place.
func TestStore_attended(t *testing.T) {
	const mine, theirs, gone = "mine", "theirs", "gone"
	for _, c := range []struct {
		name  string
		at    []string
		line  bool
		calls []*waiter // nil for no spot
		since bool      // the head was written here since the state was read
		want  int
	}{
		{name: "a call waits here", at: []string{mine}, line: true, calls: []*waiter{{}}, want: 1},
		{name: "one of two calls goes on waiting", at: []string{mine}, line: true, calls: []*waiter{{leaving: true}, {}}, want: 1},
		{name: "a call leaves", at: []string{mine}, line: true, calls: []*waiter{{leaving: true}}},
		{name: "the call has been answered", at: []string{mine}, line: true, calls: []*waiter{}},
		{name: "no call has been here", at: []string{mine}, line: true},
		{name: "nobody waits for the key here", at: []string{mine}},
		{name: "a copy waits at another gateway", at: []string{mine, theirs}, want: 1},
		{name: "another gateway's", at: []string{theirs}, want: 1},
		{name: "a dead gateway's", at: []string{gone, mine}},
		{name: "served since", at: []string{mine}, line: true, since: true, want: 1},
	} {
		a := waitingAttempt(t)
		p := newPlace(a, &queue{})
		p.At = c.at
		st := &state{ref: a.ref, rev: 9, queue: &queue{places: []place{p}}, sessions: map[string]bool{mine: true, theirs: true}}
		s := &Store{lines: map[keyRef]*line{}, hints: newHints()}
		s.presence = &presence{s: s, id: mine}
		if c.line {
			l := &line{s: s, ref: a.ref, waiting: map[contract.Scope]*spot{}}
			if c.calls != nil {
				l.waiting[a.scope] = &spot{a: a, calls: c.calls}
			}
			s.lines[a.ref] = l
		}
		head := &record{rev: 9}
		if c.since {
			head.rev++
		}
		s.hints.wrote(a.ref, head)
		if got := s.attended(st).seenBy(a.scope, st.sessions); got != (contract.Queue{Length: c.want, Position: 1}) {
			t.Errorf("%s: got %+v, want %d to wait and a place at the head", c.name, got, c.want)
		}
		if len(st.queue.places[0].At) != len(c.at) {
			t.Errorf("%s: the state was changed", c.name)
		}
	}
}
