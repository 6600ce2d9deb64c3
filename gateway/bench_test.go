package gateway

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"leased/contract"
	"leased/gateway/api"
)

// nullWriter is the cheapest ResponseWriter, so that what is measured is the
// gateway.
type nullWriter struct {
	header http.Header
	status int
	body   []byte
}

func (w *nullWriter) Header() http.Header { return w.header }
func (w *nullWriter) WriteHeader(s int)   { w.status = s }
func (w *nullWriter) Write(b []byte) (int, error) {
	w.body = append(w.body, b...)
	return len(b), nil
}

// caller sends one request again and again without making it anew.
type caller struct {
	h       http.Handler
	w       nullWriter
	request *http.Request
	body    strings.Reader
}

func newCaller(b *testing.B, h http.Handler, path string) *caller {
	b.Helper()
	r, err := http.NewRequestWithContext(b.Context(), http.MethodPost, "/v1/namespaces/default"+path, http.NoBody)
	if err != nil {
		b.Fatal(err)
	}
	r.Header.Set("Content-Type", api.MediaType)
	c := &caller{h: h, request: r, w: nullWriter{header: http.Header{}}}
	r.Body = io.NopCloser(&c.body)
	return c
}

func (c *caller) send(b *testing.B, body string, want int) {
	b.Helper()
	c.body.Reset(body)
	c.request.ContentLength = int64(len(body))
	clear(c.w.header)
	c.w.body = c.w.body[:0]
	c.h.ServeHTTP(&c.w, c.request)
	if c.w.status != want {
		b.Fatalf("got status %d, want %d: %s", c.w.status, want, c.w.body)
	}
}

// BenchmarkGateway measures the gateway without a network: routes, service and a
// store that answers at once, so that the store's own cost is left out.
func BenchmarkGateway(b *testing.B) {
	r := newRig(b)
	lease := r.acquired(b, "r-1")
	id, err := contract.ParseLeaseID(lease.LeaseID)
	if err != nil {
		b.Fatal(err)
	}
	held, err := r.store.Get(b.Context(), &contract.GetRequest{Namespace: "default", LeaseID: id})
	if err != nil {
		b.Fatal(err)
	}
	answers := &stillStore{Store: r.store.Store, lease: held.Lease}
	g, err := New(Options{
		Namespaces: []Namespace{{Name: "default", Backend: "local", Store: answers, Policy: DefaultPolicy()}}, Auth: AuthNone(),
	})
	if err != nil {
		b.Fatal(err)
	}
	token := fmt.Sprintf(`{"token":%d,"instance":"worker-7"}`, lease.Token)
	var many strings.Builder // leases must differ
	for i := range contract.MaxBulk {
		id := contract.NewLeaseID(contract.KeyID{1}, [16]byte{byte(i >> 8), byte(i), 1})
		fmt.Fprintf(&many, `,{"lease_id":%q,"token":%d}`, id, lease.Token)
	}
	bulk := `{"instance":"worker-7","leases":[` + many.String()[1:] + `]}`
	for _, c := range []struct {
		name, path, body string
		status           int
	}{
		{"acquire", "/leases", acquireBody, http.StatusCreated},
		{"renew", "/leases/" + lease.LeaseID + "/renew", token, http.StatusOK},
		{"renew_bulk", "/renew", bulk, http.StatusOK},
		{"release", "/leases/" + lease.LeaseID + "/release", token, http.StatusOK},
		{"invalid", "/leases", `{"ttl_ms":1.5}`, http.StatusBadRequest},
	} {
		b.Run(c.name, func(b *testing.B) {
			caller := newCaller(b, g.Handler(), c.path)
			b.ReportAllocs()
			for b.Loop() {
				caller.send(b, c.body, c.status)
			}
		})
	}
}
