package gateway

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"leased/contract"
	"leased/gateway/api"
)

// TestTimeout_everywhere: a route either takes a timeout or refuses the parameter;
// none ignores what it does not understand.
func TestTimeout_everywhere(t *testing.T) {
	r := newRig(t, withCluster(new(fakeCluster)))
	path := strings.NewReplacer(":namespace", "default", ":lease_id", someLease, ":key_id", someLease[:22], ":id", "n4")
	for _, route := range routes() {
		if route.public {
			continue
		}
		for _, timeout := range []string{"banana", "-1s", "0s", "5"} {
			a := r.call(t, route.method, path.Replace(route.path)+"?timeout="+timeout, "")
			if p := wantProblem(t, a, api.CodeInvalid); p.Field != "timeout" {
				t.Errorf("%s %s, timeout %s: got field %q", route.method, route.path, timeout, p.Field)
			}
		}
	}
}

// TestTimeout_ofHealth: that the caller's own time is over says nothing of a store.
func TestTimeout_ofHealth(t *testing.T) {
	r := newRig(t)
	release := make(chan struct{})
	r.store.health = func(ctx context.Context, q *contract.HealthRequest) (contract.Health, error) {
		select {
		case <-release:
		case <-ctx.Done():
		}
		return r.store.Store.Health(ctx, q)
	}
	for _, path := range []string{"/v1/namespaces", "/v1/namespaces/default"} {
		wantProblem(t, r.call(t, http.MethodGet, path+"?timeout=20ms", ""), api.CodeTimeout)
	}
	close(release)
	if got := read[api.Namespace](t, r.call(t, http.MethodGet, "/v1/namespaces/default?timeout=1m", ""), http.StatusOK); got.State != api.StateServing {
		t.Errorf("got state %s, want it serving", got.State)
	}
}

// TestMediaType_twice: of two headers that differ none counts.
func TestMediaType_twice(t *testing.T) {
	r := newRig(t)
	for _, header := range []http.Header{
		{"Content-Type": {api.MediaType}, "Content-Encoding": {"", "gzip"}},
		{"Content-Type": {api.MediaType, "text/plain"}},
	} {
		a := r.rawPost(t, "/v1/namespaces/default/resolve", `{`+someKey+`}`, header)
		wantProblem(t, a, api.CodeUnsupportedMediaType)
	}
	a := r.rawPost(t, "/v1/namespaces/default/resolve", `{`+someKey+`}`, http.Header{"Content-Type": {api.MediaType, api.MediaType}})
	if a.status != http.StatusOK {
		t.Errorf("the same Content-Type twice: got status %d", a.status)
	}
}
