package contracttest

import (
	"fmt"
	"time"

	"leased/contract"
)

func replayRules() []Rule {
	return []Rule{
		{ID: "replay-acquire", Func: replayAcquire,
			Sentence: "Repeating an acquire while its lease is active answers the same grant, marked as replayed, with the time left counted down and nothing extended."},
		{ID: "replay-acquire-after-renew", Func: replayAcquireAfterRenew,
			Sentence: "Repeating an acquire after the lease was renewed shows the lease as it is now."},
		{ID: "replay-acquire-ended", Func: replayAcquireEnded,
			Sentence: "Repeating an acquire whose lease is over answers how it ended, whoever holds the key now, and never grants again."},
		{ID: "replay-acquire-never-waits", Func: replayAcquireNeverWaits,
			Sentence: "A repeated acquire that may wait does not wait behind its own grant, whoever else waits, nor behind others once its lease is over."},
		{ID: "replay-served-waiter", Func: replayServedWaiter,
			Sentence: "Repeating an acquire that was served after waiting answers the same grant as replayed, whether or not the repetition may wait and others do."},
		{ID: "replay-renew", Func: replayRenew,
			Sentence: "Repeating a renewal while the lease is active answers as the first time, with the time left counted down, and renews nothing."},
		{ID: "replay-renew-ended", Func: replayRenewEnded,
			Sentence: "Repeating a renewal of a lease that is over answers how it ended."},
		{ID: "replay-release", Func: replayRelease,
			Sentence: "Repeating a release answers as the first time, also when the key is held again, and ends nothing more."},
		{ID: "replay-revoke", Func: replayRevoke,
			Sentence: "Repeating a revocation answers as the first time, also when the key is held again, and ends nothing more."},
		{ID: "replay-retained", Func: replayRetained,
			Sentence: "An answer can be replayed for as long as the request's retention says."},
		{ID: "replay-outlives-history", Func: replayOutlivesHistory,
			Sentence: "An answer is replayed for its whole retention even if the key's history no longer reaches back to it."},
		{ID: "refusal-not-stored", Func: refusalNotStored,
			Sentence: "A refusal is not stored under its request id: the same call may succeed later, with corrected input too, and is then no replay."},
	}
}

// replayed wants an answer to be the stored one.
func (e *Env) replayed(res contract.Result) contract.Lease {
	e.Helper()
	if !res.Replayed {
		e.Fatalf("%s: not marked as replayed", describe(res))
	}
	return *res.Lease
}

func replayAcquire(e *Env) {
	a, b := e.pair()
	r := e.newAcquire(e.key("held"), alice)
	r.TTL = e.ttl(time.Minute)
	r.Metadata = trickyMetadata()
	sent := e.mark()
	first := e.granted(a, r)
	known := e.mark()
	for i := range 4 {
		copied := *r // as it comes again over the network
		copied.Metadata = trickyMetadata()
		got := e.replayed(e.acquire(pick(i, b, a), &copied, contract.OutcomeAcquired))
		e.sameLease("the replayed grant", got, first)
		e.leftAfter("the replayed grant", got.ExpiresIn, r.TTL, e.atLeast(known), e.atMost(sent))
		e.shows(pick(i, a, b), first)
		e.advance(50 * time.Millisecond)
	}
	if events := e.history(a, first.KeyID); len(events) != 1 {
		e.Errorf("%d events in the key's history after replays, want the acquire alone", len(events))
	}
}

func replayAcquireAfterRenew(e *Env) {
	a, b := e.pair()
	r := e.newAcquire(e.key("held"), alice)
	l := e.granted(a, r)
	renew := e.newRenew(l)
	renew.TTL = 2 * e.long()
	renewed := *e.renew(b, renew, contract.OutcomeRenewed).Lease
	for i := range 2 {
		got := e.replayed(e.acquire(pick(i, a, b), r, contract.OutcomeAcquired))
		e.sameLease("the replayed grant", got, renewed)
		e.shows(pick(i, b, a), renewed)
	}
}

func replayAcquireEnded(e *Env) {
	a, b := e.pair()
	for _, o := range e.eachEnding(a) {
		replay := func(s contract.Store) {
			e.Helper()
			res := e.acquire(s, o.req, o.answer)
			e.sameLease("the lease as it ended", *res.Lease, o.lease)
		}
		replay(a)
		replay(b)
		e.free(b, o.lease.Key)
		next := e.grant(b, o.lease.Key, bob)
		replay(a)
		replay(b)
		e.shows(a, next)
		e.end(a, next)
		replay(a)
		e.free(a, o.lease.Key)
	}
}

func replayAcquireNeverWaits(e *Env) {
	// The first attempt may have been ready to wait, or not: the repetition is.
	for i, wait := range []time.Duration{0, patience} {
		a, b := e.pair()
		r := e.newAcquire(e.key(fmt.Sprint("held-", i)), alice)
		r.Wait = wait
		first := e.granted(a, r)
		other := e.park(b, e.newWaiter(r.Key, bob))
		e.repeatsAtOnce(a, b, r, first, contract.OutcomeAcquired)
		e.waiting(other)
		if n := e.queueLength(a, r.Key); n != 1 {
			e.Errorf("%d wait for the key, want 1", n)
		}
		first = e.end(b, first)
		e.served(other)
		e.repeatsAtOnce(b, a, r, first, contract.OutcomeEndedReleased)
		if n := e.queueLength(a, r.Key); n != 0 {
			e.Errorf("%d wait for the key, want none", n)
		}
	}
}

// repeatsAtOnce repeats r, ready to wait, on both handles.
func (e *Env) repeatsAtOnce(a, b contract.Store, r *contract.AcquireRequest, lease contract.Lease, want contract.Outcome) {
	e.Helper()
	again := *r
	again.Wait = patience
	for _, s := range []contract.Store{a, b} {
		c := e.start(s, &again, watchdog)
		e.finished(c)
		e.sameLease("the replay", *e.answered("acquire again", c.res, c.err, want).Lease, lease)
		if took := c.ended.Sub(c.began); took >= patience {
			e.Errorf("a repeated acquire took %v: it waited for its own lease", took)
		}
	}
}

func replayRenew(e *Env) {
	a, b := e.pair()
	l := e.grant(a, e.key("held"), alice)
	r := e.newRenew(l)
	r.TTL = e.ttl(time.Minute)
	sent := e.mark()
	first := *e.renew(a, r, contract.OutcomeRenewed).Lease
	known := e.mark()
	replay := func(s contract.Store) {
		e.Helper()
		got := e.replayed(e.renew(s, r, contract.OutcomeRenewed))
		e.sameLease("the replayed renewal", got, first)
		e.leftAfter("the replayed renewal", got.ExpiresIn, r.TTL, e.atLeast(known), e.atMost(sent))
	}
	for i := range 3 {
		replay(pick(i, b, a))
		e.shows(pick(i, a, b), first)
		e.advance(50 * time.Millisecond)
	}
	// The reply to this one was lost, the holder renewed again, and then the
	// first one is repeated.
	now := *e.renew(b, e.newRenew(l), contract.OutcomeRenewed).Lease
	replay(a)
	e.shows(b, now)
}

func replayRenewEnded(e *Env) {
	a, b := e.pair()
	renewed := map[string]*contract.RenewRequest{}
	// Renewed by a TTL that ends with the lease's own, so that expiry ends it.
	brief := e.newAcquire(e.key("brief"), alice)
	brief.TTL = e.short()
	l := e.granted(a, brief)
	renewed["expired"] = e.newRenew(l)
	l = *e.renew(a, renewed["expired"], contract.OutcomeRenewed).Lease
	released, revoked := e.grant(a, e.key("released"), alice), e.grant(a, e.key("revoked"), alice)
	renewed["released"], renewed["revoked"] = e.newRenew(released), e.newRenew(revoked)
	e.renew(a, renewed["released"], contract.OutcomeRenewed)
	e.renew(b, renewed["revoked"], contract.OutcomeRenewed)
	e.end(b, released)
	e.revoke(a, e.newRevoke(revoked), contract.OutcomeRevoked)
	e.expire(l)
	for how, want := range map[string]contract.Outcome{
		"expired": contract.OutcomeEndedExpired, "released": contract.OutcomeEndedReleased, "revoked": contract.OutcomeEndedRevoked,
	} {
		ended := e.get(a, renewed[how].LeaseID)
		for i, s := range []contract.Store{a, b} {
			e.sameLease("the lease as it ended", *e.renew(s, renewed[how], want).Lease, ended)
			if i == 0 {
				e.free(s, ended.Key)
				e.grant(s, ended.Key, bob)
			}
		}
	}
}

func replayRelease(e *Env) {
	a, b := e.pair()
	l := e.grant(a, e.key("held"), alice)
	r := e.newRelease(l)
	first := *e.release(a, r, contract.OutcomeReleased).Lease
	e.sameLease("the replayed release", e.replayed(e.release(b, r, contract.OutcomeReleased)), first)
	e.free(a, l.Key)
	next := e.grant(a, l.Key, alice)
	for _, s := range []contract.Store{a, b} {
		e.sameLease("the replayed release", e.replayed(e.release(s, r, contract.OutcomeReleased)), first)
		e.shows(s, next)
	}
	if events := e.history(a, l.KeyID); len(events) != 3 {
		e.Errorf("%d events in the key's history, want two acquires and a release", len(events))
	}
}

func replayRevoke(e *Env) {
	a, b := e.pair()
	l := e.grant(a, e.key("held"), alice)
	r := e.newRevoke(l)
	first := *e.revoke(a, r, contract.OutcomeRevoked).Lease
	e.sameLease("the replayed revocation", e.replayed(e.revoke(b, r, contract.OutcomeRevoked)), first)
	e.free(a, l.Key)
	next := e.grant(a, l.Key, alice)
	for _, s := range []contract.Store{a, b} {
		e.sameLease("the replayed revocation", e.replayed(e.revoke(s, r, contract.OutcomeRevoked)), first)
		e.shows(s, next)
	}
}

func replayRetained(e *Env) {
	a, b := e.pair()
	e.inTimeFor(func(life time.Duration) bool { return replayedFor(e, a, b, life) })
}

func replayedFor(e *Env, a, b contract.Store, life time.Duration) bool {
	e.Helper()
	keep := retention()
	keep.Idempotency = life
	r := e.newAcquire(e.key("held"+life.String()), alice)
	r.Retention = keep
	sent := e.mark()
	l := e.granted(a, r)
	renew, done := e.newRenew(l), e.grant(a, e.key("done"+life.String()), alice)
	release := e.newRelease(done)
	renew.Retention, release.Retention = keep, keep
	e.renew(a, renew, contract.OutcomeRenewed)
	e.release(a, release, contract.OutcomeReleased)
	looks := 0
	for _, at := range []time.Duration{keep.Idempotency / 2, keep.Idempotency * 9 / 10, keep.Idempotency - precision} {
		e.advance(at - e.atMost(sent))
		acquired, err1 := b.Acquire(e.ctx(), r)
		renewed, err2 := b.Renew(e.ctx(), renew)
		released, err3 := b.Release(e.ctx(), release)
		if e.atMost(sent) >= keep.Idempotency {
			break
		}
		e.replayed(e.answered("acquire again", acquired, err1, contract.OutcomeAcquired))
		e.replayed(e.answered("renew again", renewed, err2, contract.OutcomeRenewed))
		e.replayed(e.answered("release again", released, err3, contract.OutcomeReleased))
		looks++
	}
	return looks > 0
}

func replayOutlivesHistory(e *Env) {
	a, b := e.pair()
	keep := retention()
	keep.HistoryPerKey = 2
	r := e.newAcquire(e.key("often"), alice)
	r.Retention = keep
	l := e.granted(a, r)
	release := e.newRelease(l)
	release.Retention = keep
	ended := *e.release(a, release, contract.OutcomeReleased).Lease
	for range 4 {
		next := e.newAcquire(r.Key, bob)
		next.Retention = keep
		again := e.newRelease(e.granted(b, next))
		again.Retention = keep
		e.release(b, again, contract.OutcomeReleased)
	}
	for _, s := range []contract.Store{a, b} {
		e.sameLease("the lease as it ended", *e.acquire(s, r, contract.OutcomeEndedReleased).Lease, ended)
		e.sameLease("the replayed release", e.replayed(e.release(s, release, contract.OutcomeReleased)), ended)
		e.free(s, r.Key)
	}
}

func refusalNotStored(e *Env) {
	a, b := e.pair()
	fresh := func(res contract.Result) contract.Lease {
		e.Helper()
		if res.Replayed {
			e.Fatalf("%s: marked as replayed, but the call was refused before", describe(res))
		}
		return *res.Lease
	}
	held := e.grant(a, e.key("held"), bob)
	acquire := e.newAcquire(held.Key, alice)
	acquire.TTL = e.ttl(time.Minute)
	e.acquire(a, acquire, contract.OutcomeConflict)
	e.acquire(b, acquire, contract.OutcomeConflict)
	e.end(b, held)
	e.grant(a, e.key("other"), alice)
	acquire.Limits.LeasesPerOwner = 1
	e.acquire(a, acquire, contract.OutcomeQuotaExceeded)
	acquire.Limits.LeasesPerOwner = 0
	acquire.JobID = "job-17" // nothing of the refused attempts binds this one
	l := fresh(e.acquire(b, acquire, contract.OutcomeAcquired))

	renew, release := e.newRenew(l), e.newRelease(l)
	renew.Token, release.Token = l.Token+1, l.Token+1
	e.renew(a, renew, contract.OutcomeStaleToken)
	e.release(a, release, contract.OutcomeStaleToken)
	renew.Token, release.Token = l.Token, l.Token
	fresh(e.renew(b, renew, contract.OutcomeRenewed))

	revoke := e.newRevoke(l)
	revoke.LeaseID = contract.NewLeaseID(l.KeyID, [16]byte{1})
	e.revoke(a, revoke, contract.OutcomeNotFound)
	revoke.LeaseID = l.ID
	fresh(e.release(b, release, contract.OutcomeReleased))
	next := e.grant(b, l.Key, alice)
	revoke.LeaseID = next.ID
	fresh(e.revoke(b, revoke, contract.OutcomeRevoked))
	invalid := e.newAcquire(l.Key, alice)
	invalid.TTL = -1
	_, err := a.Acquire(e.ctx(), invalid)
	e.failed("acquire with a negative TTL", err, contract.CodeInvalid, "ttl_ms")
	invalid.TTL = e.long()
	fresh(e.acquire(b, invalid, contract.OutcomeAcquired))
}
