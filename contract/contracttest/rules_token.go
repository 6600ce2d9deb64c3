package contracttest

import (
	"fmt"
	"time"

	"leased/contract"
)

func tokenRules() []Rule {
	return []Rule{
		{ID: "token-rises", Func: tokenRises,
			Sentence: "Every grant of a key has a higher token than all before it, however the last lease ended and through whichever gateway."},
		{ID: "token-rises-when-forgotten", Func: tokenRisesWhenForgotten,
			Sentence: "The token rises also when everything else about the key's past has been forgotten."},
		{ID: "token-rises-in-races", Func: tokenRisesInRaces,
			Sentence: "A grant that began after another of the same key was acknowledged has a higher token, and no two grants share one."},
		{ID: "token-compared-as-number", Func: tokenComparedAsNumber,
			Sentence: "Tokens rise as numbers, over every power of ten at which their texts sort otherwise."},
		{ID: "token-exact", Func: tokenExact,
			Sentence: "Tokens near 2⁵³ are kept and compared to the last digit."},
		{ID: "token-limit-refused", Func: tokenLimitRefused,
			Sentence: "With no token left below 2⁵³ an acquire is refused as internal and grants nothing, while leases that are held can still be renewed and released."},
		{ID: "floor-raises", Func: floorRaises,
			Sentence: "After the floor was raised every grant in the namespace, of known keys and of new ones, has a token above it; held leases keep theirs."},
		{ID: "floor-never-lowers", Func: floorNeverLowers,
			Sentence: "Raising the floor again, to the same or a lower token, changes nothing."},
		{ID: "floor-of-one-namespace", Func: floorOfOneNamespace,
			Sentence: "Using up the tokens of one namespace leaves another able to grant."},
	}
}

func tokenRises(e *Env) {
	a, b := e.pair()
	key := e.key("often")
	const release, revoke, expire = 0, 1, 2
	var last contract.Token
	for i, end := range []int{release, revoke, expire, release, release, revoke, revoke, release} {
		r := e.newAcquire(key, []string{alice, bob}[i%2])
		if end == expire {
			r.TTL = e.short()
		}
		l := e.granted(pick(i, a, b), r)
		if l.Token <= last {
			e.Fatalf("grant %d: got token %d after token %d", i, l.Token, last)
		}
		last = l.Token
		switch end {
		case release:
			e.end(pick(i/2, a, b), l)
		case revoke:
			e.revoke(pick(i/2, a, b), e.newRevoke(l), contract.OutcomeRevoked)
		case expire:
			e.expire(l)
		}
	}
}

func tokenRisesWhenForgotten(e *Env) {
	a, b := e.pair()
	keep := contract.Retention{Idempotency: time.Millisecond, History: time.Millisecond, HistoryPerKey: 2}
	var last contract.Token
	for i := range 2 {
		r := e.newAcquire(e.key("once"), alice)
		r.TTL, r.Retention = e.short(), keep
		l := e.granted(pick(i, a, b), r)
		if l.Token <= last {
			e.Fatalf("got token %d after token %d, of which nothing else is remembered", l.Token, last)
		}
		last = l.Token
		release := e.newRelease(l)
		release.Retention = keep
		e.release(a, release, contract.OutcomeReleased)
		// Other keys come and go meanwhile, so that a store that sweeps does.
		other := e.newAcquire(e.key(fmt.Sprint("other-", i)), bob)
		other.TTL, other.Retention = r.TTL, keep
		e.expire(e.granted(b, other))
		e.advance(precision)
		if listed := e.list(a, contract.ListRequest{}); len(listed) != 0 {
			e.Fatalf("%d leases are listed, want none", len(listed))
		}
	}
}

func tokenRisesInRaces(e *Env) {
	a, b := e.pair()
	key := e.key("contended")
	type grant struct {
		token       contract.Token
		sent, known time.Time
	}
	var grants [8][]grant
	e.race(len(grants), func(i int) {
		s := pick(i, a, b)
		for range 12 {
			r := e.newWaiter(key, fmt.Sprint("owner-", i))
			g := grant{sent: time.Now()}
			res, err := s.Acquire(e.ctx(), r)
			g.known = time.Now()
			if err != nil || res.Outcome != contract.OutcomeAcquired || res.Lease == nil {
				e.Errorf("acquire by %s: got %s, error %v, want acquired", r.Owner, describe(res), err)
				return
			}
			g.token = res.Lease.Token
			grants[i] = append(grants[i], g)
			if res, err := s.Release(e.ctx(), e.newRelease(*res.Lease)); err != nil || res.Outcome != contract.OutcomeReleased {
				e.Errorf("release by %s: got %s, error %v, want released", r.Owner, describe(res), err)
				return
			}
		}
	})
	var all []grant
	for _, g := range grants {
		all = append(all, g...)
	}
	for i, x := range all {
		for j, y := range all {
			if i != j && x.token == y.token {
				e.Fatalf("two grants have token %d", x.token)
			}
			if x.known.Before(y.sent) && x.token > y.token {
				e.Fatalf("token %d was granted, and a later acquire got token %d", x.token, y.token)
			}
		}
	}
}

// sortTraps lists floors around powers of ten: "9" sorts after "10", and scripts
// write 1e14 as "1e+14".
func sortTraps() []contract.Token {
	var floors []contract.Token
	for power := contract.Token(10); power <= 1e15; power *= 10 {
		floors = append(floors, power-2, power-1, power, power+1)
	}
	return floors
}

func tokenComparedAsNumber(e *Env) {
	a, b := e.pair()
	key := e.key("often")
	var last contract.Token
	for i, floor := range sortTraps() {
		s := pick(i, a, b)
		e.raiseFloor(s, floor)
		for range 2 {
			l := e.grant(s, key, alice)
			if l.Token <= last || l.Token <= floor {
				e.Fatalf("got token %d after token %d, with the floor at %d", l.Token, last, floor)
			}
			if last != 0 {
				e.check(b, key.ID(), last, contract.OutcomeStaleToken)
			}
			last = l.Token
			e.check(b, key.ID(), last, contract.OutcomeCurrent)
			e.end(s, l)
		}
	}
}

func tokenExact(e *Env) {
	a, b := e.pair()
	key := e.key("high")
	const floor = contract.MaxToken - 1_000_000
	e.raiseFloor(a, floor)
	var last contract.Token
	for i := range 8 {
		l := e.grant(pick(i, a, b), key, alice)
		if l.Token <= floor || l.Token <= last {
			e.Fatalf("got token %d after token %d, with the floor at %d", l.Token, last, floor)
		}
		last = l.Token
		e.shows(a, l)
		for _, near := range []contract.Token{l.Token - 1, l.Token + 1, l.Token - 2, l.Token + 2} {
			e.check(b, key.ID(), near, contract.OutcomeStaleToken)
			r := e.newRenew(l)
			r.Token = near
			e.renew(b, r, contract.OutcomeStaleToken)
		}
		if events := e.history(b, key.ID()); events[0].Token != l.Token {
			e.Fatalf("history: got token %d, want %d", events[0].Token, l.Token)
		}
		l = *e.renew(b, e.newRenew(l), contract.OutcomeRenewed).Lease
		if ended := e.end(b, l); ended.Token != last {
			e.Fatalf("token %d became %d", last, ended.Token)
		}
	}
}

func tokenLimitRefused(e *Env) {
	a, b := e.pair()
	held := e.grant(a, e.key("held"), alice)
	e.raiseFloor(a, contract.MaxToken)
	for i, name := range []string{"new", "new", "other"} {
		r := e.newAcquire(e.key(name), bob)
		res, err := pick(i, a, b).Acquire(e.ctx(), r)
		if err == nil {
			e.Fatalf("acquire with no token left: got %s", describe(res))
		}
		e.failed("acquire with no token left", err, contract.CodeInternal, "")
		e.free(b, r.Key)
	}
	e.shows(b, held)
	renewed := *e.renew(b, e.newRenew(held), contract.OutcomeRenewed).Lease
	e.shows(a, renewed)
	e.end(a, renewed)
	_, err := b.Acquire(e.ctx(), e.newAcquire(held.Key, alice))
	e.failed("acquire with no token left", err, contract.CodeInternal, "")
	e.free(a, held.Key)
	if listed := e.list(a, contract.ListRequest{}); len(listed) != 0 {
		e.Errorf("%d leases are listed, want none", len(listed))
	}
}

// aboveClocks is by how much a floor is raised: where tokens are told by a clock,
// in µs, it must be higher than that will be while the rule runs.
const aboveClocks = contract.Token(1 << 40)

func floorRaises(e *Env) {
	a, b := e.pair()
	known := e.grant(a, e.key("known"), alice)
	e.end(a, known)
	held := e.grant(b, e.key("held"), alice)
	floor := held.Token
	for i := range 3 {
		floor += aboveClocks
		e.raiseFloor(a, floor)
		highest := floor
		e.shows(b, held)
		for _, name := range []string{"known", fmt.Sprint("new-", i)} {
			l := e.grant(pick(i, b, a), e.key(name), bob)
			if l.Token <= floor {
				e.Fatalf("key %s: got token %d, with the floor at %d", name, l.Token, floor)
			}
			highest = max(highest, l.Token)
			e.end(a, l)
		}
		floor = highest
	}
	e.end(a, held)
}

func floorNeverLowers(e *Env) {
	a, b := e.pair()
	first := e.grant(a, e.key("once"), alice)
	floor := first.Token + aboveClocks
	e.raiseFloor(a, floor)
	for _, lower := range []contract.Token{floor, floor - 1, first.Token, 1} {
		e.raiseFloor(b, lower)
	}
	for i := range 3 {
		l := e.grant(pick(i, a, b), e.key(fmt.Sprint("key-", i)), alice)
		if l.Token <= floor {
			e.Fatalf("got token %d, with the floor at %d, after raising it to lower ones", l.Token, floor)
		}
		e.raiseFloor(b, 1)
	}
	e.end(b, first)
	if l := e.grant(b, first.Key, alice); l.Token <= floor {
		e.Fatalf("got token %d, with the floor at %d, after raising it to lower ones", l.Token, floor)
	}
}

func floorOfOneNamespace(e *Env) {
	a, b := e.pair()
	e.raiseFloor(a, contract.MaxToken)
	_, err := b.Acquire(e.ctx(), e.newAcquire(e.key("any"), alice))
	e.failed("acquire with no token left", err, contract.CodeInternal, "")
	r := e.newAcquire(e.key("any"), alice)
	r.Namespace = e.ns + "/2"
	res, err := b.Acquire(e.ctx(), r)
	e.answered("acquire in another namespace", res, err, contract.OutcomeAcquired)
}
