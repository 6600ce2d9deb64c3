package contracttest

import (
	"time"

	"leased/contract"
)

const (
	alice = "alice"
	bob   = "bob"
	carol = "carol"
)

// retention is long enough that nothing is forgotten unless a rule asks for it.
func retention() contract.Retention {
	return contract.Retention{Idempotency: 10 * time.Minute, History: 24 * time.Hour, HistoryPerKey: 64}
}

// key returns a key that differs from others in its target.
func (e *Env) key(name string) contract.Key {
	e.Helper()
	return e.normal(contract.Key{
		Tenant: "acme", Target: contract.Target{Type: contract.TargetName, ID: name}, Actor: "crawler",
	})
}

func (e *Env) normal(k contract.Key) contract.Key {
	e.Helper()
	k, err := k.Normalize()
	if err != nil {
		e.Fatalf("the rule's own key is not valid: %v", err)
	}
	return k
}

// newAcquire asks for key with a fresh request id and a TTL that outlives the
// rule. Rules change what they are about.
func (e *Env) newAcquire(key contract.Key, owner string) *contract.AcquireRequest {
	return &contract.AcquireRequest{
		Namespace: e.ns, RequestID: e.id("acquire"), Owner: owner, Instance: owner + "-1", Key: key,
		TTL: e.long(), MaxLifetime: 24 * e.long(), Retention: retention(),
	}
}

// newRenew asks for what l was granted once more.
func (e *Env) newRenew(l contract.Lease) *contract.RenewRequest {
	return &contract.RenewRequest{
		Namespace: l.Namespace, RequestID: e.id("renew"), Owner: l.Owner, Instance: l.Instance,
		LeaseID: l.ID, Token: l.Token, Retention: retention(),
	}
}

func (e *Env) newBulk(leases ...contract.Lease) *contract.RenewBulkRequest {
	r := &contract.RenewBulkRequest{
		Namespace: e.ns, RequestID: e.id("bulk"), Owner: alice, Instance: alice + "-1", Retention: retention(),
	}
	for _, l := range leases {
		r.Leases = append(r.Leases, contract.RenewItem{LeaseID: l.ID, Token: l.Token})
	}
	return r
}

func (e *Env) newRelease(l contract.Lease) *contract.ReleaseRequest {
	return &contract.ReleaseRequest{
		Namespace: l.Namespace, RequestID: e.id("release"), Owner: l.Owner, Instance: l.Instance,
		LeaseID: l.ID, Token: l.Token, Retention: retention(),
	}
}

func (e *Env) newRevoke(l contract.Lease) *contract.RevokeRequest {
	return &contract.RevokeRequest{
		Namespace: l.Namespace, RequestID: e.id("revoke"), Principal: "root", LeaseID: l.ID,
		Mode: contract.RevokeRight, Reason: "the host is gone", Retention: retention(),
	}
}

// acquire sends r, wants the outcome and returns the answer.
func (e *Env) acquire(s contract.Store, r *contract.AcquireRequest, want contract.Outcome) contract.Result {
	e.Helper()
	res, err := s.Acquire(e.ctx(), r)
	res, err = e.known(s, r, res, err)
	return e.answered("acquire by "+r.Owner, res, err, want)
}

// grant acquires key for owner with newAcquire's TTL.
func (e *Env) grant(s contract.Store, key contract.Key, owner string) contract.Lease {
	e.Helper()
	return e.granted(s, e.newAcquire(key, owner))
}

// granted sends r and wants a first, fresh grant.
func (e *Env) granted(s contract.Store, r *contract.AcquireRequest) contract.Lease {
	e.Helper()
	res := e.acquire(s, r, contract.OutcomeAcquired)
	if res.Replayed {
		e.Fatalf("acquire by %s: the answer to a first request is marked as replayed", r.Owner)
	}
	return *res.Lease
}

func (e *Env) renew(s contract.Store, r *contract.RenewRequest, want contract.Outcome) contract.Result {
	e.Helper()
	res, err := s.Renew(e.ctx(), r)
	return e.answered("renew by "+r.Owner, res, err, want)
}

func (e *Env) release(s contract.Store, r *contract.ReleaseRequest, want contract.Outcome) contract.Result {
	e.Helper()
	res, err := s.Release(e.ctx(), r)
	return e.answered("release by "+r.Owner, res, err, want)
}

// end releases l and returns it as it ended.
func (e *Env) end(s contract.Store, l contract.Lease) contract.Lease {
	e.Helper()
	return *e.release(s, e.newRelease(l), contract.OutcomeReleased).Lease
}

func (e *Env) revoke(s contract.Store, r *contract.RevokeRequest, want contract.Outcome) contract.Result {
	e.Helper()
	res, err := s.Revoke(e.ctx(), r)
	return e.answered("revoke by "+r.Principal, res, err, want)
}

func (e *Env) check(s contract.Store, key contract.KeyID, token contract.Token, want contract.Outcome) contract.Result {
	e.Helper()
	res, err := s.Check(e.ctx(), &contract.CheckRequest{Namespace: e.ns, KeyID: key, Token: token})
	return e.answered("check", res, err, want)
}

// get returns the lease with the id, which must be known.
func (e *Env) get(s contract.Store, id contract.LeaseID) contract.Lease {
	e.Helper()
	res, err := s.Get(e.ctx(), &contract.GetRequest{Namespace: e.ns, LeaseID: id})
	return *e.answered("get", res, err, contract.OutcomeFound).Lease
}

// keyNow returns what the store knows of a key.
func (e *Env) keyNow(s contract.Store, id contract.KeyID) contract.KeyResult {
	e.Helper()
	res, err := s.GetKey(e.ctx(), &contract.GetKeyRequest{Namespace: e.ns, KeyID: id})
	if err != nil {
		e.Fatalf("get key: got error %v", err)
	}
	e.keyShape(res)
	return res
}

// queueLength returns how many wait for the key; none for an unknown key.
func (e *Env) queueLength(s contract.Store, key contract.Key) int {
	e.Helper()
	return e.keyNow(s, key.ID()).Queue.Length
}

// list returns every page of a listing.
func (e *Env) list(s contract.Store, r contract.ListRequest) []contract.Lease {
	e.Helper()
	if r.Namespace == "" {
		r.Namespace = e.ns
	}
	var all []contract.Lease
	for pages := 0; ; pages++ {
		page, err := s.List(e.ctx(), &r)
		if err != nil {
			e.Fatalf("list: got error %v", err)
		}
		all = append(all, page.Leases...)
		if page.NextCursor == "" {
			return all
		}
		if pages > 10_000 || page.NextCursor == r.Cursor {
			e.Fatalf("list: the cursors lead nowhere")
		}
		r.Cursor = page.NextCursor
	}
}

// history returns every page of a key's history.
func (e *Env) history(s contract.Store, key contract.KeyID) []contract.Event {
	e.Helper()
	r := contract.HistoryRequest{Namespace: e.ns, KeyID: key}
	var all []contract.Event
	for pages := 0; ; pages++ {
		page, err := s.History(e.ctx(), &r)
		if err != nil {
			e.Fatalf("history: got error %v", err)
		}
		all = append(all, page.Events...)
		if page.NextCursor == "" {
			return all
		}
		if pages > 10_000 || page.NextCursor == r.Cursor {
			e.Fatalf("history: the cursors lead nowhere")
		}
		r.Cursor = page.NextCursor
	}
}

// raiseFloor makes later tokens higher than above.
func (e *Env) raiseFloor(s contract.Store, above contract.Token) {
	e.Helper()
	if err := s.RaiseFloor(e.ctx(), &contract.RaiseFloorRequest{Namespace: e.ns, Above: above}); err != nil {
		e.Fatalf("raise floor above %d: got error %v", above, err)
	}
}
