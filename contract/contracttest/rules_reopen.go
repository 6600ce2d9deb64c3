package contracttest

import (
	"time"

	"leased/contract"
)

func reopenRules() []Rule {
	return []Rule{
		{ID: "reopen-keeps-leases", Func: reopenKeepsLeases, Reopens: true,
			Sentence: "After the backing store crashed and started again every acknowledged lease is as it was: held ones can be renewed and released, ended ones stay ended."},
		{ID: "reopen-keeps-answers", Func: reopenKeepsAnswers, Reopens: true,
			Sentence: "Answers that were acknowledged before a restart are replayed after it, and request ids stay taken."},
		{ID: "reopen-keeps-history", Func: reopenKeepsHistory, Reopens: true,
			Sentence: "The history survives a restart with its event ids, and a stream resumed after one of them shows what followed or says that it cannot."},
		{ID: "reopen-tokens-rise", Func: reopenTokensRise, Reopens: true,
			Sentence: "Tokens rise over restarts, whether the key was held, free or forgotten, and a raised floor stays raised."},
		{ID: "reopen-never-early", Func: reopenNeverEarly, Reopens: true,
			Sentence: "A restart ends no lease before its TTL has passed, and lets one end within TTL and slack of the backend's clock afterwards."},
		{ID: "reopen-keeps-places", Func: reopenKeepsPlaces, Reopens: true,
			Sentence: "After a restart all waiters are away and their places are kept: those who return with their request ids are served in the old order, before those who came later."},
		{ID: "reopen-keeps-counts", Func: reopenKeepsCounts, Reopens: true,
			Sentence: "After a restart quotas and health count what is held and what waits then: no lease twice, none that ended, and no waiter from before."},
		{ID: "reopen-keeps-cursors", Func: reopenKeepsCursors, Reopens: true,
			Sentence: "A list and a history go on after a restart where their cursors left off."},
		{ID: "reopen-again", Func: reopenAgain, Reopens: true,
			Sentence: "A store may be restarted any number of times, also with nothing in it."},
	}
}

func reopenKeepsLeases(e *Env) {
	a, b := e.pair()
	var all []contract.Lease
	for _, o := range e.eachEnding(a) {
		all = append(all, o.lease)
	}
	r := e.newAcquire(e.key("held"), alice)
	r.Metadata, r.JobID, r.ExecutionID, r.TraceID = trickyMetadata(), "job-17", "exec-1", "trace-1"
	held := e.granted(b, r)
	renewed := e.grant(a, e.key("renewed"), bob)
	renewed = *e.renew(b, e.newRenew(renewed), contract.OutcomeRenewed).Lease
	again := e.grant(b, all[0].Key, carol) // of a key whose last lease has ended
	all = append(all, held, renewed, again)

	s := e.reopen()
	for _, l := range all {
		e.kept(s, l)
	}
	for _, l := range []contract.Lease{held, renewed, again} {
		e.acquire(s, e.newAcquire(l.Key, "mallory"), contract.OutcomeConflict)
		next := *e.renew(s, e.newRenew(l), contract.OutcomeRenewed).Lease
		if next.Renewals != l.Renewals+1 {
			e.Errorf("%d renewals after the restart, want %d", next.Renewals, l.Renewals+1)
		}
		e.end(s, next)
		e.free(s, l.Key)
	}
}

// kept wants a lease to be as it was before the restart, and returns it as it is
// shown now. The end of one that is still active may be shown later than before,
// by the time for which no backend's clock ran, but no more is left of it.
func (e *Env) kept(s contract.Store, l contract.Lease) contract.Lease {
	e.Helper()
	got := e.get(s, l.ID)
	if l.State == contract.StateActive {
		if got.ExpiresAt.Before(l.ExpiresAt.Add(-precision)) || got.ExpiresIn > l.ExpiresIn {
			e.Fatalf("before the restart the lease ended at %v with %v left, after it at %v with %v left", l.ExpiresAt, l.ExpiresIn, got.ExpiresAt, got.ExpiresIn)
		}
		l.ExpiresAt = got.ExpiresAt
	}
	e.shows(s, l)
	return got
}

func reopenKeepsAnswers(e *Env) {
	s := e.open()
	endings := e.eachEnding(s)
	acquire := e.newAcquire(e.key("held"), alice)
	held := e.granted(s, acquire)
	renew := e.newRenew(held)
	held = *e.renew(s, renew, contract.OutcomeRenewed).Lease
	gone, out := e.grant(s, e.key("gone"), alice), e.grant(s, e.key("out"), alice)
	release, revoke := e.newRelease(gone), e.newRevoke(out)
	gone = *e.release(s, release, contract.OutcomeReleased).Lease
	out = *e.revoke(s, revoke, contract.OutcomeRevoked).Lease

	s = e.reopen()
	held = e.kept(s, held)
	e.sameLease("the replayed grant", e.replayed(e.acquire(s, acquire, contract.OutcomeAcquired)), held)
	e.sameLease("the replayed renewal", e.replayed(e.renew(s, renew, contract.OutcomeRenewed)), held)
	e.sameLease("the replayed release", e.replayed(e.release(s, release, contract.OutcomeReleased)), gone)
	e.sameLease("the replayed revocation", e.replayed(e.revoke(s, revoke, contract.OutcomeRevoked)), out)
	for _, o := range endings {
		e.sameLease("the lease as it ended", *e.acquire(s, o.req, o.answer).Lease, o.lease)
		e.free(s, o.lease.Key)
	}
	other := *acquire
	other.JobID = "another"
	res, err := s.Acquire(e.ctx(), &other)
	e.reused("acquire", res, err)
	e.shows(s, held)
}

func reopenKeepsHistory(e *Env) {
	a, b := e.pair()
	stream := e.watch(a, contract.WatchRequest{})
	told := e.tale(a, b)
	seen := e.nextN(stream, 2)
	before := e.history(b, e.key("two").ID())

	s := e.reopen()
	after := e.history(s, e.key("two").ID())
	e.owed("the history after the restart", after, before)
	for i, ev := range after {
		if ev.ID != before[i].ID {
			e.Fatalf("event %d had id %q before the restart and has %q after it", i, before[i].ID, ev.ID)
		}
	}
	l := e.grant(s, e.key("two"), carol)
	told = append(told, transition(l))
	if events := e.history(s, l.KeyID); len(events) != len(before)+1 {
		e.Fatalf("%d events in the history after one more, want %d", len(events), len(before)+1)
	}
	// What the stream had not read yet follows, or the store says that there
	// were events it can no longer show.
	resumed := e.watch(s, contract.WatchRequest{After: seen[1].ID})
	first := e.nextOrGap(resumed)
	if first.Kind != contract.EventGap {
		e.owed("the resumed stream", append([]contract.Event{first}, e.nextN(resumed, len(told)-3)...), told[2:])
		return
	}
	e.owed("the resumed stream after its gap", []contract.Event{e.lastOf(resumed, l)}, told[len(told)-1:])
}

// lastOf reads on to the event of l.
func (e *Env) lastOf(stream contract.Stream, l contract.Lease) contract.Event {
	e.Helper()
	for range 100 {
		if ev := e.nextOrGap(stream); ev.LeaseID == l.ID {
			return ev
		}
	}
	e.Fatalf("the stream does not come to what happened last")
	return contract.Event{}
}

func reopenTokensRise(e *Env) {
	s := e.open()
	held := e.grant(s, e.key("held"), alice)
	free := e.end(s, e.grant(s, e.key("free"), alice))
	last := max(held.Token, free.Token)
	for round := range 2 {
		s = e.reopen()
		e.check(s, held.KeyID, held.Token, contract.OutcomeCurrent)
		next := e.grant(s, free.Key, bob)
		e.end(s, held)
		again := e.grant(s, held.Key, bob)
		fresh := e.grant(s, e.key(e.id("new")), bob)
		if next.Token <= free.Token || again.Token <= held.Token || fresh.Token <= 0 {
			e.Fatalf("after restart %d: tokens %d and %d after %d and %d", round+1, next.Token, again.Token, free.Token, held.Token)
		}
		free, held = e.end(s, next), again
		last = max(last, next.Token, again.Token, fresh.Token)
	}
	floor := last + 5_000
	e.raiseFloor(s, floor)
	s = e.reopen()
	for _, key := range []contract.Key{free.Key, e.key("newest")} {
		if l := e.grant(s, key, alice); l.Token <= floor {
			e.Fatalf("token %d after a restart, with the floor at %d before it", l.Token, floor)
		}
	}
	e.kept(s, held)
}

func reopenNeverEarly(e *Env) {
	s := e.open()
	r := e.newAcquire(e.key("brief"), alice)
	r.TTL = e.ttl(4 * time.Second) // a restart takes part of it
	sent := e.mark()
	l := e.granted(s, r)
	s = e.reopen()
	served := e.mark()
	// If the restart took longer than the lease lives here, nothing can be said
	// but that it may have ended.
	if e.atMost(sent) < r.TTL*9/10 {
		e.livesOut(s, l, r.TTL, sent)
	}
	// What is shown to be left may be less than there is: a backend may count the
	// TTL afresh.
	e.advance(r.TTL + e.harness.Guarantees.Slack - e.atLeast(served))
	e.expired(s, e.get(s, l.ID))
	e.grant(s, l.Key, bob)
}

func reopenKeepsPlaces(e *Env) {
	a, b := e.pair()
	held := e.grant(a, e.key("held"), alice)
	first, second := e.newWaiter(held.Key, bob), e.newWaiter(held.Key, carol)
	cut := []*call{e.park(a, first), e.park(b, second)}
	s := e.reopen()
	for _, c := range cut {
		c.cancel()
		e.finished(c)
		if c.err == nil {
			e.Fatalf("a waiter whose gateway died was answered %s", describe(c.res))
		}
	}
	e.eventually("the waiters from before the restart are away", func() bool { return e.queueLength(s, held.Key) == 0 })
	late := e.park(s, e.newWaiter(held.Key, "dave"))
	other := e.open()
	back := []*call{e.park(other, second), e.park(s, first)} // they return the other way round
	for _, c := range []*call{back[1], back[0], late} {
		e.end(s, held)
		held = e.served(c)
	}
	e.end(other, held)
	e.free(s, held.Key)
}

func reopenAgain(e *Env) {
	e.open()
	s := e.reopen()
	l := e.grant(s, e.key("held"), alice)
	for range 3 {
		s = e.reopen()
		e.kept(s, l)
		l = *e.renew(s, e.newRenew(l), contract.OutcomeRenewed).Lease
	}
	e.end(s, l)
}
