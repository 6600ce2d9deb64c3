package contracttest

import (
	"maps"
	"time"

	"leased/contract"
)

func reuseRules() []Rule {
	return []Rule{
		{ID: "request-id-reused", Func: requestIDReused,
			Sentence: "A request id that comes again with any other input that changes what is done is reused: nothing of the stored answer is shown and nothing changes."},
		{ID: "request-id-reused-after-end", Func: requestIDReusedAfterEnd,
			Sentence: "A request id stays taken when its lease is over: another request under it is reused, and is granted nothing."},
		{ID: "request-id-ignores-circumstances", Func: requestIDIgnoresCircumstances,
			Sentence: "Wait, deadline, trace id, retention and quotas do not make another request of a repeated one."},
		{ID: "request-id-scopes", Func: requestIDScopes,
			Sentence: "The same request id of another owner, for another key, in another namespace or for another operation names another attempt."},
	}
}

// reused wants a call to be refused as another request under a taken id.
func (e *Env) reused(what string, res contract.Result, err error) {
	e.Helper()
	e.answered("another "+what+" under a taken request id", res, err, contract.OutcomeRequestIDReused)
	if res.Replayed {
		e.Errorf("another %s under a taken request id is marked as replayed", what)
	}
}

// otherAcquires lists requests that differ from r in one input each.
func (e *Env) otherAcquires(r *contract.AcquireRequest) map[string]*contract.AcquireRequest {
	others := map[string]*contract.AcquireRequest{}
	change := func(what string, f func(*contract.AcquireRequest)) {
		c := *r
		c.Metadata = maps.Clone(r.Metadata)
		f(&c)
		others[what] = &c
	}
	change("instance", func(c *contract.AcquireRequest) { c.Instance += "x" })
	change("TTL", func(c *contract.AcquireRequest) { c.TTL += e.ttl(0) })
	change("maximum lifetime", func(c *contract.AcquireRequest) { c.MaxLifetime += e.ttl(0) })
	change("execution id", func(c *contract.AcquireRequest) { c.ExecutionID += "x" })
	change("job id", func(c *contract.AcquireRequest) { c.JobID = "" })
	change("job and execution id exchanged", func(c *contract.AcquireRequest) { c.JobID, c.ExecutionID = c.ExecutionID, c.JobID })
	change("metadata added", func(c *contract.AcquireRequest) { c.Metadata["more"] = "" })
	change("metadata changed", func(c *contract.AcquireRequest) { c.Metadata["a"] = "x" })
	change("metadata missing", func(c *contract.AcquireRequest) { c.Metadata = nil })
	change("metadata run together", func(c *contract.AcquireRequest) { c.Metadata = map[string]string{"ab": "1", "c": "2"} })
	return others
}

func requestIDReused(e *Env) {
	a, b := e.pair()
	r := e.newAcquire(e.key("held"), alice)
	r.ExecutionID, r.JobID, r.Metadata = "exec-1", "job-17", map[string]string{"a": "b1", "c": "2"}
	l := e.granted(a, r)
	for what, other := range e.otherAcquires(r) {
		for _, s := range []contract.Store{a, b} {
			res, err := s.Acquire(e.ctx(), other)
			e.reused("acquire ("+what+")", res, err)
		}
		other.Wait = patience
		res, err := a.Acquire(e.ctx(), other)
		e.reused("waiting acquire ("+what+")", res, err)
		e.shows(b, l)
	}

	renew := e.newRenew(l)
	l = *e.renew(a, renew, contract.OutcomeRenewed).Lease
	for what, change := range map[string]func(*contract.RenewRequest){
		"instance": func(c *contract.RenewRequest) { c.Instance += "x" },
		"token":    func(c *contract.RenewRequest) { c.Token++ },
		"TTL":      func(c *contract.RenewRequest) { c.TTL = e.ttl(time.Minute) },
		"lease id": func(c *contract.RenewRequest) { c.LeaseID[31]++ },
	} {
		c := *renew
		change(&c)
		res, err := b.Renew(e.ctx(), &c)
		e.reused("renewal ("+what+")", res, err)
		e.shows(a, l)
	}
	replay := e.replayed(e.acquire(b, r, contract.OutcomeAcquired))
	e.sameLease("the replayed grant", replay, l)
}

func requestIDReusedAfterEnd(e *Env) {
	a, b := e.pair()
	r := e.newAcquire(e.key("held"), alice)
	r.ExecutionID, r.JobID, r.Metadata = "exec-1", "job-17", map[string]string{"a": "b1", "c": "2"}
	l := e.granted(a, r)
	release := e.newRelease(l)
	l = *e.release(a, release, contract.OutcomeReleased).Lease
	for what, other := range e.otherAcquires(r) {
		res, err := b.Acquire(e.ctx(), other)
		e.reused("acquire ("+what+")", res, err)
		e.free(a, r.Key)
	}

	next := e.grant(b, r.Key, alice)
	for what, change := range map[string]func(*contract.ReleaseRequest){
		"instance":           func(c *contract.ReleaseRequest) { c.Instance += "x" },
		"token":              func(c *contract.ReleaseRequest) { c.Token++ },
		"the key's next one": func(c *contract.ReleaseRequest) { c.LeaseID, c.Token = next.ID, next.Token },
	} {
		c := *release
		change(&c)
		res, err := b.Release(e.ctx(), &c)
		e.reused("release ("+what+")", res, err)
		e.shows(a, next)
	}

	revoke := e.newRevoke(next)
	e.revoke(b, revoke, contract.OutcomeRevoked)
	last := e.grant(a, r.Key, alice)
	for what, change := range map[string]func(*contract.RevokeRequest){
		"mode":               func(c *contract.RevokeRequest) { c.Mode = contract.RevokeForceRelease },
		"reason":             func(c *contract.RevokeRequest) { c.Reason += "x" },
		"the key's next one": func(c *contract.RevokeRequest) { c.LeaseID = last.ID },
	} {
		c := *revoke
		change(&c)
		res, err := a.Revoke(e.ctx(), &c)
		e.reused("revocation ("+what+")", res, err)
		e.shows(b, last)
	}
	e.sameLease("the replayed release", e.replayed(e.release(b, release, contract.OutcomeReleased)), l)
}

func requestIDIgnoresCircumstances(e *Env) {
	a, b := e.pair()
	r := e.newAcquire(e.key("held"), alice)
	r.TraceID = "trace-1"
	l := e.granted(a, r)
	for i, change := range []func(*contract.AcquireRequest){
		func(c *contract.AcquireRequest) { c.Wait = patience },
		func(c *contract.AcquireRequest) { c.TraceID = "trace-2" },
		func(c *contract.AcquireRequest) { c.Retention.Idempotency *= 2 },
		func(c *contract.AcquireRequest) { c.Retention.HistoryPerKey = 8 },
		func(c *contract.AcquireRequest) { c.Limits = contract.Limits{LeasesPerOwner: 1, WaitersPerKey: 1} },
	} {
		c := *r
		change(&c)
		res, err := pick(i, b, a).Acquire(e.within(time.Duration(i+1)*5*time.Second), &c)
		e.answered("the same acquire in other circumstances", res, err, contract.OutcomeAcquired)
		e.sameLease("the replayed grant", e.replayed(res), l)
	}
	renew := e.newRenew(l)
	l = *e.renew(a, renew, contract.OutcomeRenewed).Lease
	again := *renew
	again.TraceID, again.Retention.Idempotency = "trace-3", time.Hour
	e.sameLease("the replayed renewal", e.replayed(e.renew(b, &again, contract.OutcomeRenewed)), l)
	release := e.newRelease(l)
	l = *e.release(b, release, contract.OutcomeReleased).Lease
	twice := *release
	twice.TraceID, twice.Retention.Idempotency = "trace-4", time.Hour
	e.sameLease("the replayed release", e.replayed(e.release(a, &twice, contract.OutcomeReleased)), l)
}

func requestIDScopes(e *Env) {
	a, b := e.pair()
	const id = "the-one"
	first := e.newAcquire(e.key("first"), alice)
	first.RequestID = id
	l := e.granted(a, first)

	// Another owner's call shows what it would show under any id.
	theirs := *first
	theirs.Owner, theirs.Instance = bob, "bob-1"
	e.acquire(b, &theirs, contract.OutcomeConflict)
	sameInstance := *first
	sameInstance.Owner = bob
	e.acquire(b, &sameInstance, contract.OutcomeConflict)
	second := *first
	second.Key = e.key("second")
	other := e.granted(b, &second)
	elsewhere := *first
	elsewhere.Namespace = e.ns + "/2"
	res, err := b.Acquire(e.ctx(), &elsewhere)
	e.answered("acquire in another namespace", res, err, contract.OutcomeAcquired)
	if res.Replayed || res.Lease.ID == l.ID {
		e.Fatalf("acquire in another namespace under the same request id: got %s, want a grant of its own", describe(res))
	}

	renew := e.newRenew(l)
	renew.RequestID = id
	l = *e.renew(b, renew, contract.OutcomeRenewed).Lease
	notTheirs := *renew
	notTheirs.Owner = bob
	e.renew(a, &notTheirs, contract.OutcomeNotOwner)
	renewOther := e.newRenew(other)
	renewOther.RequestID = id
	if res := e.renew(a, renewOther, contract.OutcomeRenewed); res.Replayed || res.Lease.ID != other.ID {
		e.Fatalf("renewal of another key's lease under the same request id: got %s, want a renewal of its own", describe(res))
	}
	release := e.newRelease(l)
	release.RequestID = id
	stranger := *release
	stranger.Owner = bob
	e.release(a, &stranger, contract.OutcomeNotOwner)
	if res := e.release(a, release, contract.OutcomeReleased); res.Replayed {
		e.Fatalf("release under the id of the acquire: marked as replayed")
	}
	e.release(b, &stranger, contract.OutcomeNotOwner)
	next := e.newAcquire(first.Key, bob)
	next.RequestID = id
	held := e.granted(b, next)
	revoke := e.newRevoke(held)
	revoke.RequestID, revoke.Principal = id, alice
	if res := e.revoke(a, revoke, contract.OutcomeRevoked); res.Replayed {
		e.Fatalf("revocation under the id of the release: marked as replayed")
	}
}
