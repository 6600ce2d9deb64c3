package contracttest

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"leased/contract"
)

func renewRules() []Rule {
	return []Rule{
		{ID: "renew-extends", Func: renewExtends,
			Sentence: "A renewal starts the TTL again under the same lease id and token, is counted, and changes nothing else."},
		{ID: "renew-ttl", Func: renewTTL,
			Sentence: "A renewal is granted the TTL it asks for, shorter or longer, and the one granted last when it asks for none."},
		{ID: "renew-compares-all", Func: renewComparesAll,
			Sentence: "A renewal that presents another owner, instance, token or lease id than the lease's is refused for what differs and changes nothing."},
		{ID: "renew-never-revives", Func: renewNeverRevives,
			Sentence: "A lease that expired, was released or was revoked is not renewed but told how it ended, and its key stays free."},
		{ID: "renew-max-lifetime", Func: renewMaxLifetime,
			Sentence: "However often it is renewed a lease does not outlive its maximum lifetime: near that it is granted what is left, and at it the lease ends."},
		{ID: "renew-races-expiry", Func: renewRacesExpiry,
			Sentence: "When a renewal and the end of the lease meet one of them is first: nobody is told of a renewal after the key went to another."},
		{ID: "renew-while-others-wait", Func: renewWhileOthersWait,
			Sentence: "Waiting takes nothing from the holder: a renewal of a lease that others wait for is granted like any other."},
	}
}

func renewExtends(e *Env) {
	a, b := e.pair()
	r := e.newAcquire(e.key("held"), alice)
	r.TTL = e.short()
	r.Metadata, r.JobID, r.TraceID = trickyMetadata(), "job-17", "trace-1"
	l := e.granted(a, r)
	for i := range 3 {
		e.advance(r.TTL / 4)
		renew := e.newRenew(l)
		renew.TraceID = "trace-2"
		sent := e.mark()
		got := *e.renew(pick(i, b, a), renew, contract.OutcomeRenewed).Lease
		e.leftAfter("the renewed lease", got.ExpiresIn, r.TTL, 0, e.atMost(sent))

		want := l
		want.Renewals, want.RenewedAt, want.ExpiresAt = uint64(i+1), got.RenewedAt, got.ExpiresAt
		e.sameLease("the renewed lease", got, want)
		if !got.RenewedAt.After(l.RenewedAt) || !got.ExpiresAt.After(l.ExpiresAt) {
			e.Errorf("renewal %d: renewed at %v until %v, before that %v until %v", i+1, got.RenewedAt, got.ExpiresAt, l.RenewedAt, l.ExpiresAt)
		}
		if life := got.ExpiresAt.Sub(got.RenewedAt); (life - r.TTL).Abs() > precision {
			e.Errorf("renewal %d lasts %v, want %v", i+1, life, r.TTL)
		}
		e.shows(pick(i, a, b), got)
		l = got
	}
}

func renewTTL(e *Env) {
	a, b := e.pair()
	r := e.newAcquire(e.key("held"), alice)
	r.TTL = e.ttl(time.Minute)
	l := e.granted(a, r)
	for i, step := range []struct{ ask, want time.Duration }{
		{0, r.TTL},
		{e.ttl(time.Hour), e.ttl(time.Hour)},
		{0, e.ttl(time.Hour)},
		{e.short(), e.short()},
		{0, e.short()},
	} {
		renew := e.newRenew(l)
		renew.TTL = step.ask
		sent := e.mark()
		l = *e.renew(pick(i, a, b), renew, contract.OutcomeRenewed).Lease
		if l.TTL != step.want || (l.ExpiresAt.Sub(l.RenewedAt)-step.want).Abs() > precision {
			e.Fatalf("asked for %v: granted %v, from %v to %v, want %v", step.ask, l.TTL, l.RenewedAt, l.ExpiresAt, step.want)
		}
		e.leftAfter("the renewed lease", l.ExpiresIn, step.want, 0, e.atMost(sent))
	}
	e.expire(l) // shortened, and it does end then
	e.check(a, l.KeyID, l.Token, contract.OutcomeEndedExpired)
}

// claim is what a caller presents as proof that it holds a lease.
type claim struct {
	what            string
	owner, instance string
	id              contract.LeaseID
	token           contract.Token
	want            contract.Outcome
}

// falseClaims returns a lease of alice's and claims to it that are wrong in one
// way each. The owner alone, or the instance with it, has passed for proof.
func (e *Env) falseClaims(s contract.Store) (contract.Lease, []claim) {
	e.Helper()
	e.raiseFloor(s, 100) // so that there are lower tokens
	held := e.grant(s, e.key("held"), alice)
	e.raiseFloor(s, held.Token) // tokens of different keys may be equal
	other := e.grant(s, e.key("other"), alice)
	e.raiseFloor(s, other.Token)
	theirs := e.grant(s, e.key("theirs"), bob)

	unknown := contract.NewLeaseID(held.KeyID, [16]byte{1, 2, 3})
	nowhere := contract.NewLeaseID(e.key("never leased").ID(), [16]byte(held.ID[16:]))
	swapped := contract.NewLeaseID(other.KeyID, [16]byte(held.ID[16:]))
	proof := claim{owner: held.Owner, instance: held.Instance, id: held.ID, token: held.Token}
	with := func(what string, want contract.Outcome, change func(*claim)) claim {
		c := proof
		c.what, c.want = what, want
		change(&c)
		return c
	}
	const notOwner, stale, notFound = contract.OutcomeNotOwner, contract.OutcomeStaleToken, contract.OutcomeNotFound
	return held, []claim{
		with("another owner", notOwner, func(c *claim) { c.owner = bob }),
		with("the owner in capitals", notOwner, func(c *claim) { c.owner = "Alice" }),
		with("an owner that begins the same", notOwner, func(c *claim) { c.owner = "alic" }),
		with("the owner as a pattern", notOwner, func(c *claim) { c.owner = "*" }),
		with("another instance", notOwner, func(c *claim) { c.instance = "alice-2" }),
		with("owner and instance exchanged", notOwner, func(c *claim) { c.owner, c.instance = c.instance, c.owner }),
		with("the next token", stale, func(c *claim) { c.token++ }),
		with("the token before", stale, func(c *claim) { c.token-- }),
		with("token 1", stale, func(c *claim) { c.token = 1 }),
		with("the highest token", stale, func(c *claim) { c.token = contract.MaxToken }),
		with("the token of another lease of the owner", stale, func(c *claim) { c.token = other.Token }),
		with("another owner and token", notOwner, func(c *claim) { c.owner, c.token = bob, theirs.Token }),
		with("another lease of the owner", stale, func(c *claim) { c.id = other.ID }),
		with("another owner's lease and token", notOwner, func(c *claim) { c.id, c.token = theirs.ID, theirs.Token }),
		with("a lease id of the key that was never granted", notFound, func(c *claim) { c.id = unknown }),
		with("a lease id of a key that was never leased", notFound, func(c *claim) { c.id = nowhere }),
		with("a lease id made of two", notFound, func(c *claim) { c.id = swapped }),
	}
}

func renewComparesAll(e *Env) {
	a, b := e.pair()
	held, claims := e.falseClaims(a)
	for i, c := range claims {
		res, err := pick(i, a, b).Renew(e.ctx(), e.renewWith(held, c))
		e.answered("renew with "+c.what, res, err, c.want)
		e.shows(b, held)
	}
	e.renew(b, e.newRenew(held), contract.OutcomeRenewed)
}

func (e *Env) renewWith(held contract.Lease, c claim) *contract.RenewRequest {
	r := e.newRenew(held)
	r.Owner, r.Instance, r.LeaseID, r.Token = c.owner, c.instance, c.id, c.token
	return r
}

// over is a lease that has ended, and what its holder is told from then on.
type over struct {
	how    string
	req    *contract.AcquireRequest
	lease  contract.Lease // as it ended
	answer contract.Outcome
}

// eachEnding ends a lease of alice's in each of the three ways.
func (e *Env) eachEnding(s contract.Store) []over {
	e.Helper()
	grant := func(name string, ttl time.Duration) (*contract.AcquireRequest, contract.Lease) {
		r := e.newAcquire(e.key(name), alice)
		r.TTL = ttl
		return r, e.granted(s, r)
	}
	expiring, expires := grant("expired", e.short())
	releasing, releases := grant("released", e.long())
	revoking, revokes := grant("revoked", e.long())
	e.end(s, releases)
	e.revoke(s, e.newRevoke(revokes), contract.OutcomeRevoked)
	e.expire(expires)
	return []over{
		{"expired", expiring, e.get(s, expires.ID), contract.OutcomeEndedExpired},
		{"released", releasing, e.get(s, releases.ID), contract.OutcomeEndedReleased},
		{"revoked", revoking, e.get(s, revokes.ID), contract.OutcomeEndedRevoked},
	}
}

func renewNeverRevives(e *Env) {
	a, b := e.pair()
	for _, o := range e.eachEnding(a) {
		for _, s := range []contract.Store{a, b} {
			res := e.renew(s, e.newRenew(o.lease), o.answer)
			e.sameLease("the lease as it ended", *res.Lease, o.lease)
			e.free(s, o.lease.Key)
			e.shows(s, o.lease)
		}
		// A stranger does not learn how it ended.
		wrong := e.newRenew(o.lease)
		wrong.Owner = bob
		e.renew(b, wrong, contract.OutcomeNotOwner)
		wrong = e.newRenew(o.lease)
		wrong.Token++
		e.renew(b, wrong, contract.OutcomeStaleToken)

		next := e.grant(b, o.lease.Key, alice)
		e.renew(a, e.newRenew(o.lease), o.answer)
		e.shows(a, next)
	}
}

func renewMaxLifetime(e *Env) {
	a, b := e.pair()
	r := e.newAcquire(e.key("held"), alice)
	r.TTL = e.short()
	r.MaxLifetime = r.TTL + e.ttl(r.TTL/2)
	l := e.granted(a, r)
	atCap := func(l contract.Lease) {
		e.Helper()
		if over := l.ExpiresAt.Sub(l.AcquiredAt) - r.MaxLifetime; over > precision {
			e.Fatalf("renewed to %v beyond the maximum lifetime of %v", over, r.MaxLifetime)
		}
	}
	e.advance(r.TTL * 2 / 3)
	// The whole lifetime is more than is left of it, and so is what the first of
	// the two is granted by the time of the second.
	for i, ask := range []time.Duration{r.MaxLifetime, 0} {
		renew := e.newRenew(l)
		renew.TTL = ask
		l = *e.renew(pick(i, b, a), renew, contract.OutcomeRenewed).Lease
		atCap(l)
		left := r.MaxLifetime - l.RenewedAt.Sub(l.AcquiredAt)
		if step := max(e.harness.Guarantees.Granularity, precision); l.TTL > left+precision || l.TTL < left-step {
			e.Fatalf("asked for %v with %v left of the maximum lifetime: granted %v", ask, left, l.TTL)
		}
		e.shows(b, l)
	}
	e.expire(l)
	e.renew(a, e.newRenew(l), contract.OutcomeEndedExpired)
	atCap(e.expired(b, l))

	// A lease granted its whole lifetime at once gains nothing by renewals.
	whole := e.newAcquire(e.key("whole"), alice)
	whole.TTL, whole.MaxLifetime = e.long(), e.long()
	w := e.granted(a, whole)
	renewed := *e.renew(b, e.newRenew(w), contract.OutcomeRenewed).Lease
	if d := renewed.ExpiresAt.Sub(w.ExpiresAt); d > precision || d < -max(e.harness.Guarantees.Granularity, precision) {
		e.Errorf("the end of a lease at its maximum lifetime moved by %v", d)
	}
}

func renewRacesExpiry(e *Env) {
	a, b := e.pair()
	for round := range 2 {
		r := e.newAcquire(e.key(fmt.Sprint("brief-", round)), alice)
		r.TTL = e.short()
		sent := e.mark()
		l := e.granted(a, r)
		next := e.park(b, e.newWaiter(r.Key, bob))
		endsFirst := round == 1
		if endsFirst {
			e.expire(l) // so that the renewals meet the hand-over to the next
		} else {
			e.advance(r.TTL - 2*precision - e.atMost(sent))
		}

		var renewals atomic.Uint64
		done := make(chan struct{})
		var renewers sync.WaitGroup
		for i := range 4 {
			renewers.Add(1)
			e.spawn(func() {
				defer renewers.Done()
				e.renewUntilOver(pick(i, a, b), l, next, &renewals)
			})
		}
		e.spawn(func() {
			renewers.Wait()
			close(done)
		})
		if !endsFirst {
			e.advance(4 * precision) // while they renew
		}
		e.waitFor(done, "the renewals")
		e.advance(r.TTL + e.harness.Guarantees.Slack)

		got := e.served(next)
		e.shows(a, got)
		ended := e.get(a, l.ID)
		if ended.State != contract.StateExpired || ended.Renewals != renewals.Load() || got.AcquiredAt.Before(ended.ExpiresAt) {
			e.Fatalf("%d renewals were acknowledged; the lease is %s with %d, until %v, and the next was granted at %v",
				renewals.Load(), ended.State, ended.Renewals, ended.ExpiresAt, got.AcquiredAt)
		}
	}
}

// renewUntilOver renews l a few times and wants no renewal after it was told
// that the lease is over, or after next was granted the key.
func (e *Env) renewUntilOver(s contract.Store, l contract.Lease, next *call, renewals *atomic.Uint64) {
	over := false
	for range 4 {
		select {
		case <-next.done:
			over = true
		default:
		}
		res, err := s.Renew(e.ctx(), e.newRenew(l))
		switch {
		case err != nil:
			e.Errorf("renew: got error %v", err)
		case res.Outcome == contract.OutcomeEndedExpired:
			over = true
		case res.Outcome != contract.OutcomeRenewed:
			e.Errorf("renew: got %s, want renewed or ended_expired", describe(res))
		case over:
			e.Errorf("renewed after the lease was over")
		default:
			renewals.Add(1)
		}
	}
}

func renewWhileOthersWait(e *Env) {
	a, b := e.pair()
	l := e.grant(a, e.key("held"), alice)
	first, second := e.park(a, e.newWaiter(l.Key, bob)), e.park(b, e.newWaiter(l.Key, carol))
	for i := range 4 {
		sent := e.mark()
		got := *e.renew(pick(i, a, b), e.newRenew(l), contract.OutcomeRenewed).Lease
		e.leftAfter("a renewed lease that others wait for", got.ExpiresIn, l.TTL, 0, e.atMost(sent))
		e.waiting(first, second)
		e.shows(pick(i, b, a), got)
		if n := e.queueLength(a, l.Key); n != 2 {
			e.Errorf("%d wait for the key, want 2", n)
		}
	}
}
