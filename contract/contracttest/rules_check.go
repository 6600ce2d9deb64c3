package contracttest

import (
	"leased/contract"
)

func checkRules() []Rule {
	return []Rule{
		{ID: "check-current", Func: checkCurrent,
			Sentence: "Check shows the active lease for its own token, on every gateway, before and after renewals."},
		{ID: "check-stale", Func: checkStale,
			Sentence: "Any other token of a key that is remembered is stale: older, higher, or another key's, and whether or not the key is held."},
		{ID: "check-ended", Func: checkEnded,
			Sentence: "The token of the latest grant, when that is over, is answered with how it ended."},
		{ID: "check-unknown-key", Func: checkUnknownKey,
			Sentence: "A key of which nothing is remembered is not found, whatever the token."},
	}
}

func revokeRules() []Rule {
	return []Rule{
		{ID: "revoke-ends", Func: revokeEnds,
			Sentence: "A revocation ends the named lease whoever holds it, with the principal and the reason on record."},
		{ID: "revoke-names-the-lease", Func: revokeNamesTheLease,
			Sentence: "A revocation of a lease that is over answers how it ended, and never touches a newer lease of the key."},
		{ID: "revoke-unknown", Func: revokeUnknown,
			Sentence: "A revocation of a lease that never was is not found and ends nothing."},
		{ID: "revoke-told-to-holder", Func: revokeToldToHolder,
			Sentence: "The holder of a revoked lease is told so when it renews or releases, with the reason."},
	}
}

func checkCurrent(e *Env) {
	a, b := e.pair()
	l := e.grant(a, e.key("held"), alice)
	token := l.Token // of the grant: what the protected side has seen, whatever a renewal answers
	for i := range 3 {
		e.sameLease("check", *e.check(pick(i, b, a), l.KeyID, token, contract.OutcomeCurrent).Lease, l)
		l = *e.renew(pick(i, a, b), e.newRenew(l), contract.OutcomeRenewed).Lease
	}
	e.sameLease("check", *e.check(a, l.KeyID, token, contract.OutcomeCurrent).Lease, l)
}

func checkStale(e *Env) {
	a, b := e.pair()
	e.raiseFloor(a, 100)
	first := e.grant(a, e.key("often"), alice)
	e.end(a, first)
	e.raiseFloor(a, first.Token+1_000) // tokens are not dense
	second := e.grant(b, first.Key, alice)
	e.raiseFloor(b, second.Token) // tokens of different keys may be equal
	other := e.grant(b, e.key("other"), alice)
	stale := []contract.Token{
		first.Token, first.Token + 1, second.Token - 1, second.Token + 1, second.Token + 1_000, other.Token, 1, contract.MaxToken,
	}
	look := func() {
		e.Helper()
		for i, token := range stale {
			e.check(pick(i, a, b), first.KeyID, token, contract.OutcomeStaleToken)
		}
	}
	look()
	e.check(a, first.KeyID, second.Token, contract.OutcomeCurrent)
	e.end(b, second)
	look()
	e.check(a, first.KeyID, second.Token, contract.OutcomeEndedReleased)
}

func checkEnded(e *Env) {
	a, b := e.pair()
	for _, o := range e.eachEnding(a) {
		for _, s := range []contract.Store{a, b} {
			res := e.check(s, o.lease.KeyID, o.lease.Token, o.answer)
			e.sameLease("the lease as it ended", *res.Lease, o.lease)
		}
		next := e.grant(b, o.lease.Key, alice)
		e.check(a, o.lease.KeyID, o.lease.Token, contract.OutcomeStaleToken)
		e.check(a, o.lease.KeyID, next.Token, contract.OutcomeCurrent)
	}
}

func checkUnknownKey(e *Env) {
	s := e.open()
	l := e.grant(s, e.key("held"), alice)
	for _, token := range []contract.Token{1, l.Token, contract.MaxToken} {
		e.check(s, e.key("never leased").ID(), token, contract.OutcomeNotFound)
	}
}

func revokeEnds(e *Env) {
	a, b := e.pair()
	for i, mode := range []contract.RevokeMode{contract.RevokeRight, contract.RevokeForceRelease} {
		s, other := pick(i, a, b), pick(i+1, a, b)
		r := e.newAcquire(e.key(e.id("held")), alice)
		r.Metadata = trickyMetadata()
		l := e.granted(s, r)
		revoke := e.newRevoke(l)
		revoke.Mode, revoke.Principal, revoke.Reason = mode, "ops: root", `host "n1" is gone, ticket #42 – 停止`
		got := *e.revoke(other, revoke, contract.OutcomeRevoked).Lease
		want := l
		want.State, want.EndedAt, want.EndedBy, want.Reason = contract.StateRevoked, got.EndedAt, revoke.Principal, revoke.Reason
		e.sameLease("the revoked lease", got, want)
		e.free(s, l.Key)
		e.shows(s, got)
		e.shows(other, got)
		e.grant(s, l.Key, bob)
	}
}

func revokeNamesTheLease(e *Env) {
	a, b := e.pair()
	for _, o := range e.eachEnding(a) {
		res := e.revoke(b, e.newRevoke(o.lease), o.answer)
		e.sameLease("the lease as it ended", *res.Lease, o.lease)
		e.shows(b, o.lease)
		next := e.grant(b, o.lease.Key, alice)
		for _, s := range []contract.Store{a, b} {
			// Force-unlocking by key hit the wrong lock elsewhere.
			e.sameLease("the lease as it ended", *e.revoke(s, e.newRevoke(o.lease), o.answer).Lease, o.lease)
			e.shows(s, next)
		}
		e.revoke(a, e.newRevoke(next), contract.OutcomeRevoked)
	}
}

func revokeUnknown(e *Env) {
	s := e.open()
	l := e.grant(s, e.key("held"), alice)
	for _, id := range []contract.LeaseID{
		contract.NewLeaseID(l.KeyID, [16]byte{1}),
		contract.NewLeaseID(e.key("never leased").ID(), [16]byte(l.ID[16:])),
	} {
		r := e.newRevoke(l)
		r.LeaseID = id
		e.revoke(s, r, contract.OutcomeNotFound)
		e.shows(s, l)
	}
}

func revokeToldToHolder(e *Env) {
	a, b := e.pair()
	l := e.grant(a, e.key("held"), alice)
	ended := *e.revoke(b, e.newRevoke(l), contract.OutcomeRevoked).Lease
	for _, s := range []contract.Store{a, b} {
		e.sameLease("what a renewal is told", *e.renew(s, e.newRenew(l), contract.OutcomeEndedRevoked).Lease, ended)
		e.sameLease("what a release is told", *e.release(s, e.newRelease(l), contract.OutcomeEndedRevoked).Lease, ended)
	}
	got := e.bulk(a, e.newBulk(l), contract.OutcomeEndedRevoked)
	e.sameLease("what a bulk renewal is told", *got[0].Lease, ended)
	e.shows(a, ended)
}
