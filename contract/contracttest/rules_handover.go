package contracttest

import (
	"fmt"
	"sync"
	"time"

	"leased/contract"
)

func handoverRules() []Rule {
	return []Rule{
		{ID: "wait-no-barging", Func: waitNoBarging,
			Sentence: "A key that is released or revoked while somebody waits goes to the waiter: an acquire that comes at that moment does not overtake."},
		{ID: "wait-no-barging-at-expiry", Func: waitNoBargingAtExpiry,
			Sentence: "A key whose lease expires while somebody waits goes to the waiter, even if an acquire that does not wait is the first to notice."},
		{ID: "wait-no-grant-after-no", Func: waitNoGrantAfterNo,
			Sentence: "If a waiting acquire was told no, no lease of it appears later, however close the release was; and what was told to nobody is not replayed."},
		{ID: "wait-no-grant-after-cancel", Func: waitNoGrantAfterCancel,
			Sentence: "A waiter that cancels as its turn comes holds nothing afterwards, unless its answer was that the outcome is unknown; then the same request id finds out."},
		{ID: "wait-no-grant-after-deadline", Func: waitNoGrantAfterDeadline,
			Sentence: "If a waiting acquire was told no at its deadline, no lease of it appears later, however close the release was."},
		{ID: "wait-cancelled-at-turn", Func: waitCancelledAtTurn,
			Sentence: "A waiter that cancels as its turn comes does not keep the key from the next one, who is served within two seconds."},
		{ID: "wait-closed-at-turn", Func: waitClosedAtTurn,
			Sentence: "A waiter whose gateway closes as its turn comes holds nothing if it was told closed, and does not keep the key from the next one, who is served within two seconds."},
	}
}

// barge acquires the key without waiting, from both gateways and as fast as it
// can, until stop is closed. Nobody may be granted it.
func (e *Env) barge(key contract.Key, stop <-chan struct{}, stores ...contract.Store) *sync.WaitGroup {
	var bargers sync.WaitGroup
	for i, s := range stores {
		bargers.Add(1)
		e.spawn(func() {
			defer bargers.Done()
			for {
				select {
				case <-stop:
					return
				default:
				}
				res, err := s.Acquire(e.ctx(), e.newAcquire(key, fmt.Sprint("barger-", i)))
				if e.Failed() {
					return // the rule has come to its verdict and lets go of the key
				}
				if err != nil || res.Outcome != contract.OutcomeConflict {
					e.Errorf("an acquire that did not wait, while others did: got %s, error %v, want conflict", describe(res), err)
					return
				}
			}
		})
	}
	return &bargers
}

func waitNoBarging(e *Env) {
	a, b := e.pair()
	held := e.grant(a, e.key("held"), alice)
	calls := []*call{e.park(a, e.newWaiter(held.Key, bob))}
	stop := make(chan struct{})
	bargers := e.barge(held.Key, stop, a, b, a, b)
	for i := range 10 {
		// There is always somebody behind, so that the key is never to be had.
		calls = append(calls, e.park(pick(i, b, a), e.newWaiter(held.Key, carol)))
		if i%2 == 0 {
			e.end(pick(i/2, a, b), held)
		} else {
			e.revoke(pick(i/2, a, b), e.newRevoke(held), contract.OutcomeRevoked)
		}
		held = e.served(calls[i])
	}
	close(stop)
	bargers.Wait()
}

func waitNoBargingAtExpiry(e *Env) {
	a, b := e.pair()
	r := e.newAcquire(e.key("brief"), alice)
	r.TTL = e.short()
	l := e.granted(a, r)
	first, second := e.park(b, e.newWaiter(r.Key, bob)), e.park(a, e.newWaiter(r.Key, carol))
	stop := make(chan struct{})
	bargers := e.barge(r.Key, stop, a, b)
	e.expire(l)
	got := e.served(first)
	close(stop)
	bargers.Wait()
	e.waiting(second)
	e.shows(a, got)
}

func waitNoGrantAfterNo(e *Env) {
	a, b := e.pair()
	key := e.key("contended")
	noes := 0
	for i := range 30 {
		held := e.grant(a, key, alice)
		r := e.newAcquire(key, bob)
		r.Wait = 15 * time.Millisecond
		c := e.start(pick(i, b, a), r, watchdog)
		// Releases spread over the moment at which the wait ends.
		e.pause(r.Wait + time.Duration(i%10-6)*time.Millisecond)
		e.end(a, held)
		e.finished(c)
		// A store that did not know in time is asked again, as the answer says.
		if l := e.crossed(b, c); l != nil {
			e.end(b, *l)
			continue
		}
		noes++
		e.notHeldBy(a, b, c)
		// Its answer was no, so that asking again is a fresh attempt.
		again := *r
		again.Wait = 0
		e.end(b, e.granted(b, &again))
	}
	e.Logf("%d of 30 waits ended before the release", noes)
}

// notHeldBy wants no lease of the call's request to be there, and looks again
// after other calls on the key, by which time a stray grant would have landed.
func (e *Env) notHeldBy(a, b contract.Store, c *call) {
	e.Helper()
	for i := range 4 {
		if l := e.keyNow(pick(i, a, b), c.req.Key.ID()).Lease; l != nil && l.RequestID == c.req.RequestID {
			e.Fatalf("the waiter was told no, and now it holds the key with token %d", l.Token)
		}
	}
	for _, ev := range e.history(a, c.req.Key.ID()) {
		if ev.RequestID != c.req.RequestID {
			continue
		}
		// A grant that crossed the end of the wait is on record as undone.
		if ev.Kind != contract.EventReleased {
			e.Fatalf("the waiter was told no; the last thing on record of it is %s", ev.Kind)
		}
		break
	}
}

func waitNoGrantAfterCancel(e *Env) {
	a, b := e.pair()
	key := e.key("contended")
	for i := range 30 {
		held := e.grant(a, key, alice)
		c := e.park(pick(i, b, a), e.newWaiter(key, bob))
		// Mostly at the same time; else the waiter has gone just before.
		e.spawn(c.cancel)
		if i%3 == 0 {
			e.pause(time.Duration(i%4) * time.Millisecond)
		}
		e.end(a, held)
		e.finished(c)
		switch {
		case c.err == nil && c.res.Outcome == contract.OutcomeAcquired:
			e.end(b, e.served(c))
		case contract.CodeOf(c.err) == contract.CodeOutcomeUnknown:
			again := *c.req
			again.Wait = 0
			res := e.acquire(b, &again, contract.OutcomeAcquired)
			e.end(b, *res.Lease)
		case c.err != nil:
			e.failed("cancelled waiting acquire", c.err, contract.CodeTimeout, "")
			e.notHeldBy(a, b, c)
		case c.res.Outcome != contract.OutcomeConflict:
			e.Fatalf("cancelled waiting acquire: got %s", describe(c.res))
		default: // with or without a holder: if its own grant was undone there is none
			e.notHeldBy(a, b, c)
		}
		e.free(a, key)
	}
}
