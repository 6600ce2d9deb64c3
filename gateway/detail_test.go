package gateway

import (
	"net/http"
	"strings"
	"testing"

	"leased/gateway/api"
)

// TestGet_body: a read takes no body and does not mind one, but reads it to its
// end, within the bounds of any other: net/http would not notice before that the
// client has gone.
func TestGet_body(t *testing.T) {
	r := newRig(t)
	for size, want := range map[int]int{maxBody: http.StatusOK, maxBody + 1: http.StatusRequestEntityTooLarge} {
		a := r.call(t, http.MethodGet, "/v1/namespaces/default/leases", strings.Repeat("x", size))
		if a.status != want {
			t.Errorf("a GET with a body of %d bytes: got %d, want %d", size, a.status, want)
		}
	}
}

// TestDetail holds what a person reads of a request that cannot be read: the
// field, and what belongs there.
func TestDetail(t *testing.T) {
	r := newRig(t)
	const leases = "/v1/namespaces/default/leases"
	for _, test := range []struct{ method, path, body, want string }{
		{http.MethodPost, leases, `{"metadata":{"a":null}}`, "metadata.a must be a string, not null"},
		{http.MethodPost, leases, `{"metadata":{"a":1}}`, "metadata.a must be a string"},
		{http.MethodPost, leases, `{"metadata":{"a":["b"]}}`, "metadata.a must be a string, not a list"},
		{http.MethodPost, leases, `{"metadata":"a"}`, "metadata must be an object, not a string"},
		{http.MethodPost, leases, `{"ttl_ms":1.5}`, "ttl_ms must be a whole number"},
		{http.MethodPost, leases, `{"instance":"a","instance":"b"}`, "instance is given twice"},
		{http.MethodPost, leases, `{"Instance":"a"}`, "Instance is not a field of this request"},
		{http.MethodPost, leases, `{"key":`, "key is where the JSON ends too early, after byte 7"},
		{http.MethodGet, leases + "?state=over", "", "state is not a state of a lease; use active, expired, released or revoked"},
	} {
		p := wantProblem(t, r.call(t, test.method, test.path, test.body), api.CodeInvalid)
		if p.Detail != test.want {
			t.Errorf("%s %s %s: got detail %q, want %q", test.method, test.path, test.body, p.Detail, test.want)
		}
	}
}
