package contracttest

import (
	"fmt"

	"leased/contract"
)

func independenceRules() []Rule {
	return []Rule{
		{ID: "keys-independent", Func: keysIndependent,
			Sentence: "Keys that differ in any part are leased independently, however much alike their texts are when joined."},
		{ID: "namespaces-independent", Func: namespacesIndependent,
			Sentence: "The same key in two namespaces is two keys, and no operation on one namespace sees or changes a lease of another."},
		{ID: "namespaces-listed-apart", Func: namespacesListedApart,
			Sentence: "Listings, histories, streams and health of a namespace show nothing of another, even one whose name begins with or contains its own."},
		{ID: "reads-follow-writes", Func: readsFollowWrites,
			Sentence: "What one gateway acknowledged every other gateway shows from then on, in get, check, key, list and history."},
	}
}

func keysIndependent(e *Env) {
	a, b := e.pair()
	base := contract.Key{
		Tenant: "t", Program: "p", Target: contract.Target{Type: contract.TargetName, ID: "x"}, Actor: "a", Workflow: "w", Operation: "o",
	}
	with := func(change func(k *contract.Key)) contract.Key {
		k := base
		change(&k)
		return k
	}
	keys := []contract.Key{
		base,
		with(func(k *contract.Key) { k.Tenant = "T" }),
		with(func(k *contract.Key) { k.Program = "p2" }),
		with(func(k *contract.Key) { k.Program = "" }),
		with(func(k *contract.Key) { k.Target.ID = "x2" }),
		with(func(k *contract.Key) { k.Target.Type = contract.TargetDomain }),
		with(func(k *contract.Key) { k.Actor = "a2" }),
		with(func(k *contract.Key) { k.Workflow = "w2" }),
		with(func(k *contract.Key) { k.Operation = "o2" }),
		// Parts whose texts run into each other, with separators that a store
		// may use itself.
		with(func(k *contract.Key) { k.Tenant, k.Program = "t/p", "x" }),
		with(func(k *contract.Key) { k.Tenant, k.Program = "t", "p/x" }),
		with(func(k *contract.Key) { k.Tenant, k.Program = "t:p", "x" }),
		with(func(k *contract.Key) { k.Tenant, k.Program = "t", "p:x" }),
		with(func(k *contract.Key) { k.Tenant, k.Program = "t%2Fp", "x" }),
		with(func(k *contract.Key) { k.Target.ID = "name:x" }),
		with(func(k *contract.Key) { k.Target.ID = "{x}" }),
		with(func(k *contract.Key) { k.Target.ID = "x*" }),
		with(func(k *contract.Key) { k.Actor, k.Workflow = "w", "a" }),
	}
	var held []contract.Lease
	for i, k := range keys {
		held = append(held, e.grant(pick(i, a, b), e.normal(k), fmt.Sprint("owner-", i)))
	}
	for i, l := range held {
		if got := e.keyNow(a, l.KeyID).Lease; got == nil || got.ID != l.ID {
			e.Fatalf("key %+v: another grant took its place", keys[i])
		}
	}
	e.end(a, held[0])
	for _, l := range held[1:] {
		e.shows(b, l)
	}
	e.free(b, held[0].Key)
}

func namespacesIndependent(e *Env) {
	a, b := e.pair()
	key := e.key("same")
	mine := e.grant(a, key, alice)

	// The rule's other namespace contains its first one.
	other := e.ns + "/2"
	r := e.newAcquire(key, alice)
	r.Namespace = other
	res, err := b.Acquire(e.ctx(), r)
	theirs := *e.answered("acquire in the other namespace", res, err, contract.OutcomeAcquired).Lease
	if theirs.Namespace != other || theirs.ID == mine.ID {
		e.Fatalf("the grant in namespace %q shows namespace %q", other, theirs.Namespace)
	}

	elsewhere := mine
	elsewhere.Namespace = other
	e.renew(a, e.newRenew(elsewhere), contract.OutcomeNotFound)
	e.release(a, e.newRelease(elsewhere), contract.OutcomeNotFound)
	e.revoke(a, e.newRevoke(elsewhere), contract.OutcomeNotFound)
	got, err := a.Get(e.ctx(), &contract.GetRequest{Namespace: other, LeaseID: mine.ID})
	e.answered("get in the other namespace", got, err, contract.OutcomeNotFound)
	e.shows(b, mine)

	res, err = a.Release(e.ctx(), e.newRelease(theirs))
	e.answered("release in the other namespace", res, err, contract.OutcomeReleased)
	e.shows(b, mine)

	unused := e.ns + "/3"
	k, err := a.GetKey(e.ctx(), &contract.GetKeyRequest{Namespace: unused, KeyID: key.ID()})
	if err != nil || k.Outcome != contract.OutcomeNotFound {
		e.Fatalf("get key in a namespace without leases: got %s, error %v, want not_found", k.Outcome, err)
	}
	got, err = a.Check(e.ctx(), &contract.CheckRequest{Namespace: unused, KeyID: key.ID(), Token: mine.Token})
	e.answered("check in a namespace without leases", got, err, contract.OutcomeNotFound)
}

func namespacesListedApart(e *Env) {
	a, b := e.pair()
	key := e.key("same")
	mine := e.grant(a, key, alice)
	stream := e.watch(a, contract.WatchRequest{})
	for _, other := range []string{e.ns + "/2", "2/" + e.ns, e.ns[:len(e.ns)-1], e.ns + " x", e.ns + "*"} {
		r := e.newAcquire(key, alice)
		r.Namespace = other
		res, err := b.Acquire(e.ctx(), r)
		theirs := *e.answered("acquire in another namespace", res, err, contract.OutcomeAcquired).Lease

		if listed := e.list(a, contract.ListRequest{Namespace: other}); len(listed) != 1 || listed[0].ID != theirs.ID {
			e.Fatalf("namespace %q: %d leases are listed, want its one", other, len(listed))
		}
		page, err := a.History(e.ctx(), &contract.HistoryRequest{Namespace: other, KeyID: key.ID()})
		if err != nil || len(page.Events) != 1 || page.Events[0].LeaseID != theirs.ID {
			e.Fatalf("namespace %q: %d events in the key's history, error %v, want its one", other, len(page.Events), err)
		}
		if h, err := a.Health(e.ctx(), &contract.HealthRequest{Namespace: other}); err != nil || h.ActiveLeases != 1 {
			e.Fatalf("namespace %q: health counts %d active leases, error %v, want 1", other, h.ActiveLeases, err)
		}
	}
	if listed := e.list(b, contract.ListRequest{}); len(listed) != 1 || listed[0].ID != mine.ID {
		e.Fatalf("%d leases are listed, want the namespace's one", len(listed))
	}
	if events := e.history(b, key.ID()); len(events) != 1 || events[0].LeaseID != mine.ID {
		e.Fatalf("%d events in the key's history, want the namespace's one", len(events))
	}
	e.end(b, mine)
	if got := e.next(stream); got.Namespace != e.ns || got.Kind != contract.EventReleased {
		e.Fatalf("streamed: got %s in namespace %q, want released in %q", got.Kind, got.Namespace, e.ns)
	}
}

func readsFollowWrites(e *Env) {
	a, b := e.pair()
	key := e.key("busy")
	for i := range 20 {
		writer, reader := pick(i, a, b), pick(i+1, a, b)
		held := e.grant(writer, key, alice)
		e.shows(reader, held)
		renewed := *e.renew(writer, e.newRenew(held), contract.OutcomeRenewed).Lease
		e.shows(reader, renewed)
		ended := e.end(writer, renewed)
		e.shows(reader, ended)
		if newest := e.history(reader, key.ID())[0]; newest.Kind != contract.EventReleased || newest.LeaseID != held.ID {
			e.Fatalf("the newest event is %s with token %d, want the release of token %d", newest.Kind, newest.Token, held.Token)
		}
	}
}
