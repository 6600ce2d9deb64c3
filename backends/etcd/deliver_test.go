package etcd

import (
	"testing"
	"time"

	"leased/contract"
)

// TestTurn_deliver_seenBefore has waits end after a look at the key. A call is told a
// conflict with the holder that the look saw if it had begun by then. One that came
// later came after that holder may have released the key.
func TestTurn_deliver_seenBefore(t *testing.T) {
	a := waitingAttempt(t)
	active := func(n uint64) *record {
		return &record{id: newLeaseID(a.ref.id, n), Owner: "bob", State: contract.StateActive, MaxLife: time.Hour, TTL: time.Hour}
	}
	seen, own := active(1), active(2)
	before, after := a.began.Add(-time.Second), a.began.Add(time.Millisecond)
	for _, c := range []struct {
		name string
		saw  *record
		at   time.Time
		want *record // nil for outcome_unknown
	}{
		{name: "the look began after the call", at: after, want: seen},
		{name: "before it, and it saw another itself", saw: own, at: before, want: own},
		{name: "before it, and it saw nobody", at: before},
		{name: "it was no look, but remembered"},
	} {
		w := &waiter{ch: make(chan told, 1), since: a.began, saw: c.saw, leaving: true}
		sp := &spot{a: a, calls: []*waiter{w}}
		l := &line{ref: a.ref, wake: make(chan struct{}, 1), waiting: map[contract.Scope]*spot{a.scope: sp}, order: []contract.Scope{a.scope}}
		turn := &turn{l: l, st: &state{ref: a.ref}, q: new(queue), locals: l.snapshot()}
		turn.deliver(nil, seen, c.at)
		switch m := <-w.ch; {
		case c.want == nil && contract.CodeOf(m.err) != contract.CodeOutcomeUnknown:
			t.Errorf("%s: told %+v, error %v, want that it is not known", c.name, m.res.Lease, m.err)
		case c.want != nil && (m.err != nil || m.res.Outcome != contract.OutcomeConflict || m.res.Lease.ID != c.want.id):
			t.Errorf("%s: told %+v, error %v, want a conflict with %v", c.name, m.res.Lease, m.err, c.want.id)
		}
	}
}
