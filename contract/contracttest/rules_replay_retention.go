package contracttest

import (
	"time"

	"leased/contract"
)

func replayRetentionRules() []Rule {
	return []Rule{
		{ID: "replay-retained-each", Func: replayRetainedEach,
			Sentence: "Each answer can be replayed for as long as its own request says, also when other requests about the lease say less."},
	}
}

// replayRetainedEach makes one request of each kind the only one about its lease
// that is remembered for long. History keeps nothing, so that a store which
// forgets the lease with the other requests has nothing to answer with.
func replayRetainedEach(e *Env) {
	a, b := e.pair()
	e.inTimeFor(func(life time.Duration) bool { return replayedEach(e, a, b, life) })
}

// inTimeFor looks at what lasts for a short life, and for longer ones while the
// machine is too slow to have looked before its end: then look says false.
func (e *Env) inTimeFor(look func(life time.Duration) bool) {
	e.Helper()
	life := e.short()
	for ; life < watchdog; life *= 2 {
		if look(life) {
			return
		}
	}
	e.Fatalf("what lasts for %v could not be looked at before its end: the harness lets too much time pass, or calls are slow", life/2)
}

func replayedEach(e *Env, a, b contract.Store, life time.Duration) bool {
	e.Helper()
	keep := contract.Retention{Idempotency: life, HistoryPerKey: 2}
	brief := keep
	brief.Idempotency /= 4
	ttl := e.long()
	grant := func(name string, keep contract.Retention) (*contract.AcquireRequest, contract.Lease) {
		r := e.newAcquire(e.key(name+life.String()), alice)
		r.Retention, r.TTL = keep, ttl
		return r, e.granted(a, r)
	}
	end := func(l contract.Lease) {
		r := e.newRelease(l)
		r.Retention = brief
		e.release(a, r, contract.OutcomeReleased)
	}
	sent := e.mark()
	acquire, l := grant("acquired", keep)
	end(l)
	// A store that keeps a lease for what was left of its TTL must not live on that.
	ttl = e.ttl(life / 2)
	fleeting, l := grant("fleeting", keep)
	ttl = e.long()
	ending := e.newRelease(l)
	ending.Retention = brief
	ended, err := a.Release(e.ctx(), ending)
	if e.atMost(sent) >= life/2 {
		return false // it may have expired before
	}
	e.answered("release", ended, err, contract.OutcomeReleased)
	_, l = grant("renewed", brief)
	renew := e.newRenew(l)
	renew.Retention = keep
	e.renew(a, renew, contract.OutcomeRenewed)
	end(l)
	_, l = grant("released", brief)
	release := e.newRelease(l)
	release.Retention = keep
	e.release(a, release, contract.OutcomeReleased)
	_, l = grant("revoked", brief)
	revoke := e.newRevoke(l)
	revoke.Retention = keep
	e.revoke(a, revoke, contract.OutcomeRevoked)
	looks := 0
	for _, at := range []time.Duration{keep.Idempotency / 2, keep.Idempotency * 3 / 4, keep.Idempotency * 9 / 10} {
		e.advance(at - e.atMost(sent))
		acquired, err1 := b.Acquire(e.ctx(), acquire)
		fled, err5 := b.Acquire(e.ctx(), fleeting)
		renewed, err2 := b.Renew(e.ctx(), renew)
		released, err3 := b.Release(e.ctx(), release)
		revoked, err4 := b.Revoke(e.ctx(), revoke)
		if e.atMost(sent) >= keep.Idempotency {
			break
		}
		e.replayed(e.answered("acquire again", acquired, err1, contract.OutcomeEndedReleased))
		e.replayed(e.answered("acquire of a short lease again", fled, err5, contract.OutcomeEndedReleased))
		e.replayed(e.answered("renew again", renewed, err2, contract.OutcomeEndedReleased))
		e.replayed(e.answered("release again", released, err3, contract.OutcomeReleased))
		e.replayed(e.answered("revoke again", revoked, err4, contract.OutcomeRevoked))
		looks++
	}
	return looks > 0
}
