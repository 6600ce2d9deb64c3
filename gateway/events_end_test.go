package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/go-json-experiment/json"

	"leased/contract"
	"leased/gateway/api"
)

// checkEvent holds an event to the schema of openapi.yaml.
func checkEvent(doc *openapi3.T, ev any) error {
	text, err := json.Marshal(ev)
	if err != nil {
		return err
	}
	var v any
	if err := json.Unmarshal(text, &v); err != nil {
		return err
	}
	return doc.Components.Schemas["StreamEvent"].Value.VisitJSON(v, openapi3.EnableJSONSchema2020(), openapi3.MultiErrors())
}

// slowWrite is after how long a reader is slow. On a busy machine one that is not
// gets what it is sent within it.
const slowWrite = 2 * time.Second

// longTarget is a target whose events fill what the system holds for a reader soon.
func longTarget() string { return strings.Repeat("long", 250) }

// untilDropped renews a lease until of two streams one is left, which is read, and
// returns how often.
func (v *served) untilDropped(t *testing.T, l *contract.Lease, brisk *events) int {
	t.Helper()
	n := 0
	for v.openStreams(t) == "2" {
		if n > 200_000 {
			t.Fatalf("a reader that reads nothing was not dropped after %d events", n)
		}
		if err := v.renewed(l, n, 100); err != nil {
			t.Fatal(err)
		}
		for range 100 {
			if b := brisk.named("renewed"); !strings.Contains(b.data, fmt.Sprintf(`"request_id":"renew-%d"`, n)) {
				t.Fatalf("the brisk reader: event %d is %+v", n, b)
			}
			n++
		}
	}
	return n
}

// TestEvents_slow: who does not read is cut off, and nobody else and nothing
// waits for it.
func TestEvents_slow(t *testing.T) {
	r := newRig(t)
	r.service.streams.write = slowWrite
	v := serveRig(t, r, ServerOptions{})
	l := v.held(t, longTarget())
	brisk := v.stream(t, "")
	var d net.Dialer
	conn, err := d.DialContext(t.Context(), "tcp", strings.TrimPrefix(v.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.(*net.TCPConn).SetReadBuffer(1 << 12); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(conn, "GET /v1/namespaces/default/events HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "two streams are open", func() bool { return v.openStreams(t) == "2" })
	v.untilDropped(t, l, brisk)
	if got := v.shown(t, `leased_event_streams_dropped_total{namespace="default"}`)[0]; !strings.HasSuffix(got, " 1") {
		t.Errorf("got %s, want 1 dropped", got)
	}
	// It finds out when it reads again: its stream broke off.
	text, err := io.ReadAll(conn)
	if err == nil && strings.HasSuffix(string(text), "\r\n0\r\n\r\n") {
		t.Error("the stream of a slow reader ends as if it were whole")
	}
}

// TestEvents_slowOverHTTP2: of the streams on one connection only the one that is
// not read is cut off.
func TestEvents_slowOverHTTP2(t *testing.T) {
	r := newRig(t)
	r.service.streams.write = slowWrite
	v := serveRig(t, r, ServerOptions{})
	l := v.held(t, longTarget())
	client := overHTTP2(t)
	brisk, slow := v.open(t, client, ""), v.open(t, client, "")
	brisk.begins()
	slow.begins()
	n := v.untilDropped(t, l, brisk)
	for i := 0; i < n; {
		b, err := slow.read()
		if err != nil {
			return // after what was on its way
		}
		if b.event == "" {
			continue
		}
		if !strings.Contains(b.data, fmt.Sprintf(`"request_id":"renew-%d"`, i)) {
			t.Fatalf("the slow reader, before its stream broke off: event %d is %+v", i, b)
		}
		i++
	}
	t.Error("the slow reader was sent everything, and its stream was cut")
}

// TestEvents_disconnect: a client that goes away leaves nothing behind.
func TestEvents_disconnect(t *testing.T) {
	v := serve(t, ServerOptions{})
	for range 3 {
		e := v.stream(t, "")
		eventually(t, "the stream is open", func() bool { return v.openStreams(t) == "1" })
		e.close()
		eventually(t, "the stream is gone", func() bool { return v.openStreams(t) == "0" })
	}
}

// TestEvents_drain: a gateway that closes tells its streams and does not wait
// for them, not for one that does not read either.
func TestEvents_drain(t *testing.T) {
	v := serve(t, ServerOptions{})
	one, two := v.stream(t, ""), v.stream(t, "?owner=nobody")
	before := time.Now()
	v.stop()
	one.ended(api.CodeClosed)
	if p := two.ended(api.CodeClosed); !p.Retryable {
		t.Error("resuming elsewhere makes sense, and the problem says it does not")
	}
	if err := v.ended(t); err != nil {
		t.Errorf("Run: %v", err)
	}
	if took := time.Since(before); took > 5*time.Second {
		t.Errorf("the shutdown took %v: it waited for the streams", took)
	}
	wantProblem(t, v.get(t, "/events"), api.CodeClosed)
}

// fakeStream is a stream that only its test feeds.
type fakeStream struct {
	next func(context.Context) (contract.Event, error)
	over chan struct{}
}

func (f *fakeStream) Next(ctx context.Context) (contract.Event, error) { return f.next(ctx) }
func (f *fakeStream) Cursor() string                                   { return "cursor" }
func (f *fakeStream) Close()                                           { close(f.over) }

// TestEvents_storeFails: a stream that cannot go on says why, and is closed.
func TestEvents_storeFails(t *testing.T) {
	fail := func(c contract.Code) error {
		return contract.Errorf(c, errors.New("10.0.0.1:6379"), "the store is away")
	}
	for name, tt := range map[string]struct {
		next func(context.Context) (contract.Event, error)
		want api.Code
	}{
		"unavailable": {func(context.Context) (contract.Event, error) { return contract.Event{}, fail(contract.CodeUnavailable) }, api.CodeUnavailable},
		"closed":      {func(context.Context) (contract.Event, error) { return contract.Event{}, fail(contract.CodeClosed) }, api.CodeClosed},
		"corrupt":     {func(context.Context) (contract.Event, error) { return contract.Event{}, fail(contract.CodeInternal) }, api.CodeInternal},
		"a time-out of its own": {func(context.Context) (contract.Event, error) {
			return contract.Event{}, fail(contract.CodeTimeout)
		}, api.CodeTimeout},
	} {
		t.Run(name, func(t *testing.T) {
			v := serve(t, ServerOptions{})
			f := &fakeStream{next: tt.next, over: make(chan struct{})}
			v.store.watch = func(context.Context, *contract.WatchRequest) (contract.Stream, error) { return f, nil }
			if p := v.stream(t, "").ended(tt.want); strings.Contains(fmt.Sprint(p), "6379") {
				t.Errorf("the end shows a cause: %+v", p)
			}
			<-f.over
		})
	}
	t.Run("at the beginning", func(t *testing.T) {
		r := newRig(t)
		r.store.watch = func(context.Context, *contract.WatchRequest) (contract.Stream, error) {
			return nil, fail(contract.CodeUnavailable)
		}
		wantProblem(t, r.get(t, "/events"), api.CodeUnavailable)
	})
}

// TestEvents_unwell: a store that serves nobody has no events, and a stream of
// nothing must not look like one on which nothing happens.
func TestEvents_unwell(t *testing.T) {
	r := newRig(t)
	r.service.streams = streamTimes{keepAlive: 10 * time.Millisecond, write: time.Second, recheck: 10 * time.Millisecond, unwell: 50 * time.Millisecond}
	var away atomic.Bool
	r.store.health = func(ctx context.Context, q *contract.HealthRequest) (contract.Health, error) {
		if away.Load() {
			return contract.Health{Detail: "no quorum"}, nil
		}
		return r.store.Store.Health(ctx, q)
	}
	v := serveRig(t, r, ServerOptions{})
	e := v.stream(t, "")
	e.block()
	began := time.Now()
	away.Store(true)
	e.ended(api.CodeUnavailable)
	if took := time.Since(began); took < r.service.streams.unwell {
		t.Errorf("the stream ended after %v, want it to bear a short outage of %v", took, r.service.streams.unwell)
	}
}

// TestEvents_rights: who has the right on one tenant sees its events and no
// others, for as long as the right lasts.
func TestEvents_rights(t *testing.T) {
	r, auth := newAuthRig(t, allVerbs()...)
	r.service.streams.keepAlive = 20 * time.Millisecond
	v := serveRig(t, r, ServerOptions{})
	wantProblem(t, v.get(t, "/events"), api.CodeUnauthenticated)
	mine := read[api.LeaseReply](t, v.post(t, "/leases", acquireBody, "Authorization", "acme"), http.StatusCreated).Lease
	e := v.stream(t, "", "Authorization", "acme")
	foreign := read[api.LeaseReply](t, v.post(t, "/leases", otherTenant, "Authorization", "globex"), http.StatusCreated).Lease
	held := fmt.Sprintf(`{"token":%d,"instance":"worker-7"}`, mine.Token)
	v.post(t, "/leases/"+mine.LeaseID+"/renew", held, "Authorization", "acme")
	if ev := e.next(); ev.LeaseID != mine.LeaseID || ev.Event != "renewed" {
		t.Errorf("got %+v, want the renewal of acme's and nothing of globex's", ev)
	}
	for _, query := range []string{"?key_id=" + foreign.KeyID, "?lease_id=" + foreign.LeaseID} {
		wantProblem(t, v.get(t, "/events"+query, "Authorization", "acme"), api.CodeDenied)
	}
	unknown := v.stream(t, "?lease_id="+someLease, "Authorization", "acme")
	auth.ended.Store(true)
	e.ended(api.CodeDenied)
	unknown.ended(api.CodeDenied)

	r, _ = newAuthRig(t, VerbAcquire, VerbList)
	if p := wantProblem(t, r.get(t, "/events", "Authorization", "acme"), api.CodeDenied); !strings.Contains(p.Detail, `"watch"`) {
		t.Errorf("got %q, want the name of the right that is needed", p.Detail)
	}
}

// TestEvents_metrics counts a stream as one operation, when it begins.
func TestEvents_metrics(t *testing.T) {
	v := serve(t, ServerOptions{})
	e := v.stream(t, "")
	v.held(t, "one")
	e.next()
	for _, want := range []string{
		`leased_operations_total{namespace="default",operation="watch",outcome="found"} 1`,
		`leased_operation_duration_seconds_count{namespace="default",operation="watch"} 1`,
		`leased_events_sent_total{namespace="default"} 1`,
	} {
		name, _, _ := strings.Cut(want, " ")
		if got := v.shown(t, name); len(got) != 1 || got[0] != want {
			t.Errorf("got %q, want %s", got, want)
		}
	}
}
