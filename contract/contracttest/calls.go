package contracttest

import (
	"context"
	"slices"
	"time"

	"leased/contract"
)

// patience is the Wait of waiters that a rule means to serve: longer than it
// takes, shorter than the call's deadline, so that which of the two ended a
// wait can be told.
const patience = 25 * time.Second

// call is an acquire that runs beside the rule.
type call struct {
	store  contract.Store
	req    *contract.AcquireRequest
	cancel context.CancelFunc
	done   chan struct{}
	sent   time.Time // before the deadline of the call began to run

	// Set before done is closed.
	res          contract.Result
	err          error
	began, ended time.Time
}

// start sends r with a deadline of limit from now.
func (e *Env) start(s contract.Store, r *contract.AcquireRequest, limit time.Duration) *call {
	sent := time.Now()
	ctx, cancel := e.cancellable(limit)
	c := &call{store: s, req: r, cancel: cancel, done: make(chan struct{}), sent: sent}
	e.spawn(func() {
		defer close(c.done)
		c.began = time.Now()
		c.res, c.err = s.Acquire(ctx, r)
		c.ended = time.Now()
	})
	return c
}

// newWaiter is newAcquire, with the patience to wait for the key.
func (e *Env) newWaiter(key contract.Key, owner string) *contract.AcquireRequest {
	r := e.newAcquire(key, owner)
	r.Wait = patience
	return r
}

// park sends r, which must have to wait, and returns once it is in the queue.
func (e *Env) park(s contract.Store, r *contract.AcquireRequest) *call {
	e.Helper()
	before := e.queueLength(s, r.Key)
	c := e.start(s, r, watchdog)
	e.eventually("the waiter counts in the queue", func() bool {
		e.waiting(c)
		return e.queueLength(s, r.Key) == before+1
	})
	return c
}

// waiting wants calls not to be answered yet.
func (e *Env) waiting(calls ...*call) {
	e.Helper()
	for _, c := range calls {
		select {
		case <-c.done:
			e.Fatalf("acquire by %s should still wait; got %s, error %v", c.req.Owner, describe(c.res), c.err)
		default:
		}
	}
}

// finished waits for a call's answer, whatever it is.
func (e *Env) finished(c *call) {
	e.Helper()
	e.waitFor(c.done, "the acquire by "+c.req.Owner)
}

// served waits until the call is granted the key.
func (e *Env) served(c *call) contract.Lease {
	e.Helper()
	e.finished(c)
	return *e.answered("waiting acquire by "+c.req.Owner, c.res, c.err, contract.OutcomeAcquired).Lease
}

// known returns what came of an acquire that waited. A store whose server a slow
// machine keeps from answering in time owes no more than that the outcome is
// unknown; then the same request finds it out.
func (e *Env) known(s contract.Store, r *contract.AcquireRequest, res contract.Result, err error) (contract.Result, error) {
	if r.Wait == 0 || contract.CodeOf(err) != contract.CodeOutcomeUnknown {
		return res, err
	}
	again := *r
	again.Wait = 0
	return s.Acquire(e.ctx(), &again)
}

// refusedAtEnd waits until the call is told that the key is held.
func (e *Env) refusedAtEnd(c *call) contract.Result {
	e.Helper()
	e.finished(c)
	c.res, c.err = e.known(c.store, c.req, c.res, c.err)
	return e.answered("waiting acquire by "+c.req.Owner, c.res, c.err, contract.OutcomeConflict)
}

// cut lets a waiting acquire end, by its wait or by the limit, and returns when it
// has been told its place. A store that is slower than the wait may have to answer
// before it has one: then it says so, and the call is repeated.
func (e *Env) cut(s contract.Store, r *contract.AcquireRequest, limit time.Duration) contract.Result {
	e.Helper()
	res := e.refusedAtEnd(e.start(s, r, limit))
	for range cutTries {
		if res.Queue.Position != 0 {
			break
		}
		res = e.refusedAtEnd(e.start(s, r, limit))
	}
	return res
}

// cutTries is how often a store may be too slow.
const cutTries = 20

// gone cancels a waiting call, wants it answered at once, and returns when it no
// longer counts at any gateway.
func (e *Env) gone(s contract.Store, c *call) {
	e.Helper()
	before := e.queueLength(s, c.req.Key)
	cut := time.Now()
	c.cancel()
	e.finished(c)
	if took := e.since(cut, c.ended); took > e.answerSlack {
		e.Errorf("a cancelled waiter was answered after %v, more than %v", took, e.answerSlack)
	}
	if c.err == nil && c.res.Outcome == contract.OutcomeAcquired {
		e.Fatalf("a cancelled waiter was granted the key while it was held")
	}
	e.eventually("the cancelled waiter stops counting", func() bool { return e.allCount(c.req.Key, before-1) })
}

// allCount tells whether so many wait for the key as each gateway sees it. The one
// at which a call ended may be the first to know.
func (e *Env) allCount(key contract.Key, n int) bool {
	e.Helper()
	e.mu.Lock()
	handles := slices.Clone(e.handles)
	e.mu.Unlock()
	return !slices.ContainsFunc(handles, func(s contract.Store) bool { return e.queueLength(s, key) != n })
}

// handOver releases the lease and returns when the answer came: by then the
// next waiter's turn has come.
func (e *Env) handOver(s contract.Store, l contract.Lease) time.Time {
	e.Helper()
	e.end(s, l)
	return time.Now()
}
