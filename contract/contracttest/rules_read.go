package contracttest

import (
	"fmt"

	"leased/contract"
)

func readRules() []Rule {
	return []Rule{
		{ID: "get-ended", Func: getEnded,
			Sentence: "Get shows a lease also after it has ended, as it ended, and still after the key was granted again."},
		{ID: "get-unknown", Func: getUnknown,
			Sentence: "A lease id that was never granted is not found, even if it leads to a known key."},
		{ID: "getkey-shows", Func: getKeyShows,
			Sentence: "A key shows who holds it and which lease of it ended last, each as it is."},
		{ID: "getkey-unknown", Func: getKeyUnknown,
			Sentence: "A key of which nothing is known is not found, has no history and is in no list, also after reading it."},
		{ID: "answers-are-copies", Func: answersAreCopies,
			Sentence: "Nothing in a request is kept by reference and nothing in an answer is the store's own: changing either changes nothing that is read later."},
	}
}

func getEnded(e *Env) {
	a, b := e.pair()
	for _, o := range e.eachEnding(a) {
		e.shows(b, o.lease)
		next := e.grant(b, o.lease.Key, bob)
		e.shows(a, o.lease)
		e.shows(a, next)
		e.end(a, next)
		e.shows(b, o.lease)
	}
}

func getUnknown(e *Env) {
	s := e.open()
	for range 3 { // more than of the other key
		e.end(s, e.grant(s, e.key("held"), alice))
	}
	l := e.grant(s, e.key("held"), alice)
	flipped := l.ID
	flipped[31] ^= 1
	older := e.end(s, e.grant(s, e.key("other"), alice))
	e.end(s, e.grant(s, older.Key, alice))
	e.grant(s, older.Key, alice)
	for _, id := range []contract.LeaseID{
		flipped,
		// Of one key's id and what tells another key's leases apart.
		contract.NewLeaseID(l.KeyID, [16]byte(older.ID[16:])),
		contract.NewLeaseID(l.KeyID, [16]byte{}),
		contract.NewLeaseID(e.key("never leased").ID(), [16]byte(l.ID[16:])),
	} {
		res, err := s.Get(e.ctx(), &contract.GetRequest{Namespace: e.ns, LeaseID: id})
		e.answered("get of an unknown lease", res, err, contract.OutcomeNotFound)
	}
}

func getKeyShows(e *Env) {
	a, b := e.pair()
	key := e.key("often")
	var last *contract.Lease
	looks := func(holder *contract.Lease) {
		e.Helper()
		for _, s := range []contract.Store{a, b} {
			now := e.keyNow(s, key.ID())
			if now.Outcome != contract.OutcomeFound || now.Key != key || now.KeyID != key.ID() {
				e.Fatalf("get key: got %s, %+v, want %+v", now.Outcome, now.Key, key)
			}
			for _, part := range []struct {
				what      string
				got, want *contract.Lease
			}{{"holder", now.Lease, holder}, {"last", now.Last, last}} {
				if (part.got == nil) != (part.want == nil) {
					e.Fatalf("get key: %s is there: %v, want %v", part.what, part.got != nil, part.want != nil)
				}
				if part.got != nil {
					e.sameLease("get key, "+part.what, *part.got, *part.want)
				}
			}
		}
	}
	for i := range 3 {
		l := e.grant(pick(i, a, b), key, alice)
		looks(&l)
		l = *e.renew(pick(i, b, a), e.newRenew(l), contract.OutcomeRenewed).Lease
		looks(&l)
		var ended contract.Lease
		if i%2 == 0 {
			ended = e.end(b, l)
		} else {
			ended = *e.revoke(b, e.newRevoke(l), contract.OutcomeRevoked).Lease
		}
		last = &ended
		looks(nil)
	}
}

func getKeyUnknown(e *Env) {
	s := e.open()
	key := e.key("never leased")
	for range 2 { // reading must not make it known
		now := e.keyNow(s, key.ID())
		if now.Outcome != contract.OutcomeNotFound || now.Queue != (contract.Queue{}) {
			e.Fatalf("get key: got %s, queue %+v, want not_found", now.Outcome, now.Queue)
		}
		if events := e.history(s, key.ID()); len(events) != 0 {
			e.Fatalf("history of an unknown key: got %d events", len(events))
		}
		e.check(s, key.ID(), 1, contract.OutcomeNotFound)
		if listed := e.list(s, contract.ListRequest{}); len(listed) != 0 {
			e.Fatalf("list: got %d leases, want none", len(listed))
		}
	}
}

func answersAreCopies(e *Env) {
	s, other := e.pair()
	r := e.newAcquire(e.key("held"), alice)
	r.Metadata = map[string]string{"a": "1"}
	first := e.granted(s, r)
	want := first.Clone()
	intact := func(what string) {
		e.Helper()
		if diff := leaseDiff(e.get(s, want.ID), want); diff != "" {
			e.Fatalf("after changing %s: (-got +want)\n%s", what, diff)
		}
		e.shows(other, want)
	}
	delete(r.Metadata, "a")
	intact("the request's metadata")
	r.Metadata["a"] = "1"
	spoil(&first)
	intact("the granted lease")
	for what, lease := range e.looksAt(s, r, want) {
		spoil(lease())
		intact(what)
	}

	renew := e.newRenew(want)
	renewed := e.renew(s, renew, contract.OutcomeRenewed).Lease
	want = renewed.Clone()
	spoil(renewed)
	intact("a renewed lease")
	spoil(e.renew(s, renew, contract.OutcomeRenewed).Lease)
	intact("a replayed renewal")

	release := e.newRelease(want)
	released := e.release(s, release, contract.OutcomeReleased).Lease
	want = released.Clone()
	spoil(released)
	intact("a released lease")
	for i := range 2 {
		replayed := e.release(s, release, contract.OutcomeReleased).Lease
		e.sameLease(fmt.Sprintf("replay %d of the release", i), *replayed, want)
		spoil(replayed)
	}
	spoil(e.acquire(s, r, contract.OutcomeEndedReleased).Lease)
	intact("a replay that tells how the lease ended")
	spoil(e.keyNow(s, want.KeyID).Last)
	intact("the key's last lease")
	e.parkedCopies(s)
}

// spoil changes what a caller may change in a lease that it was answered.
func spoil(l *contract.Lease) {
	l.Owner, l.Token, l.State, l.Renewals = "mallory", 1, contract.StateRevoked, 99
	if l.Metadata != nil {
		l.Metadata["a"], l.Metadata["more"] = "spoilt", "spoilt"
	}
}

// looksAt lists the ways to be answered the active lease that r was granted.
func (e *Env) looksAt(s contract.Store, r *contract.AcquireRequest, l contract.Lease) map[string]func() *contract.Lease {
	return map[string]func() *contract.Lease{
		"a replayed grant": func() *contract.Lease { return e.acquire(s, r, contract.OutcomeAcquired).Lease },
		"a conflict's lease": func() *contract.Lease {
			return e.acquire(s, e.newAcquire(r.Key, bob), contract.OutcomeConflict).Lease
		},
		"what get shows": func() *contract.Lease {
			got := e.get(s, l.ID)
			return &got
		},
		"what get key shows": func() *contract.Lease { return e.keyNow(s, l.KeyID).Lease },
		"what check shows": func() *contract.Lease {
			return e.check(s, l.KeyID, l.Token, contract.OutcomeCurrent).Lease
		},
		"what list shows": func() *contract.Lease {
			listed := e.list(s, contract.ListRequest{})
			if len(listed) != 1 {
				e.Fatalf("list: got %d leases, want the one that is held", len(listed))
			}
			return &listed[0]
		},
	}
}

// parkedCopies changes a request while its call waits, as a caller may that
// reuses its structs.
func (e *Env) parkedCopies(s contract.Store) {
	e.Helper()
	held := e.grant(s, e.key("waited for"), alice)
	r := e.newWaiter(held.Key, bob)
	r.Metadata = map[string]string{"a": "1"}
	c := e.park(s, r)
	r.Metadata["a"] = "spoilt"
	e.end(s, held)
	if got := e.served(c).Metadata["a"]; got != "1" {
		e.Fatalf("the metadata of a waiter's request was kept by reference: got %q", got)
	}
}
