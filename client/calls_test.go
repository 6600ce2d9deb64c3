package client_test

import (
	"context"
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"leased/client"
	"leased/gateway/api"
)

// TestCalls_requests holds each call to the request that the API documents.
func TestCalls_requests(t *testing.T) {
	key := api.Key{Tenant: "acme", Target: api.Target{Type: "domain", ID: "example.com"}, Actor: "crawler"}
	tests := []struct {
		name string
		call func(context.Context, *client.Client) error
		want request
	}{
		{"acquire, little", func(ctx context.Context, c *client.Client) error {
			_, err := c.Acquire(ctx, client.AcquireRequest{Key: key, Instance: "w-1", RequestID: "r1"})
			return err
		}, request{
			method: "POST", path: "/v1/namespaces/jobs/leases", id: "r1",
			body: `{"key":{"tenant":"acme","target":{"type":"domain","id":"example.com"},"actor":"crawler"},"instance":"w-1"}`,
		}},
		{"acquire, all", func(ctx context.Context, c *client.Client) error {
			_, err := c.Acquire(ctx, client.AcquireRequest{
				Namespace: "a/b", Key: key, Instance: "w-1", RequestID: "r1", TTL: 1500 * time.Microsecond, MaxLifetime: time.Hour,
				ExecutionID: "e", JobID: "j", TraceID: "t", Metadata: map[string]string{"purpose": "nightly"},
			})
			return err
		}, request{
			method: "POST", path: "/v1/namespaces/a%2Fb/leases", id: "r1",
			body: `{"key":{"tenant":"acme","target":{"type":"domain","id":"example.com"},"actor":"crawler"},"instance":"w-1",` +
				`"ttl_ms":2,"max_lifetime_ms":3600000,"execution_id":"e","job_id":"j","trace_id":"t","metadata":{"purpose":"nightly"}}`,
		}},
		{"renew", func(ctx context.Context, c *client.Client) error {
			_, err := c.Renew(ctx, client.RenewRequest{LeaseID: "L", Token: 7, Instance: "w-1", RequestID: "r1", TTL: time.Second})
			return err
		}, request{
			method: "POST", path: "/v1/namespaces/jobs/leases/L/renew", id: "r1",
			body: `{"token":7,"instance":"w-1","ttl_ms":1000}`,
		}},
		{"renew with a negative TTL, which the server refuses", func(ctx context.Context, c *client.Client) error {
			_, err := c.Renew(ctx, client.RenewRequest{LeaseID: "L", Token: 7, Instance: "w-1", RequestID: "r1", TTL: -1})
			return err
		}, request{
			method: "POST", path: "/v1/namespaces/jobs/leases/L/renew", id: "r1",
			body: `{"token":7,"instance":"w-1","ttl_ms":-1}`,
		}},
		{"bulk renew", func(ctx context.Context, c *client.Client) error {
			_, err := c.RenewBulk(ctx, client.RenewBulkRequest{
				Instance: "w-1", RequestID: "r1", Leases: []api.RenewBulkLease{{LeaseID: "L", Token: 7}},
			})
			return err
		}, request{
			method: "POST", path: "/v1/namespaces/jobs/renew", id: "r1",
			body: `{"instance":"w-1","leases":[{"lease_id":"L","token":7}]}`,
		}},
		{"release", func(ctx context.Context, c *client.Client) error {
			_, err := c.Release(ctx, client.ReleaseRequest{LeaseID: "L/../x", Token: 7, Instance: "w-1", RequestID: "r1"})
			return err
		}, request{
			method: "POST", path: "/v1/namespaces/jobs/leases/L%2F..%2Fx/release", id: "r1",
			body: `{"token":7,"instance":"w-1"}`,
		}},
		{"revoke", func(ctx context.Context, c *client.Client) error {
			_, err := c.Revoke(ctx, client.RevokeRequest{LeaseID: "L", Reason: "dead", Mode: api.ModeForceRelease, RequestID: "r1"})
			return err
		}, request{
			method: "POST", path: "/v1/namespaces/jobs/leases/L/revoke", id: "r1",
			body: `{"reason":"dead","mode":"force_release"}`,
		}},
		{"get", func(ctx context.Context, c *client.Client) error {
			_, err := c.Get(ctx, "", "L")
			return err
		}, request{method: "GET", path: "/v1/namespaces/jobs/leases/L"}},
		{"list, all", func(ctx context.Context, c *client.Client) error {
			_, err := c.List(ctx, client.ListRequest{
				Owner: "o", Instance: "i", Tenant: "t", Program: "p", Target: api.Target{Type: "name", ID: "x&y"}, Actor: "a",
				JobID: "j", State: "expired", ExpiresBefore: time.Date(2026, 1, 2, 4, 4, 5, 6e6, time.FixedZone("", 3600)),
				Limit: 5, Cursor: "c",
			})
			return err
		}, request{method: "GET", path: "/v1/namespaces/jobs/leases", query: url.Values{
			"owner": {"o"}, "instance": {"i"}, "tenant": {"t"}, "program": {"p"}, "target_type": {"name"}, "target": {"x&y"},
			"actor": {"a"}, "job_id": {"j"}, "state": {"expired"}, "expires_before": {"2026-01-02T03:04:05.006Z"},
			"limit": {"5"}, "cursor": {"c"},
		}}},
		{"list, nothing", func(ctx context.Context, c *client.Client) error {
			_, err := c.List(ctx, client.ListRequest{Namespace: "other"})
			return err
		}, request{method: "GET", path: "/v1/namespaces/other/leases"}},
		{"key", func(ctx context.Context, c *client.Client) error {
			_, err := c.GetKey(ctx, "", "K")
			return err
		}, request{method: "GET", path: "/v1/namespaces/jobs/keys/K"}},
		{"history", func(ctx context.Context, c *client.Client) error {
			_, err := c.History(ctx, client.HistoryRequest{KeyID: "K", Limit: 3, Cursor: "c"})
			return err
		}, request{method: "GET", path: "/v1/namespaces/jobs/keys/K/history", query: url.Values{"limit": {"3"}, "cursor": {"c"}}}},
		{"check by key", func(ctx context.Context, c *client.Client) error {
			_, err := c.Check(ctx, client.CheckRequest{Key: &key, Token: 7})
			return err
		}, request{
			method: "POST", path: "/v1/namespaces/jobs/check",
			body: `{"key":{"tenant":"acme","target":{"type":"domain","id":"example.com"},"actor":"crawler"},"token":7}`,
		}},
		{"check by key id", func(ctx context.Context, c *client.Client) error {
			_, err := c.Check(ctx, client.CheckRequest{KeyID: "K", Token: 7})
			return err
		}, request{method: "POST", path: "/v1/namespaces/jobs/check", body: `{"key_id":"K","token":7}`}},
		{"resolve", func(ctx context.Context, c *client.Client) error {
			_, err := c.Resolve(ctx, "", key)
			return err
		}, request{
			method: "POST", path: "/v1/namespaces/jobs/resolve",
			body: `{"key":{"tenant":"acme","target":{"type":"domain","id":"example.com"},"actor":"crawler"}}`,
		}},
		{"namespaces", func(ctx context.Context, c *client.Client) error {
			_, err := c.Namespaces(ctx)
			return err
		}, request{method: "GET", path: "/v1/namespaces"}},
		{"namespace", func(ctx context.Context, c *client.Client) error {
			_, err := c.Namespace(ctx, "")
			return err
		}, request{method: "GET", path: "/v1/namespaces/jobs"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			n := newNetwork(step{status: http.StatusOK, body: `{"outcome":"x","lease":{"lease_id":"L","token":7},"key_id":"K",
				"results":[{"outcome":"renewed","lease":{"lease_id":"L","token":7}}]}`})
			c := n.client(t, func(o *client.Options) { o.Namespace, o.Token = "jobs", "s3cret" })
			if err := tt.call(t.Context(), c); err != nil {
				t.Fatal(err)
			}
			got := n.requests()[0]
			got.query.Del("timeout")
			got.at = 0
			tt.want.server, tt.want.auth = "a:1", "Bearer s3cret"
			if tt.want.query == nil {
				tt.want.query = url.Values{}
			}
			if diff := cmp.Diff(tt.want, got, cmp.AllowUnexported(request{})); diff != "" {
				t.Errorf("request (-want +got):\n%s", diff)
			}
		})
	}
}

// TestCalls_requestID: a call that changes something always carries one, which
// the caller learns.
func TestCalls_requestID(t *testing.T) {
	n := newNetwork(granted())
	c := n.client(t)
	ids := map[string]bool{}
	for range 3 {
		got, err := c.Acquire(t.Context(), client.AcquireRequest{Instance: "w-1"})
		if err != nil {
			t.Fatal(err)
		}
		ids[got.RequestID] = true
	}
	for _, r := range n.requests() {
		if len(r.id) < 16 || !ids[r.id] {
			t.Errorf("sent request id %q, want a long random one that the answer tells (%v)", r.id, ids)
		}
	}
	if len(ids) != 3 {
		t.Errorf("three calls had %d request ids, want each its own", len(ids))
	}
}

// TestCalls_problem: everything that the gateway says of a refusal arrives.
func TestCalls_problem(t *testing.T) {
	n := newNetwork(problem(api.CodeConflict, func(p *api.Problem) {
		p.Holder = &api.Holder{Owner: "svc-a", Instance: "w-7", JobID: "job-17", ExpiresInMS: 1200}
		p.Queue = &api.Queue{Length: 3}
	}))
	_, err := acquire(t.Context(), n.client(t))
	want := *api.NewProblem(api.CodeConflict, "from-server", "as the server says")
	want.Holder = &api.Holder{Owner: "svc-a", Instance: "w-7", JobID: "job-17", ExpiresInMS: 1200}
	want.Queue = &api.Queue{Length: 3}
	if diff := cmp.Diff(want, err.(*client.Error).Problem); diff != "" {
		t.Errorf("problem (-want +got):\n%s", diff)
	}
}
