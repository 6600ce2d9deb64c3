package client_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"strings"
	"sync"
	"testing"
	"time"

	"leased/client"
	"leased/contract/memstore"
	"leased/gateway"
	"leased/gateway/api"
)

// fault is what happens to one request.
type fault int

const (
	pass           fault = iota
	refuse               // no connection
	swallowRequest       // nothing reaches the server, and no answer comes
	swallowReply         // the server acts, and no answer comes
	cutReply             // the server acts, and the connection breaks
	answer503            // the gateway says unavailable
	answer500            // the gateway has a defect
	answer404            // a proxy knows no such page
)

// rig is a real gateway over the store in memory, with a network in front of it
// that a test breaks. It has no socket and lives in a synctest bubble, whose
// clock is the store's too.
type rig struct {
	t       *testing.T
	backend *memstore.Backend
	gateway *gateway.Gateway
	began   time.Time

	mu     sync.Mutex
	faults func(n int, r *http.Request) fault // n counts requests from 1
	n      int
	seen   map[string]int // requests by the last part of their path
	tells  bool           // of events; otherwise nobody may watch
	bodies []string       // of bulk renewals
}

func newRig(t *testing.T, policy ...func(*gateway.Policy)) *rig {
	t.Helper()
	r := &rig{t: t, backend: memstore.New(memstore.Options{Start: time.Now()}), began: time.Now(), seen: map[string]int{}}
	store := r.backend.Open()
	p := gateway.DefaultPolicy()
	for _, f := range policy {
		f(&p)
	}
	g, err := gateway.New(gateway.Options{
		Namespaces: []gateway.Namespace{
			{Name: "default", Backend: "memory", Store: store, Policy: p},
			{Name: "other", Backend: "memory", Store: store, Policy: p},
		},
		Auth: gateway.AuthNone(),
	})
	if err != nil {
		t.Fatal(err)
	}
	r.gateway = g
	// The store's clock follows the bubble's also while everybody waits.
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			case <-time.After(time.Second):
				r.tick()
			}
		}
	}()
	t.Cleanup(func() {
		close(stop)
		<-stopped
		if err := g.Close(context.Background()); err != nil {
			t.Error(err)
		}
		if err := store.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return r
}

func (r *rig) tick() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if d := time.Since(r.backend.Now()); d > 0 {
		r.backend.Advance(d)
	}
}

// fail makes requests fail from now on; nil heals.
func (r *rig) fail(f func(n int, r *http.Request) fault) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.faults, r.n = f, 0
}

// always makes every request fail alike.
func (r *rig) always(f fault) { r.fail(func(int, *http.Request) fault { return f }) }

// requests returns how many requests there were whose path ends in name.
func (r *rig) requests(name string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.seen[name]
}

func (r *rig) RoundTrip(req *http.Request) (*http.Response, error) {
	if strings.HasSuffix(req.URL.Path, "/events") {
		return r.events(req)
	}
	var body []byte
	if req.Body != nil {
		body, _ = io.ReadAll(req.Body)
	}
	r.mu.Lock()
	r.n++
	what := pass
	if r.faults != nil {
		what = r.faults(r.n, req)
	}
	name := req.URL.Path[strings.LastIndexByte(req.URL.Path, '/')+1:]
	r.seen[name]++
	if name == "renew" && !strings.Contains(req.URL.Path, "/leases/") {
		r.bodies = append(r.bodies, string(body))
	}
	r.mu.Unlock()
	r.tick()

	if what == refuse {
		return nil, errors.New("connection refused")
	}
	if trace := httptrace.ContextClientTrace(req.Context()); trace != nil && trace.GotConn != nil {
		trace.GotConn(httptrace.GotConnInfo{})
	}
	switch what {
	case swallowRequest:
		<-req.Context().Done()
		return nil, req.Context().Err()
	case answer503:
		return r.problem(req, api.CodeUnavailable), nil
	case answer500:
		return r.problem(req, api.CodeInternal), nil
	case answer404:
		return &http.Response{StatusCode: http.StatusNotFound, Header: http.Header{}, Body: io.NopCloser(strings.NewReader("<html>")), Request: req}, nil
	}
	in := req.Clone(req.Context())
	in.RequestURI, in.Body = req.URL.RequestURI(), io.NopCloser(bytes.NewReader(body))
	in.RemoteAddr = "127.0.0.1:1"
	out := httptest.NewRecorder()
	served := make(chan struct{})
	go func() {
		defer close(served)
		r.gateway.Handler().ServeHTTP(out, in)
	}()
	select {
	case <-served:
	case <-req.Context().Done():
		<-served
		return nil, req.Context().Err()
	}
	switch what {
	case swallowReply:
		<-req.Context().Done()
		return nil, req.Context().Err()
	case cutReply:
		return nil, io.ErrUnexpectedEOF
	}
	return out.Result(), nil
}

// events is RoundTrip for a stream.
func (r *rig) events(req *http.Request) (*http.Response, error) {
	r.mu.Lock()
	r.seen["events"]++
	tells := r.tells
	r.mu.Unlock()
	if !tells {
		return r.problem(req, api.CodeDenied), nil
	}
	in := req.Clone(req.Context())
	in.RequestURI, in.RemoteAddr, in.Body = req.URL.RequestURI(), "127.0.0.1:1", http.NoBody
	out := &streamWriter{header: http.Header{}, began: make(chan int, 1)}
	var body *io.PipeReader
	body, out.to = io.Pipe()
	context.AfterFunc(req.Context(), func() { _ = body.CloseWithError(req.Context().Err()) })
	go func() {
		r.gateway.Handler().ServeHTTP(out, in)
		_ = out.to.Close()
	}()
	select {
	case status := <-out.began:
		return &http.Response{StatusCode: status, Header: out.header, Body: body, Request: req}, nil
	case <-req.Context().Done():
		return nil, req.Context().Err()
	}
}

// streamWriter is a ResponseWriter whose body is read while it is written.
type streamWriter struct {
	header http.Header
	began  chan int
	once   sync.Once
	to     *io.PipeWriter
}

func (w *streamWriter) Header() http.Header               { return w.header }
func (w *streamWriter) WriteHeader(status int)            { w.once.Do(func() { w.began <- status }) }
func (w *streamWriter) Flush()                            { w.WriteHeader(http.StatusOK) }
func (w *streamWriter) SetWriteDeadline(time.Time) error  { return nil }
func (w *streamWriter) Write(p []byte) (n int, err error) { w.Flush(); return w.to.Write(p) }

func (r *rig) problem(req *http.Request, code api.Code) *http.Response {
	s := problem(code)
	return &http.Response{
		StatusCode: s.status, Header: http.Header{"Content-Type": {api.ProblemMediaType}},
		Body: io.NopCloser(strings.NewReader(s.body)), Request: req,
	}
}

// client returns a client over the rig's network.
func (r *rig) client(change ...func(*client.Options)) *client.Client {
	r.t.Helper()
	o := client.Options{Servers: []string{"http://a:1"}, HTTPClient: &http.Client{Transport: r}}
	for _, f := range change {
		f(&o)
	}
	c, err := client.New(o)
	if err != nil {
		r.t.Fatal(err)
	}
	return c
}

// direct returns a client past the broken network.
func (r *rig) direct() *client.Client {
	r.t.Helper()
	second := &rig{t: r.t, backend: r.backend, gateway: r.gateway, seen: map[string]int{}}
	return second.client()
}

// active returns how many leases there are in the default namespace.
func (r *rig) active() int {
	r.t.Helper()
	c, n := r.direct(), 0
	for cursor := ""; ; {
		page, err := c.List(context.Background(), client.ListRequest{Cursor: cursor, Limit: 1000})
		if err != nil {
			r.t.Fatal(err)
		}
		n += len(page.Leases)
		if cursor = page.NextCursor; cursor == "" {
			return n
		}
	}
}

func holdRequest(change ...func(*client.HoldRequest)) client.HoldRequest {
	r := client.HoldRequest{AcquireRequest: client.AcquireRequest{Key: exampleKey("a.example"), Instance: "w-1", TTL: 30 * time.Second}}
	for _, f := range change {
		f(&r)
	}
	return r
}

func ttl(d time.Duration) func(*client.HoldRequest) {
	return func(r *client.HoldRequest) { r.TTL = d }
}

func (r *rig) hold(c *client.Client, change ...func(*client.HoldRequest)) *client.Session {
	r.t.Helper()
	s, err := c.Hold(r.t.Context(), holdRequest(change...))
	if err != nil {
		r.t.Fatal(err)
	}
	return s
}
