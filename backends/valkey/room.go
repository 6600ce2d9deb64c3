package valkey

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/valkey-io/valkey-go"

	"leased/contract"
)

const (
	// heartbeatEvery is how often a gateway with waiting calls says that it
	// lives, and heartbeatLife how long that is believed. A dead gateway's
	// waiters are skipped within the life and one more tick, less than 2 s.
	heartbeatEvery = 250 * time.Millisecond
	heartbeatLife  = 1300 * time.Millisecond
	// turnPatience is how long a grant is kept for its waiter, who does not take
	// it though its gateway lives.
	turnPatience = 5 * time.Second
	// idleEvery is how often a namespace is swept about whose leases this
	// gateway knows nothing.
	idleEvery = time.Second
	// justAfter is how long after the end of a lease the sweeper comes: the
	// server must agree that it is over.
	justAfter = 2 * time.Millisecond
	// registryEvery is how often namespaces that others opened are looked for,
	// and mostRooms how many are swept.
	registryEvery = 10 * time.Second
	mostRooms     = 10_000
)

// room is what a gateway does for a namespace: it beats, sweeps, and knows
// which of its calls wait.
type room struct {
	store     *Store
	namespace string
	base      string
	keys      []string      // what scripts declare
	kick      chan struct{} // something is due earlier than planned
	top       atomic.Uint64 // the highest token seen
	behind    atomic.Bool   // the server may have forgotten it
	feed      *feed

	mu     sync.Mutex
	spots  map[contract.Scope]*spot
	next   time.Time // when the next lease ends, as far as it is known; zero is unknown
	listen bool      // the subscription runs
	crowd  bool      // calls wait at some gateway, which is watched over
	tidy   tidy
}

// spot is an attempt of which calls wait here.
type spot struct {
	calls map[*waiter]struct{}
	n     uint64 // the newest attachment that was sent
}

// waiter is one waiting call.
type waiter struct {
	scope contract.Scope
	wake  chan struct{} // it should try again
}

// room returns the namespace's room and opens it when it is the first call's.
func (s *Store) room(namespace string) *room {
	s.mu.Lock()
	r := s.rooms[namespace]
	if r != nil {
		s.mu.Unlock()
		return r
	}
	r = &room{
		store: s, namespace: namespace, base: base(s.cfg.Prefix, namespace),
		keys: declared(s.cfg.Prefix, namespace),
		kick: make(chan struct{}, 1), spots: map[contract.Scope]*spot{},
	}
	r.feed = newFeed(r)
	s.rooms[namespace] = r
	s.mu.Unlock()
	s.start(r.run)
	return r
}

// registry finds the namespaces that others use, so that what is left over in
// them is swept also when their gateways are gone.
func (s *Store) registry(ctx context.Context) {
	for {
		look, cancel := context.WithTimeout(ctx, checkTimeout)
		msg, err := s.link.do(look, func(ctx context.Context, c valkey.Client) valkey.ValkeyResult {
			return c.Do(ctx, c.B().Smembers().Key(s.cfg.Prefix+"spaces").Build())
		})
		cancel()
		pause := registryEvery
		if err != nil {
			pause = idleEvery
		} else if names, err := msg.AsStrSlice(); err == nil {
			for _, name := range names {
				s.mu.Lock()
				full := len(s.rooms) >= mostRooms
				s.mu.Unlock()
				if full {
					break
				}
				s.room(name)
			}
		}
		if !sleep(ctx, pause) {
			return
		}
	}
}

// register writes the namespace where registry looks.
func (r *room) register(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	_, err := r.store.link.do(ctx, func(ctx context.Context, c valkey.Client) valkey.ValkeyResult {
		return c.Do(ctx, c.B().Sadd().Key(r.store.cfg.Prefix+"spaces").Member(r.namespace).Build())
	})
	return err == nil
}

// run ticks until the store is over.
func (r *room) run(ctx context.Context) {
	registered := time.Time{}
	for ctx.Err() == nil {
		if time.Since(registered) > time.Minute && r.register(ctx) { // again after a flush
			registered = time.Now()
		}
		if r.behind.Load() && !r.refloor(ctx) && !sleep(ctx, leavePause) {
			return
		}
		more := r.tick(ctx)
		if more {
			continue
		}
		r.rest(ctx)
	}
}

// rest waits until the next tick is due.
func (r *room) rest(ctx context.Context) {
	for {
		r.mu.Lock()
		pause := idleEvery
		if len(r.spots) > 0 || r.crowd {
			pause = heartbeatEvery
		}
		soon := false
		if !r.next.IsZero() {
			if until := time.Until(r.next) + justAfter; until < pause {
				pause, soon = max(until, justAfter), true
			}
		}
		r.mu.Unlock()
		if r.behind.Load() {
			return
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
			if soon {
				r.mu.Lock()
				r.next = time.Time{}
				r.mu.Unlock()
			}
			return
		case <-r.kick:
			timer.Stop()
		case <-ctx.Done():
			timer.Stop()
			return
		}
	}
}

// saw notes a token of the namespace.
func (r *room) saw(token contract.Token) {
	for {
		top := r.top.Load()
		if uint64(token) <= top || r.top.CompareAndSwap(top, uint64(token)) {
			return
		}
	}
}

// reset has every waiting call try again, and the floor raised to what was seen.
func (r *room) reset() {
	r.wakeAll()
	if r.top.Load() > 0 {
		r.behind.Store(true)
		r.nudge()
	}
}

// refloor raises the floor to the highest token that this gateway saw: a server
// that went back, and whose clock is behind, would grant lower ones. With the
// floor the epoch of the stream rises, so that no event's id is used again.
func (r *room) refloor(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	if _, err := r.store.exec(ctx, r, r.store.scripts.floor, num(r.top.Load())); err != nil {
		return false
	}
	r.behind.Store(false)
	return true
}

// tick runs the tick script, and reports whether there is more to do at once.
func (r *room) tick(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	r.mu.Lock()
	waiting := "0"
	if len(r.spots) > 0 {
		waiting = "1"
	}
	r.mu.Unlock()
	a, err := r.store.exec(ctx, r, r.store.scripts.tick, r.store.gateway, num(heartbeatLife.Milliseconds()),
		num(turnPatience.Milliseconds()), waiting, num(r.top.Load()))
	if err != nil || a.code != "tick" {
		return false // the link tells why
	}
	if next := a.number(2); next > 0 {
		r.due(next, a.now)
	}
	if a.number(0) == 1 {
		r.wakeAll() // given up as dead: all places have to be taken again
	}
	r.mu.Lock()
	r.crowd = a.number(3) > 0
	r.mu.Unlock()
	r.count(a.number(4))
	for i := 5; i < len(a.rest); i++ {
		r.turn(a.text(i))
	}
	return a.number(1) == 1
}

// due notes that a lease ends at an instant of the server's clock, given what
// that clock showed just now.
func (r *room) due(expires, now int64) {
	at := time.Now().Add(time.Duration(expires-now) * time.Microsecond)
	r.mu.Lock()
	earlier := r.next.IsZero() || at.Before(r.next)
	if earlier {
		r.next = at
	}
	r.mu.Unlock()
	if earlier && time.Until(at) < idleEvery {
		r.nudge()
	}
}

func (r *room) nudge() {
	select {
	case r.kick <- struct{}{}:
	default:
	}
}

// join adds a waiting call.
func (r *room) join(scope contract.Scope) *waiter {
	w := &waiter{scope: scope, wake: make(chan struct{}, 1)}
	r.mu.Lock()
	sp := r.spots[scope]
	if sp == nil {
		sp = &spot{calls: map[*waiter]struct{}{}}
		r.spots[scope] = sp
	}
	sp.calls[w] = struct{}{}
	first, listen := len(r.spots) == 1, r.listen
	r.listen = true
	r.mu.Unlock()
	if !listen && !r.store.start(r.subscribe) {
		r.mu.Lock()
		r.listen = false
		r.mu.Unlock()
	}
	if first {
		r.nudge() // to beat faster
	}
	return w
}

// number returns the number of the call's next attachment. The newest one of an
// attempt wins on the server.
func (r *room) number(w *waiter) uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := r.store.lastN.Add(1)
	if sp := r.spots[w.scope]; sp != nil {
		sp.n = n
	}
	return n
}

// attached returns the number up to which the attempt's attachments have been sent.
func (r *room) attached(w *waiter) uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	if sp := r.spots[w.scope]; sp != nil {
		return sp.n
	}
	return 0
}

// part takes a call away. It returns the number up to which the attempt's
// attachments are over, 0 while other calls of it wait here, which it wakes:
// what the call was told they have to find out.
func (r *room) part(w *waiter) uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	sp := r.spots[w.scope]
	if sp == nil {
		return 0
	}
	delete(sp.calls, w)
	if len(sp.calls) > 0 {
		for other := range sp.calls {
			other.nudge()
		}
		return 0
	}
	delete(r.spots, w.scope)
	return sp.n
}

func (w *waiter) nudge() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// wake wakes the calls of an attempt.
func (r *room) wake(scope string) {
	if len(scope) != len(contract.Scope{}) {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if sp := r.spots[contract.Scope([]byte(scope))]; sp != nil {
		for w := range sp.calls {
			w.nudge()
		}
	}
}

func (r *room) wakeAll() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, sp := range r.spots {
		for w := range sp.calls {
			w.nudge()
		}
	}
}

// subscribe listens for turns. What it misses the ticks find.
func (r *room) subscribe(ctx context.Context) {
	channel := r.base + ":w:" + r.store.gateway
	for ctx.Err() == nil {
		c, err := r.store.link.get(ctx)
		if err == nil {
			err = c.Receive(ctx, c.B().Ssubscribe().Channel(channel).Build(), func(m valkey.PubSubMessage) { r.wake(m.Message) })
		}
		if err != nil && ctx.Err() == nil {
			r.store.log.Debug("valkey: the subscription to turns broke", "err", err)
		}
		if !sleep(ctx, heartbeatEvery) {
			return
		}
	}
}
