package contracttest

import (
	"fmt"
	"time"

	"leased/contract"
)

// These rules stand in the tables of queue, presence, handover and replay: what
// happens to a waiter whose turn comes at a bad moment.

func waitLeaseQuota(e *Env) {
	a, b := e.pair()
	held := e.grant(a, e.key("held"), alice)
	r := e.newWaiter(held.Key, bob)
	r.Limits.LeasesPerOwner = 1
	full := e.park(a, r)
	next := e.park(b, e.newWaiter(held.Key, carol))
	other := e.grant(b, e.key("other"), bob) // while it waits its owner uses up the quota

	// Who has a place is told of the quota at its turn, and not before.
	look := *r
	look.Wait = 0
	for _, s := range []contract.Store{a, b} {
		if q := e.acquire(s, &look, contract.OutcomeConflict).Queue; q.Position != 1 {
			e.Errorf("a waiter looks without waiting, its owner at the quota: got %+v, want the first place", q)
		}
	}

	since := e.handOver(b, held)
	e.finished(full)
	res := e.answered("waiting acquire at the quota", full.res, full.err, contract.OutcomeQuotaExceeded)
	if res.Limit != "leases_per_owner" {
		e.Errorf("limit: got %q, want leases_per_owner", res.Limit)
	}
	held = e.served(next)
	e.servedInTime(next, since)
	e.shows(a, held)

	// The refusal bound nothing: with a lease less it is an attempt like any other.
	e.end(a, other)
	e.end(a, held)
	e.granted(b, r)
}

func waitPlaceOutlivesGateway(e *Env) {
	a := e.open()
	held := e.grant(a, e.key("held"), alice)
	killed, closed, late := e.open(), e.open(), e.open()
	first := e.park(killed, e.newWaiter(held.Key, bob))
	second := e.park(closed, e.newWaiter(held.Key, carol))
	e.kill(killed)
	e.closeNow(closed)
	e.finished(first)
	if c := first; c.err == nil && c.res.Outcome == contract.OutcomeAcquired {
		e.Fatalf("a waiter whose gateway was killed while the key was held was answered %s", describe(c.res))
	}
	e.finished(second)
	e.failed("waiting acquire on a closed store", second.err, contract.CodeClosed, "")
	e.eventually("the waiters of gateways that ended stop counting", func() bool { return e.queueLength(a, held.Key) == 0 })
	third := e.newWaiter(held.Key, alice)
	if q := e.cut(late, third, 300*time.Millisecond).Queue; q != (contract.Queue{Position: 1}) {
		e.Errorf("a waiter whose deadline passed, behind two that are away: got %+v, want none waiting and a place at the head", q)
	}
	e.nobodyWaits(held.Key)

	// Who comes later is behind all places that are kept; the kept ones come back
	// in another order than they left.
	last := e.park(late, e.newWaiter(held.Key, bob))
	back := map[int]*call{}
	for _, i := range []int{2, 0, 1} {
		back[i] = e.park(pick(i, a, late), []*contract.AcquireRequest{first.req, second.req, third}[i])
	}
	for _, c := range []*call{back[0], back[1], back[2], last} {
		e.end(a, held)
		held = e.served(c)
		if c.res.Replayed {
			e.Errorf("the first grant of %s is marked as replayed", c.req.Owner)
		}
	}
	e.shows(late, held)
}

func waitCopiesLeaveApart(e *Env) {
	a, b := e.pair()
	doomed := e.open()
	held := e.grant(a, e.key("held"), alice)
	r := e.newWaiter(held.Key, bob)
	older := e.park(a, r)
	cut := e.start(doomed, r, watchdog)
	brief := e.start(b, r, 300*time.Millisecond)
	stays := e.start(b, r, watchdog)
	last := e.park(b, e.newWaiter(held.Key, carol))

	e.refusedAtEnd(brief)
	older.cancel()
	e.finished(older)
	e.kill(doomed)
	e.finished(cut)
	for _, c := range []*call{older, cut} {
		if c.err == nil && c.res.Outcome == contract.OutcomeAcquired {
			e.Fatalf("a copy that left while the key was held was answered %s", describe(c.res))
		}
	}
	e.waiting(stays, last)
	e.eventually("the place counts as long as one copy is there", func() bool { return e.queueLength(a, held.Key) == 2 })

	since := e.handOver(a, held)
	got := e.served(stays)
	e.servedInTime(stays, since)
	e.waiting(last)
	e.shows(b, got)
	e.end(a, got)
	e.served(last)
}

func waitCancelledAtTurn(e *Env) {
	a, b := e.pair()
	key := e.key("contended")
	for i := range 20 {
		held := e.grant(a, key, alice)
		leaves := e.park(pick(i, b, a), e.newWaiter(key, bob))
		next := e.park(pick(i/2, a, b), e.newWaiter(key, carol))
		var since time.Time
		e.race(2, func(part int) {
			if part == 0 {
				leaves.cancel()
				return
			}
			_, _ = a.Release(e.ctx(), e.newRelease(held)) // looked at below, on the rule's own goroutine
			since = time.Now()
		})
		if got := e.get(b, held.ID); got.State != contract.StateReleased {
			e.Fatalf("the holder's lease is %s after its release", got.State)
		}
		e.finished(leaves)
		if l := e.crossed(a, leaves); l != nil {
			// It was first after all: then it is a holder like any other.
			since = e.handOver(b, *l)
		}
		got := e.served(next)
		e.servedInTime(next, since)
		e.shows(b, got)
		e.end(b, got)
		e.free(a, key)
	}
}

func waitClosedAtTurn(e *Env) {
	a := e.open()
	key := e.key("contended")
	for i := range 12 {
		held := e.grant(a, key, alice)
		b := e.open()
		leaves := e.park(b, e.newWaiter(key, bob))
		next := e.park(a, e.newWaiter(key, carol))
		e.forget(b)
		var failed error
		var since time.Time
		e.race(2, func(part int) {
			// Now the one is first, now the other, now neither.
			e.pause(time.Duration((i%3-1)*(1-2*part)) * time.Millisecond)
			if part == 0 {
				failed = b.Close(e.ctx())
				return
			}
			_, _ = a.Release(e.ctx(), e.newRelease(held)) // as in waitCancelledAtTurn
			since = time.Now()
		})
		if failed != nil {
			e.Fatalf("close: got error %v", failed)
		}
		if got := e.get(a, held.ID); got.State != contract.StateReleased {
			e.Fatalf("the holder's lease is %s after its release", got.State)
		}
		e.finished(leaves)
		if l := e.crossed(a, leaves); l != nil {
			since = e.handOver(a, *l)
		} else {
			e.notHeldBy(a, a, leaves)
		}
		got := e.served(next)
		e.servedInTime(next, since)
		e.end(a, got)
		e.free(a, key)
	}
}

// crossed returns the lease that came of a waiting call which ended by itself
// while its turn came, or nil. Where the answer leaves the outcome unknown it
// asks again, which is what the answer is for.
func (e *Env) crossed(s contract.Store, c *call) *contract.Lease {
	e.Helper()
	res, err := e.known(s, c.req, c.res, c.err)
	code := contract.CodeOf(err)
	switch {
	case code == contract.CodeTimeout || code == contract.CodeClosed: // certainly not applied
	case err != nil:
		e.Fatalf("waiting acquire by %s: got error %v", c.req.Owner, err)
	case res.Outcome == contract.OutcomeAcquired:
		return e.answered("waiting acquire by "+c.req.Owner, res, nil, contract.OutcomeAcquired).Lease
	case res.Outcome != contract.OutcomeConflict:
		e.Fatalf("waiting acquire by %s: got %s, want acquired or conflict", c.req.Owner, describe(res))
	}
	return nil
}

func waitNoGrantAfterDeadline(e *Env) {
	a, b := e.pair()
	key := e.key("contended")
	for i := range 20 {
		held := e.grant(a, key, alice)
		const limit = 20 * time.Millisecond
		c := e.start(pick(i, b, a), e.newWaiter(key, bob), limit)
		// Releases spread over the moment at which the deadline passes.
		e.pause(limit + time.Duration(i%10-6)*time.Millisecond)
		e.end(a, held)
		e.finished(c)
		if l := e.crossed(b, c); l != nil {
			e.shows(a, *l)
			e.end(b, *l)
			continue
		}
		e.notHeldBy(a, b, c)
		e.free(a, key)
		// Neither does it come when the key is free for the next time.
		e.end(a, e.grant(b, key, carol))
		e.free(b, key)
		again := *c.req
		again.Wait = 0
		e.end(b, e.granted(b, &again))
	}
}

func replayServedWaiter(e *Env) {
	a, b := e.pair()
	held := e.grant(a, e.key("held"), alice)
	var served []*call
	for i := range 3 {
		served = append(served, e.park(pick(i, b, a), e.newWaiter(held.Key, fmt.Sprint("owner-", i))))
	}
	for i, c := range served {
		e.end(a, held)
		held = e.served(c)
		for _, s := range []contract.Store{a, b} {
			at := *c.req
			e.sameLease("the served waiter's replay", e.replayed(e.acquire(s, &at, contract.OutcomeAcquired)), held)
			at.Wait = 0
			e.sameLease("the served waiter's replay", e.replayed(e.acquire(s, &at, contract.OutcomeAcquired)), held)
		}
		e.waiting(served[i+1:]...)
		for _, before := range served[:i] {
			ended := *e.acquire(b, before.req, contract.OutcomeEndedReleased).Lease
			if ended.ID != before.res.Lease.ID {
				e.Fatalf("the replay of %s shows another lease than it was granted", before.req.Owner)
			}
		}
		e.shows(b, held)
	}
}
