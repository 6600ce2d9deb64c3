package contracttest

import (
	"fmt"
	"time"

	"leased/contract"
)

func expiryRules() []Rule {
	return []Rule{
		{ID: "expiry-never-early", Func: expiryNeverEarly,
			Sentence: "A lease does not end before its TTL has passed on the backend's clock, and never shows more time than is left."},
		{ID: "expiry-in-slack", Func: expiryInSlack,
			Sentence: "A lease whose TTL has passed, and the declared slack, has expired for every read and every caller, whether or not anything was cleaned up."},
		{ID: "expiry-frees-key", Func: expiryFreesKey,
			Sentence: "An expired key is granted to whoever asks next, its former holder included, as a new lease with a higher token."},
		{ID: "expiry-counts-from-renewal", Func: expiryCountsFromRenewal,
			Sentence: "After a renewal the TTL counts from the renewal: not earlier, and not from the end of the old life."},
		{ID: "ttl-starts-at-grant", Func: ttlStartsAtGrant,
			Sentence: "TTL and maximum lifetime of a waiter start when it is granted the key, not when it began to wait."},
	}
}

// livesOut looks at a lease of the given life, counted from since, ever closer
// to its end, and wants it alive whenever its time cannot have passed. It stops
// where that can no longer be told.
func (e *Env) livesOut(s contract.Store, l contract.Lease, life time.Duration, since mark) {
	e.Helper()
	looks := 0
	after := e.mark() // the lease was granted by now
	for _, target := range []time.Duration{
		life / 2, life * 3 / 4, life * 9 / 10, life - 100*time.Millisecond, life - 20*time.Millisecond, life - precision,
	} {
		e.advance(target - e.atMost(since))
		res, err := s.Check(e.ctx(), &contract.CheckRequest{Namespace: l.Namespace, KeyID: l.KeyID, Token: l.Token})
		if e.atMost(since) >= life {
			break
		}
		at := fmt.Sprintf("check at most %v into a life of %v", e.atMost(since), life)
		seen := e.answered(at, res, err, contract.OutcomeCurrent)
		e.leftAfter(at, seen.Lease.ExpiresIn, life, e.atLeast(after), e.atMost(since))
		conflict, err := s.Acquire(e.ctx(), e.newAcquire(l.Key, carol))
		if e.atMost(since) >= life {
			// It came too late to tell anything, and then it may have been granted.
			if err == nil && conflict.Outcome == contract.OutcomeAcquired {
				e.end(s, *conflict.Lease)
			}
			break
		}
		e.answered(at+", then acquire", conflict, err, contract.OutcomeConflict)
		looks++
	}
	if looks == 0 {
		e.Fatalf("the lease of %v could not be looked at before its end: the harness lets too much time pass, or calls are slow", life)
	}
}

func expiryNeverEarly(e *Env) {
	a, b := e.pair()
	r := e.newAcquire(e.key("brief"), alice)
	r.TTL = e.short()
	sent := e.mark()
	l := e.granted(a, r)
	e.livesOut(b, l, r.TTL, sent)
}

func expiryCountsFromRenewal(e *Env) {
	a, b := e.pair()
	r := e.newAcquire(e.key("brief"), alice)
	r.TTL = e.short()
	l := e.granted(a, r)
	e.advance(r.TTL / 4)
	sent := e.mark()
	renewed := *e.renew(b, e.newRenew(l), contract.OutcomeRenewed).Lease
	e.livesOut(a, renewed, r.TTL, sent)
	e.expire(e.get(b, l.ID)) // what little is left
	e.expired(a, e.get(b, l.ID))
}

func expiryInSlack(e *Env) {
	a, b := e.pair()
	// Each key is looked at in one way only, so that no look cleans up for another.
	looks := map[string]func(l contract.Lease){
		"get": func(l contract.Lease) {
			if got := e.get(b, l.ID); got.State != contract.StateExpired {
				e.Errorf("get: got %s, want expired", got.State)
			}
		},
		"check": func(l contract.Lease) { e.check(b, l.KeyID, l.Token, contract.OutcomeEndedExpired) },
		"get key": func(l contract.Lease) {
			now := e.keyNow(b, l.KeyID)
			if now.Lease != nil || now.Last == nil || now.Last.ID != l.ID || now.Last.State != contract.StateExpired {
				e.Errorf("get key: got holder %v, last %v, want the expired lease as the last", now.Lease, now.Last)
			}
		},
		"renew":   func(l contract.Lease) { e.renew(b, e.newRenew(l), contract.OutcomeEndedExpired) },
		"release": func(l contract.Lease) { e.release(b, e.newRelease(l), contract.OutcomeEndedExpired) },
		"revoke":  func(l contract.Lease) { e.revoke(b, e.newRevoke(l), contract.OutcomeEndedExpired) },
		"acquire": func(l contract.Lease) { e.grant(b, l.Key, bob) },
		"history": func(l contract.Lease) {
			if events := e.history(b, l.KeyID); len(events) != 2 || events[0].Kind != contract.EventExpired {
				e.Errorf("history: got %d events, want acquired and expired", len(events))
			}
		},
	}
	var leases []contract.Lease
	for name := range looks {
		r := e.newAcquire(e.key(name), alice)
		r.TTL = e.short()
		leases = append(leases, e.granted(a, r))
	}
	e.expire(leases...)
	for _, l := range leases {
		looks[l.Key.Target.ID](l)
	}
	for _, l := range leases {
		e.shows(a, e.expired(a, l))
	}
}

// expired returns l as it expired and wants nothing else about it changed.
func (e *Env) expired(s contract.Store, l contract.Lease) contract.Lease {
	e.Helper()
	got := e.get(s, l.ID)
	want := l
	want.State, want.EndedAt = contract.StateExpired, got.EndedAt
	e.sameLease("the lease as it expired", got, want)
	return got
}

func expiryFreesKey(e *Env) {
	a, b := e.pair()
	for _, next := range []string{bob, alice} {
		r := e.newAcquire(e.key("brief for "+next), alice)
		r.TTL = e.short()
		l := e.granted(a, r)
		e.expire(l)
		got := e.grant(b, r.Key, next)
		if got.ID == l.ID || got.Token <= l.Token || got.AcquiredAt.Before(l.ExpiresAt) {
			e.Errorf("granted after %+v: %+v, want a new id, a higher token and a later start", l, got)
		}
		e.shows(a, got)
		e.renew(a, e.newRenew(l), contract.OutcomeEndedExpired)
		e.shows(b, got)
	}
}

func ttlStartsAtGrant(e *Env) {
	a, b := e.pair()
	held := e.grant(a, e.key("held"), alice)
	r := e.newWaiter(held.Key, bob)
	r.TTL = e.short()
	r.MaxLifetime = r.TTL + e.ttl(time.Second)
	c := e.park(b, r)
	e.advance(r.MaxLifetime) // the waiter's TTL and lifetime would be over if they ran

	sent := e.mark()
	ended := e.end(a, held)
	got := e.served(c)
	e.leftAfter("the waiter's grant", got.ExpiresIn, r.TTL, 0, e.atMost(sent))
	if got.AcquiredAt.Before(ended.EndedAt) || (got.ExpiresAt.Sub(got.AcquiredAt)-r.TTL).Abs() > precision {
		e.Errorf("granted from %v to %v, want %v from %v on", got.AcquiredAt, got.ExpiresAt, r.TTL, ended.EndedAt)
	}
	e.livesOut(a, got, r.TTL, sent)
}
