package raftkv

import (
	"sync"

	"leased/contract"
)

// waiters are the calls of this node that wait in queues. Copies of one attempt
// share a place: it is left when the last of them goes.
type waiters struct {
	mu     sync.Mutex
	places map[contract.Scope]*place
}

type place struct {
	calls map[*call]struct{}
	// attach is the newest entry that brought one of the calls here.
	attach uint64
	// taken tells that one of the calls has handed the grant to its client, told
	// that one of them did so as the first of those served by the turn.
	taken bool
	told  bool
}

// call is one waiting call. ch gets one message: the turn, or why there will be
// none.
type call struct {
	scope contract.Scope
	place *place
	ch    chan turn
	// attach is the entry that brought the call here; 0 until that is known.
	attach uint64
	// early is the turn of its place that came before that. It may be the turn of an
	// earlier call under the same scope, which has left: if so the grant is taken back,
	// and the turn of this call comes yet, at the place next, where it waits as well.
	early *served
	next  *place
}

type turn struct {
	reply reply
	err   error
}

func newWaiters() *waiters { return &waiters{places: make(map[contract.Scope]*place)} }

// join announces a call before its command is proposed, so that a turn that
// comes at once finds it.
func (w *waiters) join(scope contract.Scope) *call {
	w.mu.Lock()
	defer w.mu.Unlock()
	p := w.places[scope]
	if p == nil {
		p = &place{calls: make(map[*call]struct{})}
		w.places[scope] = p
	}
	c := &call{scope: scope, place: p, ch: make(chan turn, 1)}
	p.calls[c] = struct{}{}
	return c
}

// attached notes the entry that brought a call to its place. A turn that came before
// is the call's if it names this entry or a later one, which a copy brought here. One
// that names an earlier entry was not for this call: had the grant stood when its own
// command came, that would have been answered with it.
func (w *waiters) attached(c *call, attach uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	c.attach = attach
	switch {
	case c.early == nil:
	case c.early.attach >= attach:
		w.drop(c, c.next)
		c.ch <- turn{reply: c.early.reply}
	default:
		delete(c.place.calls, c)
		c.place = c.next
	}
	c.early, c.next = nil, nil
	c.place.attach = max(c.place.attach, attach)
}

// take notes that the call hands a grant to its client that the log answered it
// with, and ends the call.
func (w *waiters) take(c *call) {
	w.mu.Lock()
	defer w.mu.Unlock()
	c.place.taken = true
	w.remove(c)
}

// takeTurn is take for a call whose turn came. first tells that it is the one of
// those served together that did the work; the others repeat its answer.
func (w *waiters) takeTurn(c *call) (first bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	first, c.place.told, c.place.taken = !c.place.told, true, true
	w.remove(c)
	return first
}

// leave ends a call without a grant. last tells that nobody is at the place any
// more and nobody took a grant: attach then names what has to be taken back.
func (w *waiters) leave(c *call) (attach uint64, last bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.remove(c)
	return c.place.attach, len(c.place.calls) == 0 && !c.place.taken
}

func (w *waiters) remove(c *call) {
	w.drop(c, c.place)
	if c.next != nil {
		w.drop(c, c.next)
	}
}

// drop takes a call from a place, and the place away if it was the last.
func (w *waiters) drop(c *call, p *place) {
	delete(p.calls, c)
	if len(p.calls) == 0 && w.places[c.scope] == p {
		delete(w.places, c.scope)
	}
}

// serve tells the calls of a scope that their turn came, but for those of which it
// is not known yet whether the turn is theirs. Later calls of the scope are not
// theirs: they find the stored answer.
func (w *waiters) serve(s *served) {
	w.mu.Lock()
	defer w.mu.Unlock()
	p := w.places[s.scope]
	if p == nil {
		return
	}
	delete(w.places, s.scope)
	p.attach = max(p.attach, s.attach)
	next := &place{calls: make(map[*call]struct{})}
	for c := range p.calls {
		if c.attach != 0 {
			c.ch <- turn{reply: s.reply}
			continue
		}
		if c.next == p { // the turn before this one was not for it either
			delete(c.place.calls, c)
			c.place = p
		}
		c.early, c.next = s, next
		next.calls[c] = struct{}{}
		w.places[s.scope] = next
	}
}

// fail tells every waiting call that it waits for nothing.
func (w *waiters) fail(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for scope, p := range w.places {
		delete(w.places, scope)
		for c := range p.calls {
			if c.next != nil {
				delete(c.place.calls, c)
				c.place, c.early, c.next = p, nil, nil
			}
			c.ch <- turn{err: err}
		}
	}
}
