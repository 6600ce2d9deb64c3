package contracttest

import (
	"fmt"
	"time"

	"leased/contract"
)

func queueRules() []Rule {
	return []Rule{
		{ID: "wait-fifo", Func: waitFIFO,
			Sentence: "Waiters of a key are served first come first served, over all gateways, one for each time the key becomes free."},
		{ID: "wait-served-however-ended", Func: waitServedHoweverEnded,
			Sentence: "The next waiter is served when the lease is released, revoked or expires, without anybody else asking."},
		{ID: "wait-queue-length", Func: waitQueueLength,
			Sentence: "Conflict, key and health count those who wait, on every gateway, and each waiter counts once."},
		{ID: "wait-copy-without-wait", Func: waitCopyWithoutWait,
			Sentence: "A copy of a waiting acquire that does not wait itself gets a conflict with its position, and the place stays where it is."},
		{ID: "wait-reused-id", Func: waitReusedID,
			Sentence: "The request id of a waiter is taken: another request under it is reused, and neither joins nor disturbs the queue."},
		{ID: "wait-quota", Func: waitQuota,
			Sentence: "A key for which as many callers wait as the namespace allows refuses further waiters; who has a place and who does not wait is not refused, and who is away gives way to a newcomer."},
		{ID: "wait-quota-room", Func: waitQuotaRoom,
			Sentence: "A newcomer to a full queue gets the room of the first in it that is away, whoever left first, and of nobody else."},
		{ID: "wait-quota-lowered", Func: waitQuotaLowered,
			Sentence: "When the namespace allows fewer waiters than a key has places, as many of those that are away give way to a newcomer as it takes."},
		{ID: "wait-lease-quota", Func: waitLeaseQuota,
			Sentence: "A waiter whose owner has as many leases as the namespace allows when its turn comes is refused for that, and the next one is served."},
		{ID: "wait-independent", Func: waitIndependent,
			Sentence: "Waiting for one key delays nobody at another, and ending one lease serves its own waiters only."},
		{ID: "wait-free-key", Func: waitFreeKey,
			Sentence: "An acquire that may wait is granted a free key at once."},
	}
}

func waitFIFO(e *Env) {
	a, b := e.pair()
	held := e.grant(a, e.key("held"), "owner-0")
	const waiters = 7
	calls := make([]*call, waiters)
	for i := range calls {
		// Owners repeat: two requests of one owner are two waiters.
		calls[i] = e.park(pick(i*3/2, a, b), e.newWaiter(held.Key, fmt.Sprint("owner-", i%4)))
	}
	for i, c := range calls {
		e.waiting(calls[i:]...)
		e.end(pick(i/2, b, a), held)
		got := e.served(c)
		if got.Token <= held.Token || got.RequestID != c.req.RequestID || c.res.Replayed {
			e.Fatalf("waiter %d: got token %d after %d, request id %q, want its own and a higher token", i, got.Token, held.Token, got.RequestID)
		}
		e.shows(pick(i, a, b), got)
		if n := e.queueLength(a, held.Key); n != waiters-1-i {
			e.Fatalf("%d wait after waiter %d was served, want %d", n, i, waiters-1-i)
		}
		held = got
	}
	e.end(a, held)
	e.free(b, held.Key)
}

func waitServedHoweverEnded(e *Env) {
	a, b := e.pair()
	ends := map[string]func(l contract.Lease){
		"release": func(l contract.Lease) { e.end(a, l) },
		"revoke":  func(l contract.Lease) { e.revoke(b, e.newRevoke(l), contract.OutcomeRevoked) },
		"expiry":  func(l contract.Lease) { e.expire(l) },
	}
	for _, how := range []string{"release", "revoke", "expiry"} {
		r := e.newAcquire(e.key(how), alice)
		if how == "expiry" {
			r.TTL = e.short()
		}
		l := e.granted(a, r)
		first, second := e.park(b, e.newWaiter(r.Key, bob)), e.park(a, e.newWaiter(r.Key, carol))
		ends[how](l)
		got := e.served(first)
		e.waiting(second)
		ended := e.get(b, l.ID)
		if !ended.State.Terminal() || got.AcquiredAt.Before(ended.EndedAt) {
			e.Errorf("after %s: the lease is %s, ended at %v, and the next was granted at %v", how, ended.State, ended.EndedAt, got.AcquiredAt)
		}
		e.shows(a, got)
		e.end(b, got)
		e.end(b, e.served(second))
	}
}

func waitQueueLength(e *Env) {
	a, b := e.pair()
	held := e.grant(a, e.key("held"), alice)
	counts := func(want int) {
		e.Helper()
		for _, s := range []contract.Store{a, b} {
			if n := e.queueLength(s, held.Key); n != want {
				e.Errorf("key: %d wait, want %d", n, want)
			}
			if q := e.acquire(s, e.newAcquire(held.Key, carol), contract.OutcomeConflict).Queue; q.Length != want || q.Position != 0 {
				e.Errorf("conflict: got %+v, want length %d and no position", q, want)
			}
			e.eventually(fmt.Sprintf("health counts %d waiters", want), func() bool {
				return e.health(s).Waiters == int64(want)
			})
		}
	}
	counts(0)
	var calls []*call
	for i := range 3 {
		calls = append(calls, e.park(pick(i, a, b), e.newWaiter(held.Key, bob)))
		counts(i + 1)
	}
	// Copies of a waiting request are the same waiter. When they have come to
	// wait nothing tells, so there are several, and more than one look.
	var copied []*call
	for i := range 6 {
		copied = append(copied, e.start(pick(i, a, b), calls[1].req, watchdog))
	}
	for range 5 {
		e.pause(5 * time.Millisecond)
		counts(3)
	}
	e.waiting(copied...)
	e.end(a, held)
	held = e.served(calls[0])
	counts(2)
	e.end(b, held)
	held = e.served(calls[1])
	for _, c := range copied {
		e.served(c)
	}
	counts(1)
	e.end(b, held)
	held = e.served(calls[2])
	counts(0)
}

func waitCopyWithoutWait(e *Env) {
	a, b := e.pair()
	held := e.grant(a, e.key("held"), alice)
	first, second := e.park(a, e.newWaiter(held.Key, bob)), e.park(b, e.newWaiter(held.Key, carol))
	for i, c := range []*call{first, second} {
		for _, s := range []contract.Store{a, b} {
			peek := *c.req
			peek.Wait = 0
			res := e.acquire(s, &peek, contract.OutcomeConflict)
			e.sameLease("the holder in the conflict", *res.Lease, held)
			if want := (contract.Queue{Length: 2, Position: i + 1}); res.Queue != want {
				e.Errorf("queue: got %+v, want %+v", res.Queue, want)
			}
		}
	}
	e.waiting(first, second)
	e.end(b, held)
	held = e.served(first)
	e.waiting(second)
	e.end(a, held)
	e.served(second)
}

func waitReusedID(e *Env) {
	a, b := e.pair()
	held := e.grant(a, e.key("held"), alice)
	r := e.newWaiter(held.Key, bob)
	r.ExecutionID, r.JobID, r.Metadata = "exec-1", "job-17", map[string]string{"a": "b1", "c": "2"}
	c := e.park(a, r)
	for what, other := range e.otherAcquires(r) {
		for i, s := range []contract.Store{a, b} {
			other.Wait = patience * time.Duration(i)
			res, err := s.Acquire(e.ctx(), other)
			e.reused("acquire ("+what+")", res, err)
		}
	}
	e.waiting(c)
	if n := e.queueLength(b, held.Key); n != 1 {
		e.Errorf("%d wait for the key, want 1", n)
	}
	e.end(b, held)
	got := e.served(c)
	if got.JobID != r.JobID || got.Instance != r.Instance {
		e.Errorf("the waiter was granted %+v, want what it asked for", got)
	}
}

func waitQuota(e *Env) {
	a, b := e.pair()
	held := e.grant(a, e.key("held"), alice)
	waiter := func(owner string) *contract.AcquireRequest {
		r := e.newWaiter(held.Key, owner)
		r.Limits.WaitersPerKey = 2
		return r
	}
	full := func(s contract.Store) {
		e.Helper()
		res := e.acquire(s, waiter(carol), contract.OutcomeQuotaExceeded)
		if res.Limit != "waiters_per_key" {
			e.Fatalf("limit: got %q, want waiters_per_key", res.Limit)
		}
		now := waiter(carol)
		now.Wait = 0
		e.acquire(s, now, contract.OutcomeConflict)
	}
	first, second := e.park(a, waiter(bob)), e.park(b, waiter(bob))
	full(a)
	full(b)
	e.gone(a, first)
	first = e.park(b, first.req) // its place is kept
	full(a)
	e.gone(b, first)
	third := e.park(a, waiter(carol)) // in the room of who is away
	full(b)
	e.acquire(b, first.req, contract.OutcomeQuotaExceeded)
	e.end(a, held)
	held = e.served(second)
	e.waiting(third)
	fourth := e.park(b, waiter(bob))
	e.end(a, held)
	held = e.served(third)
	e.waiting(fourth)
	third = fourth
	e.end(a, held)
	e.end(a, e.served(third))
}

func waitQuotaRoom(e *Env) {
	a, b := e.pair()
	held := e.grant(a, e.key("held"), alice)
	waiter := func(owner string) *contract.AcquireRequest {
		r := e.newWaiter(held.Key, owner)
		r.Limits.WaitersPerKey = 2
		return r
	}
	first, second := e.park(a, waiter(bob)), e.park(b, waiter(bob))
	e.gone(b, second)
	e.gone(a, first)
	newcomer := e.park(b, waiter(carol))
	back := func(c *call) *call {
		r := *c.req
		r.Limits.WaitersPerKey = 4
		return e.park(a, &r)
	}
	first, second = back(first), back(second) // only the first has lost its place
	e.end(a, held)
	held = e.served(second)
	e.waiting(newcomer, first)
	e.end(b, held)
	held = e.served(newcomer)
	e.waiting(first)
	e.end(a, held)
	e.end(b, e.served(first))
}

func waitQuotaLowered(e *Env) {
	a, b := e.pair()
	held := e.grant(a, e.key("held"), alice)
	waiter := func(owner string, limit int) *contract.AcquireRequest {
		r := e.newWaiter(held.Key, owner)
		r.Limits.WaitersPerKey = limit
		return r
	}
	first := e.park(a, waiter(bob, 4))
	var away []*call
	for i := range 3 {
		away = append(away, e.park(pick(i, a, b), waiter(bob, 4)))
	}
	for _, c := range away {
		e.gone(a, c)
	}
	newcomer := e.park(b, waiter(carol, 2))
	back := *away[2].req
	back.Limits.WaitersPerKey = 4
	last := e.park(a, &back) // it has lost its place
	e.end(a, held)
	held = e.served(first)
	e.waiting(newcomer, last)
	e.end(a, held)
	held = e.served(newcomer)
	e.waiting(last)
	e.end(a, held)
	e.end(a, e.served(last))
}

func waitIndependent(e *Env) {
	a, b := e.pair()
	one, two := e.grant(a, e.key("one"), alice), e.grant(b, e.key("two"), alice)
	first, second := e.park(b, e.newWaiter(one.Key, bob)), e.park(b, e.newWaiter(two.Key, bob))
	for i := range 3 {
		e.end(b, e.grant(b, e.key(fmt.Sprint("other-", i)), bob))
	}
	e.end(a, two)
	e.served(second)
	e.waiting(first)
	e.shows(b, one)
	e.end(a, one)
	e.served(first)
}

func waitFreeKey(e *Env) {
	a, b := e.pair()
	for i := range 4 {
		c := e.start(pick(i, a, b), e.newWaiter(e.key("free"), bob), watchdog)
		l := e.served(c)
		if took := c.ended.Sub(c.began); took >= patience {
			e.Errorf("an acquire of a free key took %v", took)
		}
		e.end(pick(i/2, a, b), l)
	}
}
