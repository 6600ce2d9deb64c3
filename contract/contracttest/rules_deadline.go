package contracttest

import (
	"context"
	"time"

	"leased/contract"
)

func deadlineRules() []Rule {
	return []Rule{
		{ID: "deadline-ended-not-applied", Func: deadlineEndedNotApplied,
			Sentence: "A call whose context has ended before it is sent is a timeout, and certainly nothing of it was applied or remembered."},
		{ID: "deadline-defaulted", Func: deadlineDefaulted,
			Sentence: "A call without a deadline works, and gets the default one: however long it would wait, it answers by then."},
		{ID: "wait-ends-with-conflict", Func: waitEndsWithConflict, Timed: true,
			Sentence: "A waiter that is not served gets a conflict at the end of its wait, not before, and at most the answer slack later."},
		{ID: "wait-ends-with-deadline", Func: waitEndsWithDeadline, Timed: true,
			Sentence: "A deadline shorter than the wait ends the wait: a conflict, in time."},
		{ID: "wait-ends-bounded-for-many", Func: waitEndsBoundedForMany, Timed: true,
			Sentence: "However many wait for one key, each is answered by the end of its wait plus the answer slack."},
	}
}

// farFloor is above every token that a store grants without being told to: some
// take theirs from a clock.
const farFloor = contract.MaxToken - 1_000

// mutations are the calls that change something, aimed at a held key, a free one
// and the namespace.
func (e *Env) mutations(s contract.Store, held contract.Lease, free contract.Key) map[string]func(context.Context) error {
	acquire, waiter := e.newAcquire(free, bob), e.newWaiter(held.Key, bob)
	renew, bulk, release, revoke := e.newRenew(held), e.newBulk(held), e.newRelease(held), e.newRevoke(held)
	floor := &contract.RaiseFloorRequest{Namespace: e.ns, Above: farFloor}
	return map[string]func(context.Context) error{
		"acquire": func(ctx context.Context) error { _, err := s.Acquire(ctx, acquire); return err },
		"wait":    func(ctx context.Context) error { _, err := s.Acquire(ctx, waiter); return err },
		"renew":   func(ctx context.Context) error { _, err := s.Renew(ctx, renew); return err },
		"bulk":    func(ctx context.Context) error { _, err := s.RenewBulk(ctx, bulk); return err },
		"release": func(ctx context.Context) error { _, err := s.Release(ctx, release); return err },
		"revoke":  func(ctx context.Context) error { _, err := s.Revoke(ctx, revoke); return err },
		"floor":   func(ctx context.Context) error { return s.RaiseFloor(ctx, floor) },
	}
}

// reads are the calls that change nothing, but for health, which answers however
// the call fares.
func (e *Env) reads(s contract.Store, held contract.Lease) map[string]func(context.Context) error {
	return map[string]func(context.Context) error{
		"check": func(ctx context.Context) error {
			_, err := s.Check(ctx, &contract.CheckRequest{Namespace: e.ns, KeyID: held.KeyID, Token: held.Token})
			return err
		},
		"get": func(ctx context.Context) error {
			_, err := s.Get(ctx, &contract.GetRequest{Namespace: e.ns, LeaseID: held.ID})
			return err
		},
		"get key": func(ctx context.Context) error {
			_, err := s.GetKey(ctx, &contract.GetKeyRequest{Namespace: e.ns, KeyID: held.KeyID})
			return err
		},
		"list": func(ctx context.Context) error {
			_, err := s.List(ctx, &contract.ListRequest{Namespace: e.ns})
			return err
		},
		"history": func(ctx context.Context) error {
			_, err := s.History(ctx, &contract.HistoryRequest{Namespace: e.ns, KeyID: held.KeyID})
			return err
		},
		"watch": func(ctx context.Context) error {
			stream, err := s.Watch(ctx, &contract.WatchRequest{Namespace: e.ns})
			if err == nil {
				stream.Close()
			}
			return err
		},
	}
}

func deadlineEndedNotApplied(e *Env) {
	s := e.open()
	held := e.grant(s, e.key("held"), alice)
	free := e.key("free")
	cancelled, cancel := context.WithCancel(e.Context())
	cancel()
	late, stop := context.WithDeadline(e.Context(), time.Now().Add(-time.Second))
	defer stop()

	changes := e.mutations(s, held, free)
	for _, ctx := range []context.Context{cancelled, late} {
		for op, call := range changes {
			e.failed(op+" after its deadline", call(ctx), contract.CodeTimeout, "")
			e.shows(s, held)
			e.free(s, free)
		}
		for op, call := range e.reads(s, held) {
			e.failed(op+" after its deadline", call(ctx), contract.CodeTimeout, "")
		}
		// Health has no outcome to be in doubt of: it answers, ready or not.
		if _, err := s.Health(ctx, &contract.HealthRequest{Namespace: e.ns}); err != nil {
			e.Errorf("health after its deadline: got error %v, want an answer", err)
		}
	}
	if n := e.queueLength(s, held.Key); n != 0 {
		e.Errorf("%d wait for the key, though no call was in time", n)
	}
	if events := e.history(s, held.KeyID); len(events) != 1 {
		e.Errorf("%d events in the key's history, want the acquire alone", len(events))
	}
	next := e.grant(s, free, bob)
	if next.Token > farFloor {
		e.Errorf("the floor was raised by a call that was too late: token %d after %d", next.Token, held.Token)
	}
	// The request ids were not used up: what was too late can be sent again.
	if err := changes["release"](e.ctx()); err != nil {
		e.Fatalf("release, sent again in time: got error %v", err)
	}
	e.free(s, held.Key)
}

func deadlineDefaulted(e *Env) {
	s := e.open()
	held := e.grant(s, e.key("held"), alice)
	// Not from Env: the point is that there is no deadline. The rule's watchdogs
	// notice a call that does not come back.
	ctx := context.WithoutCancel(e.Context())
	for op, call := range e.reads(s, held) {
		if err := call(ctx); err != nil {
			e.Errorf("%s without a deadline: got error %v", op, err)
		}
	}
	waiter := e.newWaiter(held.Key, bob)
	waiter.Wait = time.Hour
	c := &call{store: s, req: waiter, done: make(chan struct{}), sent: time.Now()}
	e.spawn(func() {
		defer close(c.done)
		c.began = time.Now()
		c.res, c.err = s.Acquire(ctx, waiter)
		c.ended = time.Now()
	})
	e.refusedAtEnd(c)
	e.inTime("acquire without a deadline", c, contract.DefaultTimeout)

	changes := e.mutations(s, held, e.key("free"))
	delete(changes, "wait")
	for _, op := range []string{"acquire", "renew", "bulk", "release", "revoke", "floor"} {
		if err := changes[op](ctx); err != nil {
			e.Errorf("%s without a deadline: got error %v", op, err)
		}
	}
}

// inTime wants a call to have waited as long as it should, and not to have
// answered later than is promised. Each bound is measured from where a busy
// machine cannot break it: a call's goroutine may begin after its deadline did.
func (e *Env) inTime(what string, c *call, wait time.Duration) {
	e.Helper()
	if since := c.ended.Sub(c.sent); since < wait-precision {
		e.Errorf("%s answered after %v, before the %v were over", what, since, wait)
	}
	if late := e.since(c.began.Add(wait), c.ended); late > e.answerSlack {
		e.Errorf("%s answered %v after the %v were over, more than %v", what, late, wait, e.answerSlack)
	}
}

// nobodyWaits wants those whose wait has ended to stop counting. Their answers are
// promised by a time; a store that is slower than that may still be about it.
func (e *Env) nobodyWaits(key contract.Key) {
	e.Helper()
	e.eventually("those whose wait has ended stop counting", func() bool { return e.allCount(key, 0) })
}

func waitEndsWithConflict(e *Env) {
	a, b := e.pair()
	held := e.grant(a, e.key("held"), alice)
	for i, wait := range []time.Duration{time.Millisecond, 300 * time.Millisecond, time.Second} {
		r := e.newAcquire(held.Key, bob)
		r.Wait = wait
		c := e.start(pick(i, a, b), r, watchdog)
		res := e.refusedAtEnd(c)
		e.sameLease("the holder in the conflict", *res.Lease, held)
		e.inTime("a waiting acquire", c, wait)
		e.nobodyWaits(held.Key)
	}
	e.shows(b, held)
}

func waitEndsWithDeadline(e *Env) {
	a, b := e.pair()
	held := e.grant(a, e.key("held"), alice)
	for i, limit := range []time.Duration{300 * time.Millisecond, time.Second} {
		c := e.start(pick(i, a, b), e.newWaiter(held.Key, bob), limit)
		e.sameLease("the holder in the conflict", *e.refusedAtEnd(c).Lease, held)
		e.inTime("an acquire with a deadline", c, limit)
		e.nobodyWaits(held.Key)
	}
}

func waitEndsBoundedForMany(e *Env) {
	a, b := e.pair()
	held := e.grant(a, e.key("held"), alice)
	const many = 200
	wait := 2 * time.Second
	calls := make([]*call, many)
	for i := range calls {
		r := e.newAcquire(held.Key, bob)
		r.Wait = wait
		calls[i] = e.start(pick(i, a, b), r, watchdog)
	}
	for _, c := range calls {
		e.refusedAtEnd(c)
		e.inTime("one of many waiters", c, wait)
	}
	e.nobodyWaits(held.Key)
	e.shows(b, held)
}
