package raftkv

import (
	"testing"

	"leased/contract"
)

// message returns what a call was told, and the token of its turn.
func message(c *call) (told bool, token uint64) {
	select {
	case t := <-c.ch:
		if t.reply.lease == nil {
			return true, 0
		}
		return true, t.reply.lease.token
	default:
		return false, 0
	}
}

// TestWaiters_turnOfAnotherCall has a waiter return while its place is served for the
// call that has left, whose leaving takes the grant back. It is told of the turn that
// is its own, and of no other.
func TestWaiters_turnOfAnotherCall(t *testing.T) {
	scope := contract.Scope{1}
	turnAt := func(attach, token uint64) *served {
		return &served{scope: scope, attach: attach, reply: reply{outcome: contract.OutcomeAcquired, lease: &lease{grant: &grant{token: token}}}}
	}
	for _, c := range []struct {
		name string
		play func(w *waiters, back *call)
		want uint64 // the token that the call is told, 0 for none
	}{
		{"before its command is answered", func(w *waiters, back *call) {
			w.serve(turnAt(10, 1))
			w.attached(back, 20)
		}, 0},
		{"and it is served later", func(w *waiters, back *call) {
			w.serve(turnAt(10, 1))
			w.attached(back, 20)
			w.serve(turnAt(20, 2))
		}, 2},
		{"and it is served before its command is answered too", func(w *waiters, back *call) {
			w.serve(turnAt(10, 1))
			w.serve(turnAt(20, 2))
			w.attached(back, 20)
		}, 2},
		{"its own turn comes before its command is answered", func(w *waiters, back *call) {
			w.serve(turnAt(20, 2))
			w.attached(back, 20)
		}, 2},
		{"the turn is that of a copy which came after it", func(w *waiters, back *call) {
			copied := w.join(scope)
			w.attached(copied, 30)
			w.serve(turnAt(30, 3))
			w.attached(back, 20)
			if told, token := message(copied); !told || token != 3 {
				t.Errorf("the copy is told %v, token %d, want 3", told, token)
			}
		}, 3},
		{"after its command is answered", func(w *waiters, back *call) {
			w.attached(back, 20)
			w.serve(turnAt(20, 2))
		}, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWaiters()
			gone := w.join(scope)
			w.attached(gone, 10)
			w.leave(gone)
			back := w.join(scope)
			c.play(w, back)
			if told, token := message(back); told != (c.want != 0) || token != c.want {
				t.Errorf("the call is told %v, token %d, want token %d", told, token, c.want)
			}
			if attach, _ := w.leave(back); attach < 20 {
				t.Errorf("what it leaves names entry %d, want its own or a later one", attach)
			}
			if len(w.places) != 0 {
				t.Errorf("places are left: %v", w.places)
			}
		})
	}
}

// TestWaiters_failWhileServed: a call that waits at two places is told once that it
// waits for nothing.
func TestWaiters_failWhileServed(t *testing.T) {
	w := newWaiters()
	c := w.join(contract.Scope{1})
	w.serve(&served{scope: contract.Scope{1}, attach: 10})
	w.fail(unavailableWait())
	w.attached(c, 20)
	if got := <-c.ch; got.err == nil {
		t.Errorf("the call is told %+v, want an error", got)
	}
	if told, _ := message(c); told {
		t.Error("the call is told twice")
	}
	if attach, last := w.leave(c); attach != 20 || !last || len(w.places) != 0 {
		t.Errorf("what it leaves names entry %d, last %v, places %v", attach, last, w.places)
	}
}
