package gateway

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/go-json-experiment/json"

	"leased/gateway/api"
)

// fuzzBody sends arbitrary bodies to the routes that decode into one type. None
// may panic or be answered as a fault; a refusal names a field; and what was
// taken is taken again once it is encoded by the API's own types.
func fuzzBody[T any](f *testing.F, paths ...string) {
	f.Helper()
	for _, b := range bodyCases() {
		for _, path := range paths {
			if b.path == path {
				f.Add(b.body)
				for _, field := range b.fields {
					name, _, _ := strings.Cut(field.old, ":")
					for _, bad := range field.bad {
						if len(bad.json) < 2000 {
							f.Add(strings.Replace(b.body, field.old, name+":"+bad.json, 1))
						}
					}
				}
			}
		}
	}
	r := newRig(f)
	f.Fuzz(func(t *testing.T, body string) {
		for _, path := range paths {
			a := r.rawPost(t, "/v1/namespaces/default"+path, body, http.Header{"Content-Type": {api.MediaType}})
			if a.status >= http.StatusInternalServerError {
				t.Fatalf("%s: got status %d: %s", path, a.status, a.body)
			}
			if !utf8.ValidString(a.body) {
				t.Errorf("%s: the reply is not UTF-8: %q", path, a.body)
			}
			if a.status == http.StatusBadRequest {
				if p := wantProblem(t, a, api.CodeInvalid); p.Field == "" {
					t.Errorf("%s: the refusal names no field: %s", path, a.body)
				}
				continue
			}
			again(t, body, func(x *exchange) (any, error) {
				v := new(T)
				return v, x.decodeBody(v, maxBulkBody)
			})
		}
	})
}

// again decodes a body that was taken, encodes the value and decodes that.
func again(t *testing.T, body string, decode func(*exchange) (any, error)) {
	t.Helper()
	h := &handler{decode: json.RejectUnknownMembers(true)}
	h.buffers.New = newBody
	read := func(body string) (string, error) {
		request := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(body))
		request.Header.Set("Content-Type", api.MediaType)
		v, err := decode(newExchange(h, request))
		if err != nil {
			return "", err
		}
		b, err := json.Marshal(v, json.Deterministic(true))
		return string(b), err
	}
	first, err := read(body)
	if err != nil {
		return // refused for its size or as a whole, by another route's rule
	}
	second, err := read(first)
	if err != nil || first != second {
		t.Errorf("%q was taken as %s, and that as %s, %v", body, first, second, err)
	}
}

func FuzzAcquireRequest(f *testing.F) { fuzzBody[api.AcquireRequest](f, "/leases") }

func FuzzRenewRequest(f *testing.F) {
	fuzzBody[api.RenewRequest](f, "/leases/"+someLease+"/renew")
}

func FuzzReleaseRequest(f *testing.F) {
	fuzzBody[api.ReleaseRequest](f, "/leases/"+someLease+"/release")
}

func FuzzRevokeRequest(f *testing.F) {
	fuzzBody[api.RevokeRequest](f, "/leases/"+someLease+"/revoke")
}

func FuzzRenewBulkRequest(f *testing.F) { fuzzBody[api.RenewBulkRequest](f, "/renew") }

func FuzzResolveRequest(f *testing.F) { fuzzBody[api.ResolveRequest](f, "/resolve") }

func FuzzCheckRequest(f *testing.F) { fuzzBody[api.CheckRequest](f, "/check") }

// FuzzQuery sends arbitrary queries to the list.
func FuzzQuery(f *testing.F) {
	for _, q := range []string{
		"owner=a&limit=1", "target_type=domain&target=a.example", "expires_before=2026-01-01T00:00:00Z", "state=active",
		"timeout=2s", "cursor=x", "limit=%31", "owner=%00", "a;b", "%zz", "access_token=x", "target_type=url&target=http://a/%2e%2e",
	} {
		f.Add(q)
	}
	r := newRig(f)
	f.Fuzz(func(t *testing.T, query string) {
		request := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/v1/namespaces/default/leases", nil)
		request.URL.RawQuery = query
		recorder := httptest.NewRecorder()
		r.Handler().ServeHTTP(recorder, request)
		body, err := io.ReadAll(recorder.Body)
		if err != nil {
			t.Fatal(err)
		}
		a := answer{status: recorder.Code, header: recorder.Header(), body: string(body)}
		switch a.status {
		case http.StatusOK:
			read[api.ListReply](t, a, http.StatusOK)
		case http.StatusGatewayTimeout: // a timeout of nanoseconds
		default:
			if p := wantProblem(t, a, api.CodeInvalid); p.Field == "" {
				t.Errorf("%q: the refusal names no field: %s", query, a.body)
			}
		}
	})
}

// FuzzTraceParent: what is taken from the header is a trace id and nothing else.
func FuzzTraceParent(f *testing.F) {
	f.Add("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
	f.Add("cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-x")
	f.Fuzz(func(t *testing.T, value string) {
		id := traceID(http.Header{api.HeaderTraceParent: {value}})
		if id != "" && (len(id) != 32 || !isHex(id) || !strings.Contains(value, id)) {
			t.Errorf("%q: got trace id %q", value, id)
		}
	})
}
