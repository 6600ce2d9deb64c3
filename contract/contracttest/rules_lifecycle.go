package contracttest

import (
	"fmt"
	"sync"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"leased/contract"
)

func lifecycleRules() []Rule {
	return []Rule{
		{ID: "close-twice", Func: closeTwice,
			Sentence: "Closing again, also at the same time, answers the same."},
		{ID: "closed-answers-closed", Func: closedAnswersClosed,
			Sentence: "After close every method answers closed, and certainly nothing of it was applied."},
		{ID: "close-leaves-others", Func: closeLeavesOthers,
			Sentence: "Closing one gateway ends no lease and disturbs no other gateway; what it held can be renewed and released through another."},
		{ID: "close-in-flight", Func: closeInFlight,
			Sentence: "A call that meets the close is either carried out or answered closed, and closed means not applied."},
		{ID: "health-ready", Func: healthReady,
			Sentence: "Health of a store that serves is ready and shows the guarantees that the harness declares."},
		{ID: "health-counts", Func: healthCounts,
			Sentence: "Health counts the namespace's active leases and waiters, and no longer those that ended."},
	}
}

// health returns the health of the rule's namespace.
func (e *Env) health(s contract.Store) contract.Health {
	e.Helper()
	h, err := s.Health(e.ctx(), &contract.HealthRequest{Namespace: e.ns})
	if err != nil {
		e.Fatalf("health: got error %v", err)
	}
	return h
}

func closeTwice(e *Env) {
	a, b := e.pair()
	e.grant(b, e.key("held"), alice)
	e.forget(b)
	var answers [8]error
	e.race(len(answers), func(i int) { answers[i] = b.Close(e.ctx()) })
	for i, err := range append(answers[:], b.Close(e.ctx())) {
		if err != nil || answers[0] != nil {
			e.Errorf("close %d: got %v, and %v before; want no error", i, err, answers[0])
		}
	}
	e.grant(a, e.key("other"), alice)
}

func closedAnswersClosed(e *Env) {
	a, b := e.pair()
	held := e.grant(b, e.key("held"), alice)
	free := e.key("free")
	e.closeNow(b)
	for op, call := range e.mutations(b, held, free) {
		e.failed(op+" after close", call(e.ctx()), contract.CodeClosed, "")
		e.shows(a, held)
		e.free(a, free)
	}
	for op, call := range e.reads(b, held) {
		e.failed(op+" after close", call(e.ctx()), contract.CodeClosed, "")
	}
	_, err := b.Health(e.ctx(), &contract.HealthRequest{Namespace: e.ns})
	e.failed("health after close", err, contract.CodeClosed, "")
	if n := e.queueLength(a, held.Key); n != 0 {
		e.Errorf("%d wait for the key, want none", n)
	}
	if next := e.grant(a, free, bob); next.Token > farFloor {
		e.Errorf("the floor was raised after close: token %d after %d", next.Token, held.Token)
	}
}

func closeLeavesOthers(e *Env) {
	a, b := e.pair()
	r := e.newAcquire(e.key("held"), alice)
	held := e.granted(b, r)
	other := e.grant(a, e.key("other"), bob)
	waiter := e.park(a, e.newWaiter(held.Key, carol))
	e.closeNow(b)
	e.shows(a, held)
	e.shows(a, other)
	e.waiting(waiter)
	e.sameLease("the replayed grant", e.replayed(e.acquire(a, r, contract.OutcomeAcquired)), held)
	held = *e.renew(a, e.newRenew(held), contract.OutcomeRenewed).Lease
	e.end(a, held)
	c := e.open()
	e.shows(c, e.served(waiter))
	e.grant(c, e.key("new"), alice)
}

func closeInFlight(e *Env) {
	a, b := e.pair()
	e.grant(a, e.key("before"), alice)
	type attempt struct {
		key contract.Key
		res contract.Result
		err error
	}
	var mu sync.Mutex
	var attempts []attempt
	busy := make(chan struct{})
	var once sync.Once
	var callers sync.WaitGroup
	for i := range 8 {
		callers.Add(1)
		e.spawn(func() {
			defer callers.Done()
			for n := range 10_000 {
				at := attempt{key: e.key(fmt.Sprintf("key-%d-%d", i, n))}
				at.res, at.err = b.Acquire(e.ctx(), e.newAcquire(at.key, alice))
				mu.Lock()
				attempts = append(attempts, at)
				if len(attempts) == 20 {
					once.Do(func() { close(busy) })
				}
				mu.Unlock()
				if at.err != nil {
					return
				}
			}
		})
	}
	e.waitFor(busy, "calls to be in flight")
	e.closeNow(b)
	callers.Wait()
	granted := 0
	for _, at := range attempts {
		now := e.keyNow(a, at.key.ID())
		switch {
		case at.err != nil:
			e.failed("acquire beside close", at.err, contract.CodeClosed, "")
			if now.Lease != nil {
				e.Fatalf("an acquire was answered closed, and the key is held")
			}
		default:
			l := e.answered("acquire beside close", at.res, nil, contract.OutcomeAcquired).Lease
			if now.Lease == nil || now.Lease.ID != l.ID {
				e.Fatalf("an acquire beside close was granted, and the key is not held")
			}
			granted++
		}
	}
	if granted == len(attempts) {
		e.Errorf("none of %d calls met the close", granted)
	}
}

func healthReady(e *Env) {
	for range 2 {
		h := e.health(e.open())
		if !h.Ready {
			e.Errorf("health: not ready, %q", h.Detail)
		}
		if diff := cmp.Diff(h.Guarantees, e.harness.Guarantees); diff != "" {
			e.Errorf("guarantees: (-health +harness)\n%s", diff)
		}
		words := h.Guarantees
		for what, text := range map[string]string{
			"process crash": words.ProcessCrash, "machine crash": words.MachineCrash, "fail-over": words.FailOver,
			"partition": words.Partition, "clock step": words.ClockStep, "restore": words.Restore, "fairness": words.Fairness,
		} {
			if text == "" {
				e.Errorf("guarantees: nothing is said of %s", what)
			}
		}
		h.Guarantees, h.Leader, h.Lag = contract.Guarantees{}, "", 0
		if diff := cmp.Diff(h, contract.Health{Ready: true}, cmpopts.IgnoreFields(contract.Health{}, "Detail")); diff != "" {
			e.Errorf("health of an unused namespace: (-got +want)\n%s", diff)
		}
	}
}

func healthCounts(e *Env) {
	a, b := e.pair()
	counts := func(leases, waiters int64) {
		e.Helper()
		for _, s := range []contract.Store{a, b} {
			e.eventually(fmt.Sprintf("health counts %d leases and %d waiters", leases, waiters), func() bool {
				h := e.health(s)
				return h.Ready && h.ActiveLeases == leases && h.Waiters == waiters
			})
		}
	}
	counts(0, 0)
	held := e.grant(a, e.key("held"), alice)
	revoked := e.grant(b, e.key("revoked"), alice)
	counts(2, 0)
	first, second := e.park(a, e.newWaiter(held.Key, bob)), e.park(b, e.newWaiter(held.Key, carol))
	counts(2, 2)
	e.gone(a, second)
	counts(2, 1)
	e.revoke(a, e.newRevoke(revoked), contract.OutcomeRevoked)
	counts(1, 1)
	r := e.newAcquire(e.key("brief"), alice)
	r.TTL = e.short()
	brief := e.granted(a, r)
	counts(2, 1)
	e.expire(brief)
	counts(1, 1)
	e.end(b, held)
	last := e.served(first)
	counts(1, 0)
	e.end(b, last)
	counts(0, 0)
	if h := e.health(b); h.Lag < 0 {
		e.Errorf("health: lag of %v", h.Lag)
	}
}
