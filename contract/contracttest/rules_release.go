package contracttest

import (
	"sync/atomic"

	"leased/contract"
)

func releaseRules() []Rule {
	return []Rule{
		{ID: "release-ends", Func: releaseEnds,
			Sentence: "A release ends the lease at once, on record as ended by its owner, and frees the key."},
		{ID: "release-compares-all", Func: releaseComparesAll,
			Sentence: "A release that presents another owner, instance, token or lease id than the lease's is refused for what differs and ends nothing."},
		{ID: "release-never-ends-newer", Func: releaseNeverEndsNewer,
			Sentence: "A release of an older lease of the key never ends the newer one, even of the same owner and instance and whichever part of the newer one it presents."},
		{ID: "release-of-ended", Func: releaseOfEnded,
			Sentence: "A release of a lease that is over answers how it ended and changes nothing."},
		{ID: "release-races-reacquire", Func: releaseRacesReacquire,
			Sentence: "Of releases that race, with acquires between them, exactly one ends the lease, and none ends the next."},
	}
}

func releaseEnds(e *Env) {
	a, b := e.pair()
	r := e.newAcquire(e.key("held"), alice)
	r.Metadata, r.JobID, r.TraceID = trickyMetadata(), "job-17", "trace-1"
	l := e.granted(a, r)
	release := e.newRelease(l)
	release.TraceID = "trace-2"
	got := *e.release(b, release, contract.OutcomeReleased).Lease
	want := l
	want.State, want.EndedAt, want.EndedBy = contract.StateReleased, got.EndedAt, alice
	e.sameLease("the released lease", got, want)
	e.free(a, l.Key)
	e.shows(a, got)
	e.shows(b, got)
	e.grant(a, l.Key, bob)
}

func (e *Env) releaseWith(held contract.Lease, c claim) *contract.ReleaseRequest {
	r := e.newRelease(held)
	r.Owner, r.Instance, r.LeaseID, r.Token = c.owner, c.instance, c.id, c.token
	return r
}

func releaseComparesAll(e *Env) {
	a, b := e.pair()
	held, claims := e.falseClaims(a)
	for i, c := range claims {
		res, err := pick(i, a, b).Release(e.ctx(), e.releaseWith(held, c))
		e.answered("release with "+c.what, res, err, c.want)
		e.shows(b, held)
	}
	e.end(b, held)
}

func releaseNeverEndsNewer(e *Env) {
	a, b := e.pair()
	for _, o := range e.eachEnding(a) {
		next := e.grant(b, o.lease.Key, alice)
		e.release(a, e.newRelease(o.lease), o.answer)
		e.shows(b, next)

		oldID, oldToken := next, next
		oldID.ID, oldToken.Token = o.lease.ID, o.lease.Token
		e.release(a, e.newRelease(oldID), contract.OutcomeStaleToken)
		e.release(a, e.newRelease(oldToken), contract.OutcomeStaleToken)
		e.shows(b, next)
		e.end(a, next)
	}
}

func releaseOfEnded(e *Env) {
	a, b := e.pair()
	for _, o := range e.eachEnding(a) {
		for _, s := range []contract.Store{a, b} {
			res := e.release(s, e.newRelease(o.lease), o.answer)
			e.sameLease("the lease as it ended", *res.Lease, o.lease)
			e.shows(s, o.lease)
		}
		wrong := e.newRelease(o.lease)
		wrong.Instance = "alice-2"
		e.release(b, wrong, contract.OutcomeNotOwner)
		wrong = e.newRelease(o.lease)
		wrong.Token++
		e.release(b, wrong, contract.OutcomeStaleToken)
	}
}

func releaseRacesReacquire(e *Env) {
	a, b := e.pair()
	key := e.key("contended")
	l := e.grant(a, key, alice)
	for range 8 {
		var ended, granted atomic.Int32
		var next atomic.Pointer[contract.Lease]
		e.race(8, func(i int) {
			s := pick(i, a, b)
			if i < 2 {
				// The same owner and instance, so that only id and token tell the
				// leases apart.
				for !e.Failed() && next.Load() == nil {
					res, err := s.Acquire(e.ctx(), e.newAcquire(key, alice))
					switch {
					case err != nil:
						e.Errorf("acquire: got error %v", err)
					case res.Outcome == contract.OutcomeAcquired:
						granted.Add(1)
						next.Store(res.Lease)
					}
				}
				return
			}
			res, err := s.Release(e.ctx(), e.newRelease(l))
			switch {
			case err != nil:
				e.Errorf("release: got error %v", err)
			case res.Outcome == contract.OutcomeReleased:
				ended.Add(1)
			case res.Outcome != contract.OutcomeEndedReleased:
				e.Errorf("release: got %s, want released or ended_released", describe(res))
			}
		})
		if e.Failed() {
			return
		}
		if ended.Load() != 1 || granted.Load() != 1 {
			e.Fatalf("%d releases ended the lease and %d acquires were granted, want one of each", ended.Load(), granted.Load())
		}
		e.shows(a, *next.Load())
		l = *next.Load()
	}
}
