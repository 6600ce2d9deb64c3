package contracttest

import (
	"fmt"

	"leased/contract"
)

func copiesRules() []Rule {
	return []Rule{
		{ID: "copies-of-acquire", Func: copiesOfAcquire,
			Sentence: "Of copies of an acquire in flight at the same time one is granted and all others get its answer as replayed; none fails."},
		{ID: "copies-of-acquire-contested", Func: copiesOfAcquireContested,
			Sentence: "When copies of several acquires race for one key all copies of one get the grant and all copies of the others a conflict."},
		{ID: "copies-of-renew", Func: copiesOfRenew,
			Sentence: "Of copies of a renewal in flight at the same time one renews and all others get its answer as replayed."},
		{ID: "copies-of-release", Func: copiesOfRelease,
			Sentence: "Of copies of a release in flight at the same time one ends the lease and all others get its answer as replayed."},
		{ID: "copies-of-revoke", Func: copiesOfRevoke,
			Sentence: "Of copies of a revocation in flight at the same time one ends the lease and all others get its answer as replayed."},
	}
}

// copies is how many copies of a request are in flight at the same time.
const copies = 32

// oneDoes wants all answers to be the same, exactly one of them not replayed,
// and returns the lease in it.
func (e *Env) oneDoes(op string, answers []contract.Result, errs []error, want contract.Outcome) contract.Lease {
	e.Helper()
	var did *contract.Lease
	for i, res := range answers {
		e.answered(fmt.Sprintf("%s, copy %d", op, i), res, errs[i], want)
		if res.Replayed {
			continue
		}
		if did != nil {
			e.Fatalf("%s: two copies are not marked as replayed", op)
		}
		did = res.Lease
	}
	if did == nil {
		e.Fatalf("%s: all copies are marked as replayed", op)
	}
	for _, res := range answers {
		e.sameLease(op+", a copy's answer", *res.Lease, *did)
	}
	return *did
}

func (e *Env) raceCopies(f func(i int) (contract.Result, error)) ([]contract.Result, []error) {
	e.Helper()
	answers, errs := make([]contract.Result, copies), make([]error, copies)
	e.race(copies, func(i int) { answers[i], errs[i] = f(i) })
	return answers, errs
}

func copiesOfAcquire(e *Env) {
	a, b := e.pair()
	for round := range 3 {
		r := e.newAcquire(e.key(fmt.Sprint("key-", round)), alice)
		answers, errs := e.raceCopies(func(i int) (contract.Result, error) {
			c := *r
			if i%4 == 3 {
				c.Wait = patience // which makes no other request of it
			}
			return pick(i, a, b).Acquire(e.ctx(), &c)
		})
		l := e.oneDoes("acquire", answers, errs, contract.OutcomeAcquired)
		e.shows(a, l)
		if events := e.history(b, l.KeyID); len(events) != 1 {
			e.Errorf("%d events in the key's history, want one acquire", len(events))
		}
	}
}

func copiesOfAcquireContested(e *Env) {
	a, b := e.pair()
	for round := range 3 {
		key := e.key(fmt.Sprint("key-", round))
		requests := []*contract.AcquireRequest{e.newAcquire(key, alice), e.newAcquire(key, bob), e.newAcquire(key, alice), e.newAcquire(key, carol)}
		answers, errs := e.raceCopies(func(i int) (contract.Result, error) {
			return pick(i/len(requests), a, b).Acquire(e.ctx(), requests[i%len(requests)])
		})
		winner := -1
		var granted []contract.Result
		for i, res := range answers {
			if errs[i] != nil || res.Outcome != contract.OutcomeAcquired {
				e.answered("acquire", res, errs[i], contract.OutcomeConflict)
				continue
			}
			if of := i % len(requests); winner < 0 {
				winner = of
			} else if winner != of {
				e.Fatalf("copies of two different requests were granted the same key")
			}
			granted = append(granted, res)
		}
		if want := copies / len(requests); len(granted) != want {
			e.Fatalf("%d copies of one request were granted, want all %d", len(granted), want)
		}
		e.shows(a, e.oneDoes("acquire", granted, make([]error, len(granted)), contract.OutcomeAcquired))
	}
}

func copiesOfRenew(e *Env) {
	a, b := e.pair()
	l := e.grant(a, e.key("held"), alice)
	for round := range 3 {
		r := e.newRenew(l)
		answers, errs := e.raceCopies(func(i int) (contract.Result, error) { return pick(i, a, b).Renew(e.ctx(), r) })
		l = e.oneDoes("renew", answers, errs, contract.OutcomeRenewed)
		if l.Renewals != uint64(round+1) {
			e.Fatalf("%d renewals are counted, want %d", l.Renewals, round+1)
		}
		e.shows(b, l)
	}
}

func copiesOfRelease(e *Env) {
	a, b := e.pair()
	r := e.newRelease(e.grant(a, e.key("held"), alice))
	answers, errs := e.raceCopies(func(i int) (contract.Result, error) { return pick(i, a, b).Release(e.ctx(), r) })
	e.shows(b, e.oneDoes("release", answers, errs, contract.OutcomeReleased))
}

func copiesOfRevoke(e *Env) {
	a, b := e.pair()
	r := e.newRevoke(e.grant(a, e.key("held"), alice))
	answers, errs := e.raceCopies(func(i int) (contract.Result, error) { return pick(i, a, b).Revoke(e.ctx(), r) })
	e.shows(b, e.oneDoes("revoke", answers, errs, contract.OutcomeRevoked))
}
