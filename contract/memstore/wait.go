package memstore

import (
	"context"
	"errors"
	"time"

	"leased/contract"
)

// parkedCall is an acquire that waits. The backend's lock guards it.
type parkedCall struct {
	id    CallID
	store *Store
	done  chan struct{} // closed when the call was woken or cut

	woken  bool // the machine answered: result, err and grant are set
	result contract.Result
	err    error
	grant  *grant // what the answer grants, or nil

	cut error // the store was closed or died
}

// grant is a lease that parked calls were given. The calls of one place share
// it, and only when none of them takes it is it undone.
type grant struct {
	leaseID contract.LeaseID
	calls   int // that have not gone on yet
	taken   bool
}

// waiting reports whether the call still has nothing to go on with.
func (c *parkedCall) waiting() bool { return !c.woken && c.cut == nil }

// acquire runs op, and waits if it has to.
func (s *Store) acquire(ctx context.Context, op Acquire) (contract.Result, error) {
	b := s.b
	b.mu.Lock()
	if err := s.usable(); err != nil {
		b.mu.Unlock()
		return contract.Result{}, err
	}
	b.lastCall++
	op.Call, op.Nonce = b.lastCall, b.nonce()
	a := b.step(op)
	if !a.Parked {
		b.mu.Unlock()
		b.observe(a.Events)
		return a.Result, a.Err
	}
	c := &parkedCall{id: op.Call, store: s, done: make(chan struct{})}
	b.parked[c.id] = c
	b.mu.Unlock()
	b.observe(a.Events)

	wait := time.NewTimer(op.Request.Wait)
	defer wait.Stop()
	select {
	case <-c.done:
	case <-wait.C:
	case <-ctx.Done():
	}
	return b.unpark(ctx, c, &op.Request)
}

// unpark ends the wait of c, whatever ended it, and returns its answer. A grant
// that came before the wait ended is the answer: under the lock one of the two
// was first.
func (b *Backend) unpark(ctx context.Context, c *parkedCall, r *contract.AcquireRequest) (contract.Result, error) {
	b.mu.Lock()
	delete(b.parked, c.id)
	if c.woken {
		b.untaken--
		b.taken.Broadcast()
	}
	if c.grant != nil {
		c.grant.calls--
	}
	var a Answer
	switch {
	case c.cut != nil:
		a.Err = c.cut
	case !c.woken:
		a = b.step(Leave{Call: c.id})
	case c.grant != nil:
		a = b.take(ctx, c, r)
	default:
		a.Result, a.Err = c.result, c.err
	}
	b.mu.Unlock()
	b.observe(a.Events)
	return a.Result, a.Err
}

// take answers c with its grant, unless its caller has cancelled: then there is
// nobody to give it to, and the last call to find so undoes it. The caller holds
// the lock.
func (b *Backend) take(ctx context.Context, c *parkedCall, r *contract.AcquireRequest) Answer {
	switch {
	case c.grant.taken || !errors.Is(ctx.Err(), context.Canceled):
		c.grant.taken = true
		return Answer{Result: c.result}
	case c.grant.calls > 0: // another call may still take it
		return Answer{Err: contract.Lost(ctx)}
	}
	return b.step(Undo{Request: *r, LeaseID: c.grant.leaseID})
}

// wake hands the answers of a step to the calls they are for. The caller holds
// the lock.
func (b *Backend) wake(wakes []Wake) {
	grants := map[contract.LeaseID]*grant{}
	for _, w := range wakes {
		c := b.parked[w.Call]
		if c == nil || !c.waiting() {
			continue
		}
		if l := w.Result.Lease; w.Result.Outcome == contract.OutcomeAcquired {
			if grants[l.ID] == nil {
				grants[l.ID] = &grant{leaseID: l.ID}
			}
			c.grant = grants[l.ID]
			c.grant.calls++
		}
		c.result, c.err, c.woken = w.Result, w.Err, true
		b.untaken++
		close(c.done)
	}
}

// cutWaiting takes the store's waiting calls away and ends them with err. Those
// that were answered before go on with their answers. The caller holds the lock.
func (b *Backend) cutWaiting(s *Store, err error) {
	for _, c := range b.parked {
		if c.store == s && c.waiting() {
			b.step(Leave{Call: c.id}) // commits nothing
			c.cut = err
			close(c.done)
		}
	}
}

// cutDead ends the calls of a store that died, answered or not: nobody was left
// to pass the answer on. The caller holds the lock.
func (b *Backend) cutDead(s *Store) {
	b.cutWaiting(s, errDied())
	for _, c := range b.parked {
		if c.store == s && c.cut == nil {
			c.cut = errDied()
		}
	}
}
