package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"leased/contract"
	"leased/gateway/api"
)

// served is a rig on a real connection, with an end to its Run.
type served struct {
	*rig
	url  string
	stop context.CancelFunc
	done chan error
}

func serve(t *testing.T, o ServerOptions) *served {
	t.Helper()
	return serveRig(t, newRig(t), o)
}

func serveRig(t *testing.T, r *rig, o ServerOptions) *served {
	t.Helper()
	o.Address = "127.0.0.1:0"
	s, err := r.Listen(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	v := &served{rig: r, url: "http://" + s.Address().String(), stop: stop, done: make(chan error, 1)}
	go func() { v.done <- s.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		http.DefaultClient.CloseIdleConnections()
		if err, open := <-v.done; open && err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	return v
}

// ended waits for Run and returns its error.
func (v *served) ended(t *testing.T) error {
	t.Helper()
	select {
	case err := <-v.done:
		close(v.done)
		return err
	case <-time.After(10 * time.Second):
		t.Fatal("Run does not end")
		return nil
	}
}

func (v *served) request(t *testing.T, ctx context.Context, path, body, id string) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, v.url+"/v1/namespaces/default"+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", api.MediaType)
	r.Header.Set(api.HeaderIdempotencyKey, id)
	return r
}

// send sends a request and returns its reply; the channel gets one value.
func send(r *http.Request) <-chan answer {
	answers := make(chan answer, 1)
	go func() {
		reply, err := http.DefaultClient.Do(r)
		if err != nil {
			answers <- answer{body: err.Error()}
			return
		}
		defer reply.Body.Close()
		var b bytes.Buffer
		_, _ = b.ReadFrom(reply.Body)
		answers <- answer{status: reply.StatusCode, header: reply.Header, body: b.String()}
	}()
	return answers
}

func receive(t *testing.T, answers <-chan answer) answer {
	t.Helper()
	select {
	case a := <-answers:
		return a
	case <-time.After(10 * time.Second):
		t.Fatal("no reply within 10 s")
		return answer{}
	}
}

const waitBody = `{` + someKey + `,"instance":"waiter","wait_ms":200000}`

// TestDrain: those who wait are told at once that the gateway closes, their
// places are away, and nobody is granted a lease that nobody knows of.
func TestDrain(t *testing.T) {
	v := serve(t, ServerOptions{})
	holder := read[api.LeaseReply](t, v.post(t, "/leases", `{`+someKey+`,"instance":"holder"}`), http.StatusCreated).Lease
	first := send(v.request(t, t.Context(), "/leases", waitBody, "w-1"))
	second := send(v.request(t, t.Context(), "/leases", waitBody, "w-2"))
	eventually(t, "two requests wait", func() bool { return v.waiters(t) == 2 })

	before := time.Now()
	v.stop()
	for i, answers := range []<-chan answer{first, second} {
		p := wantProblem(t, receive(t, answers), api.CodeClosed)
		if want := []string{"w-1", "w-2"}[i]; p.RequestID != want || !p.Retryable {
			t.Errorf("got request id %q, retryable %v; want %q, true", p.RequestID, p.Retryable, want)
		}
	}
	if err := v.ended(t); err != nil {
		t.Errorf("Run: %v", err)
	}
	if took := time.Since(before); took > 5*time.Second {
		t.Errorf("the shutdown took %v: it waited for the waiters", took)
	}
	if got := v.waiters(t); got != 0 {
		t.Errorf("after the drain %d waiters count in the queue, want 0", got)
	}
	ctx := context.Background()
	res, err := v.store.Store.Release(ctx, &contract.ReleaseRequest{
		Namespace: "default", RequestID: "r", Owner: "anonymous", Instance: "holder", LeaseID: mustLeaseID(t, holder.LeaseID),
		Token: contract.Token(holder.Token), Retention: v.service.router.byName["default"].retention,
	})
	if err != nil || res.Outcome != contract.OutcomeReleased {
		t.Fatalf("release: %v, %v", res.Outcome, err)
	}
	page, err := v.store.List(ctx, &contract.ListRequest{Namespace: "default"})
	if err != nil || len(page.Leases) != 0 {
		t.Errorf("after the release got leases %v, %v: a waiter that was told no was granted", page.Leases, err)
	}
	for _, path := range []string{"/leases", "/resolve"} {
		wantProblem(t, v.post(t, path, waitBody), api.CodeClosed)
	}
	wantProblem(t, v.get(t, "/leases"), api.CodeClosed)
	if a := v.call(t, http.MethodGet, "/healthz", ""); a.status != http.StatusOK {
		t.Errorf("a draining gateway is alive, got status %d", a.status)
	}
}

func mustLeaseID(t *testing.T, s string) contract.LeaseID {
	t.Helper()
	id, err := contract.ParseLeaseID(s)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// TestDrain_answers: what a store says to a call that was cut short decides what
// the client is told. Only what was certainly not applied is closed.
func TestDrain_answers(t *testing.T) {
	lease := contract.Lease{Owner: "anonymous", State: contract.StateActive, Token: 3, ID: contract.LeaseID{1}}
	ended := lease
	ended.State = contract.StateReleased
	fail := func(c contract.Code) error { return contract.Errorf(c, nil, "as it was") }
	for name, test := range map[string]struct {
		res  contract.Result
		err  error
		want api.Code // "" is a grant
	}{
		"conflict":        {contract.Result{Outcome: contract.OutcomeConflict, Lease: &lease}, nil, api.CodeClosed},
		"timeout":         {contract.Result{}, fail(contract.CodeTimeout), api.CodeClosed},
		"unavailable":     {contract.Result{}, fail(contract.CodeUnavailable), api.CodeClosed},
		"outcome unknown": {contract.Result{}, fail(contract.CodeOutcomeUnknown), api.CodeOutcomeUnknown},
		"granted":         {contract.Result{Outcome: contract.OutcomeAcquired, Lease: &lease}, nil, ""},
		"over":            {contract.Result{Outcome: contract.OutcomeEndedReleased, Lease: &ended}, nil, api.CodeReleased},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			waiting := make(chan struct{})
			r.store.acquire = func(ctx context.Context, _ *contract.AcquireRequest) (contract.Result, error) {
				close(waiting)
				<-ctx.Done()
				return test.res, test.err
			}
			answers := make(chan answer, 1)
			go func() { answers <- r.post(t, "/leases", waitBody) }()
			<-waiting
			r.Drain()
			r.Drain()
			a := receive(t, answers)
			if test.want == "" {
				read[api.LeaseReply](t, a, http.StatusCreated)
				return
			}
			wantProblem(t, a, test.want)
		})
	}
}

// TestDrain_late: a request that was let in and comes to wait after the drain
// must not wait.
func TestDrain_late(t *testing.T) {
	r := newRig(t)
	c := Call{Principal: Principal{Name: "anonymous"}, RequestID: "r-1", op: opAcquire, start: time.Now()}
	if err := r.service.begin(&c, "default"); err != nil {
		t.Fatal(err)
	}
	r.Drain()
	var in api.AcquireRequest
	if err := json.Unmarshal([]byte(waitBody), &in); err != nil {
		t.Fatal(err)
	}
	if _, err := r.service.Acquire(t.Context(), &c, &in); problemOf(err, "").Code != api.CodeClosed {
		t.Errorf("got %v, want closed", err)
	}
}

// TestDisconnect: a client that goes away while it waits is away at once, also
// when it never reads a reply, and the one behind it is served.
func TestDisconnect(t *testing.T) {
	v := serve(t, ServerOptions{})
	holder := read[api.LeaseReply](t, v.post(t, "/leases", `{`+someKey+`,"instance":"holder"}`), http.StatusCreated).Lease
	ctx, goAway := context.WithCancel(t.Context())
	defer goAway()
	gone := send(v.request(t, ctx, "/leases", waitBody, "w-1"))
	eventually(t, "one request waits", func() bool { return v.waiters(t) == 1 })
	stays := send(v.request(t, t.Context(), "/leases", waitBody, "w-2"))
	eventually(t, "two requests wait", func() bool { return v.waiters(t) == 2 })
	goAway()
	receive(t, gone)
	eventually(t, "the one that went away does not count", func() bool { return v.waiters(t) == 1 })
	read[api.LeaseReply](t, v.post(t, "/leases/"+holder.LeaseID+"/release", `{"token":1,"instance":"holder"}`), http.StatusOK)
	a := receive(t, stays)
	if got := a.header.Get(api.HeaderRequestID); got != "w-2" {
		t.Errorf("got request id %q, want w-2", got)
	}
	read[api.LeaseReply](t, a, http.StatusCreated)
}

// TestDisconnect_rest: a body with more to come hides a disconnect from
// net/http until it is read to its end.
func TestDisconnect_rest(t *testing.T) {
	v := serve(t, ServerOptions{})
	read[api.LeaseReply](t, v.post(t, "/leases", `{`+someKey+`,"instance":"holder"}`), http.StatusCreated)
	var d net.Dialer
	conn, err := d.DialContext(t.Context(), "tcp", strings.TrimPrefix(v.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	// White space after the value is valid JSON, and more than one read takes.
	body := waitBody + strings.Repeat(" ", 20000)
	head := "POST /v1/namespaces/default/leases HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
	chunks := "4e20\r\n" + body[:20000] + "\r\n" + chunk(body[20000:]) + "0\r\n\r\n"
	if _, err := io.WriteString(conn, head+chunks); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the request waits", func() bool { return v.waiters(t) == 1 })
	if err := conn.Close(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the request that went away does not count", func() bool { return v.waiters(t) == 0 })
}

func chunk(s string) string {
	const hex = "0123456789abcdef"
	n := len(s)
	return string([]byte{hex[n>>12&15], hex[n>>8&15], hex[n>>4&15], hex[n&15]}) + "\r\n" + s + "\r\n"
}
