package client_test

import (
	"context"
	"errors"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"leased/client"
	"leased/contract"
	"leased/contract/memstore"
	"leased/gateway"
	"leased/gateway/api"
)

// newGateway returns a client of a real gateway over the store in memory, and
// the store's backend, whose clock the test moves.
func newGateway(t *testing.T) (*client.Client, *memstore.Backend) {
	t.Helper()
	b := memstore.New(memstore.Options{})
	store := b.Open()
	g, err := gateway.New(gateway.Options{
		Namespaces: []gateway.Namespace{
			{Name: "default", Backend: "memory", Store: store, Policy: gateway.DefaultPolicy()},
			{Name: "jobs", Backend: "memory", Store: store, Policy: gateway.DefaultPolicy()},
		},
		Auth: gateway.AuthNone(),
	})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(g.Handler())
	c, err := client.New(client.Options{Servers: []string{server.URL}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Close()
		if err := g.Close(context.Background()); err != nil {
			t.Error(err)
		}
		server.Close()
		if err := store.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return c, b
}

func exampleKey(id string) api.Key {
	return api.Key{Tenant: "acme", Target: api.Target{Type: "domain", ID: id}, Actor: "crawler"}
}

// TestGateway_calls takes each call to the gateway and back: what the client
// sends is what the gateway reads, field by field, and the reverse.
func TestGateway_calls(t *testing.T) {
	c, backend := newGateway(t)
	ctx := t.Context()
	before := time.Now()
	got, err := c.Acquire(ctx, client.AcquireRequest{
		Key: exampleKey("Example.COM."), Instance: "w-1", RequestID: "r-1", TTL: 40 * time.Second, MaxLifetime: 2 * time.Hour,
		ExecutionID: "exec-1", JobID: "job-17", TraceID: "t-1", Metadata: map[string]string{"purpose": "nightly"},
	})
	if err != nil {
		t.Fatal(err)
	}
	lease := got.Lease
	want := &api.Lease{
		RecordVersion: 1, Namespace: "default", Owner: "anonymous", Instance: "w-1", State: "active",
		Key: api.Key{
			Tenant: "acme", Program: "default", Target: api.Target{Type: "domain", ID: "example.com"},
			Actor: "crawler", Workflow: "default", Operation: "default",
		},
		ExpiresInMS: 40000, TTLMS: 40000, MaxLifetimeMS: 7200000,
		ExecutionID: "exec-1", JobID: "job-17", TraceID: "t-1", Metadata: map[string]string{"purpose": "nightly"},
	}
	made := cmpopts.IgnoreFields(api.Lease{}, "KeyID", "LeaseID", "Token", "AcquiredAt", "RenewedAt", "ExpiresAt")
	if diff := cmp.Diff(want, lease, made); diff != "" {
		t.Errorf("acquired (-want +got):\n%s", diff)
	}
	if got.Outcome != "acquired" || got.Replayed || got.RequestID != "r-1" || got.SentAt.Before(before) || got.SentAt.After(time.Now()) {
		t.Errorf("answer is %+v, want acquired under r-1, sent between the call's begin and end", got)
	}

	again, err := c.Acquire(ctx, client.AcquireRequest{
		Key: exampleKey("example.com"), Instance: "w-1", RequestID: "r-1", TTL: 40 * time.Second, MaxLifetime: 2 * time.Hour,
		ExecutionID: "exec-1", JobID: "job-17", TraceID: "t-2", Metadata: map[string]string{"purpose": "nightly"},
	})
	if err != nil || !again.Replayed || again.Lease.Token != lease.Token {
		t.Errorf("the same request again: %+v, %v; want the grant, replayed", again, err)
	}
	backend.Advance(10 * time.Second)
	renewed, err := c.Renew(ctx, client.RenewRequest{LeaseID: lease.LeaseID, Token: lease.Token, Instance: "w-1", TTL: 50 * time.Second})
	if err != nil || renewed.Outcome != "renewed" || renewed.Lease.TTLMS != 50000 || renewed.Lease.Renewals != 1 {
		t.Errorf("renew: %+v, %v; want one renewal to 50 s", renewed, err)
	}
	never := contract.NewLeaseID(contract.KeyID{1}, [16]byte{1}).String()
	bulk, err := c.RenewBulk(ctx, client.RenewBulkRequest{Instance: "w-1", Leases: []api.RenewBulkLease{
		{LeaseID: lease.LeaseID, Token: lease.Token}, {LeaseID: never, Token: 1},
	}})
	if err != nil || len(bulk.Items) != 2 || bulk.Items[0].Outcome != "renewed" || bulk.Items[1].Error == nil ||
		bulk.Items[1].Error.Code != api.CodeNotFound || bulk.RequestID == "" {
		t.Errorf("bulk renew: %+v, %v; want one renewed and one not found", bulk, err)
	}
	if current, err := c.Check(ctx, client.CheckRequest{KeyID: lease.KeyID, Token: lease.Token}); err != nil || current.Outcome != "current" {
		t.Errorf("check by id: %+v, %v; want current", current, err)
	}
	key := exampleKey("EXAMPLE.com")
	if current, err := c.Check(ctx, client.CheckRequest{Key: &key, Token: lease.Token}); err != nil || current.Lease.LeaseID != lease.LeaseID {
		t.Errorf("check by key: %+v, %v; want the lease", current, err)
	}
	if l, err := c.Get(ctx, "", lease.LeaseID); err != nil || l.Renewals != 2 {
		t.Errorf("get: %+v, %v; want the lease, renewed twice", l, err)
	}
	if k, err := c.GetKey(ctx, "", lease.KeyID); err != nil || k.Lease == nil || k.Lease.LeaseID != lease.LeaseID || k.Last != nil {
		t.Errorf("key: %+v, %v; want the lease and none before it", k, err)
	}
	if r, err := c.Resolve(ctx, "", key); err != nil || r.KeyID != lease.KeyID || r.Canonical != "v1/acme/default/domain:example.com/crawler/default/default" {
		t.Errorf("resolve: %+v, %v; want the lease's key", r, err)
	}
	released, err := c.Release(ctx, client.ReleaseRequest{LeaseID: lease.LeaseID, Token: lease.Token, Instance: "w-1"})
	if err != nil || released.Outcome != "released" || released.Lease.EndedBy != "anonymous" {
		t.Errorf("release: %+v, %v; want released", released, err)
	}
	next, err := c.Acquire(ctx, client.AcquireRequest{Key: key, Instance: "w-2"})
	if err != nil {
		t.Fatal(err)
	}
	revoked, err := c.Revoke(ctx, client.RevokeRequest{LeaseID: next.Lease.LeaseID, Reason: "test", Mode: api.ModeForceRelease})
	if err != nil || revoked.Outcome != "revoked" || revoked.Lease.Reason != "test" {
		t.Errorf("revoke: %+v, %v; want revoked", revoked, err)
	}
	first, err := c.History(ctx, client.HistoryRequest{KeyID: lease.KeyID, Limit: 3})
	if err != nil || len(first.Events) != 3 || first.Events[0].Event != "revoked" || first.NextCursor == "" {
		t.Fatalf("history: %+v, %v; want three events of four", first, err)
	}
	rest, err := c.History(ctx, client.HistoryRequest{KeyID: lease.KeyID, Limit: 3, Cursor: first.NextCursor})
	if err != nil || len(rest.Events) != 1 || rest.Events[0].Event != "acquired" || rest.NextCursor != "" {
		t.Errorf("the rest of the history: %+v, %v; want the first grant", rest, err)
	}
}

func TestGateway_list(t *testing.T) {
	c, _ := newGateway(t)
	ctx := t.Context()
	for _, id := range []string{"a.example", "b.example", "c.example"} {
		r := client.AcquireRequest{Namespace: "jobs", Key: exampleKey(id), Instance: "w-" + id[:1], JobID: "job-" + id[:1]}
		if _, err := c.Acquire(ctx, r); err != nil {
			t.Fatal(err)
		}
	}
	ids := func(r client.ListRequest) []string {
		t.Helper()
		r.Namespace = "jobs"
		var all []string
		for {
			page, err := c.List(ctx, r)
			if err != nil {
				t.Fatal(err)
			}
			for _, l := range page.Leases {
				all = append(all, l.Key.Target.ID)
			}
			if r.Cursor = page.NextCursor; r.Cursor == "" {
				return all
			}
		}
	}
	sorted := cmpopts.SortSlices(func(a, b string) bool { return a < b })
	tests := []struct {
		name string
		r    client.ListRequest
		want []string
	}{
		{"all, by pages of two", client.ListRequest{Limit: 2}, []string{"a.example", "b.example", "c.example"}},
		{"target, normalised", client.ListRequest{Target: api.Target{Type: "domain", ID: "B.Example."}}, []string{"b.example"}},
		{"instance", client.ListRequest{Instance: "w-a"}, []string{"a.example"}},
		{"job", client.ListRequest{JobID: "job-c", Owner: "anonymous", Tenant: "acme", Program: "default", Actor: "crawler"}, []string{"c.example"}},
		{"state", client.ListRequest{State: "expired"}, nil},
		{"expiring before now", client.ListRequest{ExpiresBefore: time.Unix(1, 0)}, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, ids(tt.r), sorted); diff != "" {
				t.Errorf("targets (-want +got):\n%s", diff)
			}
		})
	}
}

func TestGateway_refusals(t *testing.T) {
	c, backend := newGateway(t)
	ctx := t.Context()
	got, err := c.Acquire(ctx, client.AcquireRequest{Key: exampleKey("a.example"), Instance: "w-1", JobID: "job-1"})
	if err != nil {
		t.Fatal(err)
	}
	lease := got.Lease
	_, err = c.Acquire(ctx, client.AcquireRequest{Key: exampleKey("a.example"), Instance: "w-2", RequestID: "r-2"})
	e, ok := errors.AsType[*client.Error](err)
	if !ok || !errors.Is(err, client.ErrConflict) || e.Problem.Holder == nil || e.Problem.Holder.JobID != "job-1" || e.Problem.RequestID != "r-2" {
		t.Errorf("acquire of a held key: %v, want a conflict with the holder's job under r-2", err)
	}
	_, err = c.Renew(ctx, client.RenewRequest{LeaseID: lease.LeaseID, Token: lease.Token, Instance: "w-2"})
	if !errors.Is(err, client.ErrNotOwner) {
		t.Errorf("renew by another instance: %v, want not_owner", err)
	}
	_, err = c.Renew(ctx, client.RenewRequest{LeaseID: lease.LeaseID, Token: lease.Token + 1, Instance: "w-1"})
	if !errors.Is(err, client.ErrStaleToken) {
		t.Errorf("renew with another token: %v, want stale_token", err)
	}
	_, err = c.Renew(ctx, client.RenewRequest{LeaseID: lease.LeaseID, Token: lease.Token, Instance: "w-1", TTL: time.Nanosecond})
	if !errors.Is(err, client.ErrInvalid) {
		t.Errorf("renew for a nanosecond: %v, want invalid and not the default", err)
	}
	backend.Advance(time.Minute)
	_, err = c.Renew(ctx, client.RenewRequest{LeaseID: lease.LeaseID, Token: lease.Token, Instance: "w-1"})
	e, ok = errors.AsType[*client.Error](err)
	if !ok || !errors.Is(err, client.ErrExpired) || e.Problem.Lease == nil || e.Problem.Lease.LeaseID != lease.LeaseID {
		t.Errorf("renew after the end: %v, want expired with the lease", err)
	}
	if _, err := c.Get(ctx, "none", lease.LeaseID); !errors.Is(err, client.ErrUnknownNamespace) {
		t.Errorf("get in another namespace: %v, want unknown_namespace", err)
	}
	if _, err := c.GetKey(ctx, "", "nonsense"); !errors.Is(err, client.ErrInvalid) {
		t.Errorf("key by nonsense: %v, want invalid", err)
	}
}

// TestGateway_wait: the end of a wait is a conflict and comes from the server,
// also when the context's deadline is what ends it.
func TestGateway_wait(t *testing.T) {
	c, _ := newGateway(t)
	if _, err := c.Acquire(t.Context(), client.AcquireRequest{Key: exampleKey("a.example"), Instance: "w-1"}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
	defer cancel()
	_, err := c.Acquire(ctx, client.AcquireRequest{Key: exampleKey("a.example"), Instance: "w-2", Wait: time.Minute})
	if !errors.Is(err, client.ErrConflict) {
		t.Errorf("a wait that the deadline ends: %v, want conflict", err)
	}
}

func TestGateway_namespaces(t *testing.T) {
	c, _ := newGateway(t)
	all, err := c.Namespaces(t.Context())
	if err != nil || len(all) != 2 || all[0].Namespace != "default" || all[1].Namespace != "jobs" {
		t.Errorf("namespaces: %+v, %v; want default and jobs", all, err)
	}
	one, err := c.Namespace(t.Context(), "jobs")
	if err != nil || one.Backend != "memory" || one.Limits.TTLMS.Max != time.Hour.Milliseconds() || !one.Health.Ready {
		t.Errorf("namespace: %+v, %v; want jobs on memory, ready, with its limits", one, err)
	}
	ready, err := c.Ready(t.Context())
	if err != nil || !ready.Ready || len(ready.Namespaces) != 2 {
		t.Errorf("ready: %+v, %v; want both namespaces", ready, err)
	}
}

// TestErrors_complete: each code of the API has a constant for errors.Is.
func TestErrors_complete(t *testing.T) {
	constants := map[api.Code]error{
		api.CodeInvalid: client.ErrInvalid, api.CodeUnauthenticated: client.ErrUnauthenticated, api.CodeDenied: client.ErrDenied,
		api.CodeNotFound: client.ErrNotFound, api.CodeUnknownNamespace: client.ErrUnknownNamespace,
		api.CodeMethodNotAllowed: client.ErrMethodNotAllowed, api.CodeConflict: client.ErrConflict, api.CodeNotOwner: client.ErrNotOwner,
		api.CodeStaleToken: client.ErrStaleToken, api.CodeExpired: client.ErrExpired, api.CodeReleased: client.ErrReleased,
		api.CodeRevoked: client.ErrRevoked, api.CodeTooLarge: client.ErrTooLarge,
		api.CodeUnsupportedMediaType: client.ErrUnsupportedMediaType, api.CodeRequestIDReused: client.ErrRequestIDReused,
		api.CodeQuotaExceeded: client.ErrQuotaExceeded, api.CodeRateLimited: client.ErrRateLimited,
		api.CodeUnavailable: client.ErrUnavailable, api.CodeClosed: client.ErrClosed, api.CodeTimeout: client.ErrTimeout,
		api.CodeOutcomeUnknown: client.ErrOutcomeUnknown, api.CodeInternal: client.ErrInternal,
	}
	for _, code := range api.Codes() {
		err := &client.Error{Problem: *api.NewProblem(code, "", "")}
		if constants[code] == nil || !errors.Is(err, constants[code]) || client.CodeOf(err) != code {
			t.Errorf("no constant finds code %s", code)
		}
		for other, constant := range constants {
			if other != code && errors.Is(err, constant) {
				t.Errorf("the constant of %s finds code %s", other, code)
			}
		}
	}
	if errors.Is(&contract.Error{Code: contract.CodeClosed}, client.ErrClosed) {
		t.Error("an error of another package has no code of the API")
	}
}
