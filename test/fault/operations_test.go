package fault

import (
	"context"
	"fmt"
	"testing"
	"time"

	"leased/contract"
	"leased/test/proc"
)

// stage is a namespace with what the operations need.
type stage struct {
	store contract.Store
	ns    string
	late  *proc.Lateness
}

// operation is one call and what can be known of it afterwards.
type operation struct {
	name  string
	reads bool
	// do makes the call. Made again it is the same request.
	do func(context.Context) error
	// untouched fails when the call has left anything.
	untouched func(context.Context) error
	got       contract.Code
}

const (
	owner    = "alice"
	instance = "alice-1"
)

func retention() contract.Retention {
	return contract.Retention{Idempotency: 10 * time.Minute, History: time.Hour, HistoryPerKey: 16}
}

func newStage(t *testing.T, s contract.Store, ns string) *stage {
	t.Helper()
	return &stage{store: s, ns: ns, late: proc.WatchLateness(t)}
}

func (st *stage) acquire(name string) *contract.AcquireRequest {
	key, err := contract.Key{Tenant: "acme", Target: contract.Target{Type: contract.TargetName, ID: name}, Actor: "crawler"}.Normalize()
	if err != nil {
		panic(err) // the name is the test's own
	}
	return &contract.AcquireRequest{
		Namespace: st.ns, RequestID: "acquire-" + name, Owner: owner, Instance: instance, Key: key,
		TTL: 10 * time.Minute, MaxLifetime: time.Hour, Retention: retention(),
	}
}

// grant acquires before the situation. The first one of a stage waits for the
// server to be there.
func (st *stage) grant(t *testing.T, name string) contract.Lease {
	t.Helper()
	var lease contract.Lease
	proc.Succeeds(t, "a grant before the situation", proc.Patience, func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		res, err := st.store.Acquire(ctx, st.acquire(name))
		switch {
		case err != nil:
			return err
		case res.Outcome != contract.OutcomeAcquired:
			return fmt.Errorf("the answer is %v", res.Outcome)
		}
		lease = *res.Lease
		return nil
	})
	return lease
}

// operations returns one of each kind, with leases of their own.
func (st *stage) operations(t *testing.T) []*operation {
	t.Helper()
	held := st.grant(t, "held")
	return append(st.reads(held),
		st.acquireOp(t),
		st.waitOp(held),
		st.renewOp(st.grant(t, "renewed")),
		st.bulkOp(st.grant(t, "bulk-renewed")),
		st.releaseOp(st.grant(t, "released")),
		st.revokeOp(st.grant(t, "revoked")),
	)
}

// expect returns an error unless the outcome is the wanted one.
func expect(res contract.Result, err error, want contract.Outcome) error {
	switch {
	case err != nil:
		return err
	case res.Outcome != want:
		return fmt.Errorf("outcome %v, want %v", res.Outcome, want)
	}
	return nil
}

// acquireOp acquires a key that was held before and is free.
func (st *stage) acquireOp(t *testing.T) *operation {
	t.Helper()
	before := st.grant(t, "acquired")
	if err := st.releaseOp(before).do(t.Context()); err != nil {
		t.Fatal(err)
	}
	r := st.acquire("acquired")
	r.RequestID = "acquire-again"
	return &operation{
		name: "acquire",
		do: func(ctx context.Context) error {
			res, err := st.store.Acquire(ctx, r)
			return expect(res, err, contract.OutcomeAcquired)
		},
		untouched: func(ctx context.Context) error {
			res, err := st.store.GetKey(ctx, &contract.GetKeyRequest{Namespace: st.ns, KeyID: r.Key.ID()})
			if err == nil && (res.Lease != nil || res.Last == nil || res.Last.ID != before.ID) {
				return fmt.Errorf("the key has changed: %+v", res)
			}
			return err
		},
	}
}

// waitOp waits for a key that stays held. What is not known of it is whether it
// has a place; it never has a lease.
func (st *stage) waitOp(held contract.Lease) *operation {
	r := st.acquire("held")
	r.RequestID, r.Owner, r.Instance, r.Wait = "wait", "bob", "bob-1", callTimeout*4/5
	return &operation{
		name: "acquire with wait",
		do: func(ctx context.Context) error {
			res, err := st.store.Acquire(ctx, r)
			return expect(res, err, contract.OutcomeConflict)
		},
		untouched: func(ctx context.Context) error {
			res, err := st.store.GetKey(ctx, &contract.GetKeyRequest{Namespace: st.ns, KeyID: held.KeyID})
			if err == nil && (res.Lease == nil || res.Lease.ID != held.ID) {
				return fmt.Errorf("the key is no longer its holder's: %+v", res)
			}
			return err
		},
	}
}

// unchanged returns a check that a lease is as it was granted.
func (st *stage) unchanged(l contract.Lease) func(context.Context) error {
	return func(ctx context.Context) error {
		res, err := st.store.Get(ctx, &contract.GetRequest{Namespace: st.ns, LeaseID: l.ID})
		if err == nil && (res.Lease == nil || res.Lease.State != contract.StateActive || res.Lease.Renewals != 0) {
			return fmt.Errorf("the lease has changed: %+v", res.Lease)
		}
		return err
	}
}

func (st *stage) renewOp(l contract.Lease) *operation {
	r := &contract.RenewRequest{
		Namespace: st.ns, RequestID: "renew", Owner: owner, Instance: instance, LeaseID: l.ID, Token: l.Token, Retention: retention(),
	}
	return &operation{name: "renew", untouched: st.unchanged(l), do: func(ctx context.Context) error {
		res, err := st.store.Renew(ctx, r)
		return expect(res, err, contract.OutcomeRenewed)
	}}
}

func (st *stage) bulkOp(l contract.Lease) *operation {
	r := &contract.RenewBulkRequest{
		Namespace: st.ns, RequestID: "bulk", Owner: owner, Instance: instance,
		Leases: []contract.RenewItem{{LeaseID: l.ID, Token: l.Token}}, Retention: retention(),
	}
	return &operation{name: "bulk renew", untouched: st.unchanged(l), do: func(ctx context.Context) error {
		res, err := st.store.RenewBulk(ctx, r)
		if err != nil {
			return err
		}
		return expect(res.Items[0].Result, res.Items[0].Err, contract.OutcomeRenewed)
	}}
}

func (st *stage) releaseOp(l contract.Lease) *operation {
	r := &contract.ReleaseRequest{
		Namespace: st.ns, RequestID: "release", Owner: owner, Instance: instance, LeaseID: l.ID, Token: l.Token, Retention: retention(),
	}
	return &operation{name: "release", untouched: st.unchanged(l), do: func(ctx context.Context) error {
		res, err := st.store.Release(ctx, r)
		return expect(res, err, contract.OutcomeReleased)
	}}
}

func (st *stage) revokeOp(l contract.Lease) *operation {
	r := &contract.RevokeRequest{
		Namespace: st.ns, RequestID: "revoke", Principal: "root", LeaseID: l.ID, Mode: contract.RevokeRight, Reason: "fault", Retention: retention(),
	}
	return &operation{name: "revoke", untouched: st.unchanged(l), do: func(ctx context.Context) error {
		res, err := st.store.Revoke(ctx, r)
		return expect(res, err, contract.OutcomeRevoked)
	}}
}

func (st *stage) reads(held contract.Lease) []*operation {
	read := func(name string, do func(context.Context) error) *operation {
		return &operation{name: name, reads: true, do: do}
	}
	return []*operation{
		read("get", func(ctx context.Context) error {
			res, err := st.store.Get(ctx, &contract.GetRequest{Namespace: st.ns, LeaseID: held.ID})
			return expect(res, err, contract.OutcomeFound)
		}),
		read("get key", func(ctx context.Context) error {
			res, err := st.store.GetKey(ctx, &contract.GetKeyRequest{Namespace: st.ns, KeyID: held.KeyID})
			return expect(contract.Result{Outcome: res.Outcome}, err, contract.OutcomeFound)
		}),
		read("check", func(ctx context.Context) error {
			res, err := st.store.Check(ctx, &contract.CheckRequest{Namespace: st.ns, KeyID: held.KeyID, Token: held.Token})
			return expect(res, err, contract.OutcomeCurrent)
		}),
		read("list", func(ctx context.Context) error {
			res, err := st.store.List(ctx, &contract.ListRequest{Namespace: st.ns, Owner: owner})
			if err == nil && len(res.Leases) == 0 {
				return fmt.Errorf("nothing is listed, want the held lease at least")
			}
			return err
		}),
		read("history", func(ctx context.Context) error {
			res, err := st.store.History(ctx, &contract.HistoryRequest{Namespace: st.ns, KeyID: held.KeyID})
			if err == nil && len(res.Events) != 1 {
				return fmt.Errorf("%d events, want the acquisition", len(res.Events))
			}
			return err
		}),
		read("watch", func(ctx context.Context) error {
			stream, err := st.store.Watch(ctx, &contract.WatchRequest{Namespace: st.ns})
			if err == nil {
				stream.Close()
			}
			return err
		}),
	}
}
