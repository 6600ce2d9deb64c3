package gateway

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"leased/contract/memstore"
	"leased/gateway/api"
)

// TestEvents tells the story of a lease, as the history does and with renewals.
func TestEvents(t *testing.T) {
	v := serve(t, ServerOptions{})
	e := v.stream(t, "")
	for name, want := range map[string]string{
		"Content-Type": "text/event-stream", "Cache-Control": "no-store", "X-Accel-Buffering": "no", "X-Content-Type-Options": "nosniff",
	} {
		if got := e.reply.Header.Get(name); got != want {
			t.Errorf("got %s %q, want %q", name, got, want)
		}
	}
	if e.reply.Header.Get(api.HeaderRequestID) == "" {
		t.Errorf("got no %s", api.HeaderRequestID)
	}
	l := v.acquired(t, "r-1")
	held := fmt.Sprintf(`{"token":%d,"instance":"worker-7"}`, l.Token)
	read[api.LeaseReply](t, v.post(t, "/leases/"+l.LeaseID+"/renew", held, api.HeaderIdempotencyKey, "r-2"), http.StatusOK)
	read[api.LeaseReply](t, v.post(t, "/leases/"+l.LeaseID+"/revoke", `{"reason":"id: 1"}`, api.HeaderIdempotencyKey, "r-3"), http.StatusOK)
	got := []api.Event{e.next(), e.next(), e.next()}
	history := read[api.HistoryReply](t, v.get(t, "/keys/"+l.KeyID+"/history"), http.StatusOK).Events
	renewed := history[1]
	renewed.ID, renewed.Event, renewed.PreviousState, renewed.RequestID = got[1].ID, "renewed", "active", "r-2"
	if diff := cmp.Diff([]api.Event{history[1], renewed, history[0]}, got); diff != "" {
		t.Errorf("events of the history, and the renewal (-want +got):\n%s", diff)
	}
	doc := loadOpenAPI(t)
	for _, ev := range got {
		if err := checkEvent(doc, ev); err != nil {
			t.Errorf("the event is not what openapi.yaml says: %v", err)
		}
	}
}

// TestEvents_invalid refuses what would be a stream of something else.
func TestEvents_invalid(t *testing.T) {
	r := newRig(t)
	long := strings.Repeat("x", 300)
	for _, tt := range []struct {
		name, query, field string
		headers            []string
	}{
		{"unknown parameter", "?tenant=acme", "tenant", nil},
		{"empty owner", "?owner=", "owner", nil},
		{"owner twice", "?owner=a&owner=b", "owner", nil},
		{"owner too long", "?owner=" + long, "owner", nil},
		{"owner with a line break", "?owner=a%0ab", "owner", nil},
		{"instance too long", "?instance=" + long, "instance", nil},
		{"instance not in UTF-8", "?instance=%ff", "instance", nil},
		{"lease id", "?lease_id=nonsense", "lease_id", nil},
		{"lease id of nothing", "?lease_id=" + strings.Repeat("A", 43), "lease_id", nil},
		{"key id", "?key_id=" + strings.Repeat("A", 43), "key_id", nil},
		{"key id of nothing", "?key_id=" + strings.Repeat("A", 22), "key_id", nil},
		{"no kind of event", "?event=ended", "event", nil},
		{"a gap", "?event=gap", "event", nil},
		{"nothing beside a kind of event", "?event=expired,", "event", nil},
		{"a blank beside a kind of event", "?event=expired,%20revoked", "event", nil},
		{"event twice", "?event=expired&event=revoked", "event", nil},
		{"timeout", "?timeout=soon", "timeout", nil},
		{"a token in the query", "?token=7", "token", nil},
		{"no query", "?%zz", "query", nil},
		{"cursor", "", api.HeaderLastEventID, []string{api.HeaderLastEventID, "nonsense"}},
		{"cursor of the future", "", api.HeaderLastEventID, []string{api.HeaderLastEventID, "00000000000000ff"}},
		{"cursor too long", "", api.HeaderLastEventID, []string{api.HeaderLastEventID, long}},
		{"empty cursor", "", api.HeaderLastEventID, []string{api.HeaderLastEventID, ""}},
		{"two cursors", "", api.HeaderLastEventID, []string{api.HeaderLastEventID, "1", api.HeaderLastEventID, "2"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := wantProblem(t, r.get(t, "/events"+tt.query, tt.headers...), api.CodeInvalid)
			if p.Field != tt.field {
				t.Errorf("got field %q, want %q: %s", p.Field, tt.field, p.Detail)
			}
		})
	}
	wantProblem(t, r.call(t, http.MethodGet, "/v1/namespaces/nope/events", ""), api.CodeUnknownNamespace)
	wantProblem(t, r.post(t, "/events", "{}"), api.CodeMethodNotAllowed)
	if got := r.openStreams(t); got != "0" {
		t.Errorf("%s streams are open, want 0", got)
	}
}

func TestEvents_filters(t *testing.T) {
	v := serve(t, ServerOptions{})
	one, two := v.held(t, "one"), v.held(t, "two")
	n := 0 // a request id that is used again makes no event
	for _, query := range []string{
		"?instance=w-one", "?lease_id=" + one.ID.String(), "?key_id=" + one.KeyID.String(),
		"?owner=anonymous&instance=w-one&timeout=1s", // which bounds the beginning alone
	} {
		t.Run(query, func(t *testing.T) {
			e := v.stream(t, query)
			for range 2 {
				n += 10
				if err := v.renewed(two, n, 3); err != nil {
					t.Fatal(err)
				}
				if err := v.renewed(one, n, 1); err != nil {
					t.Fatal(err)
				}
				if ev := e.next(); ev.LeaseID != one.ID.String() || ev.RequestID != fmt.Sprint("renew-", n) {
					t.Errorf("got %+v, want renewal %d of the lease of w-one", ev, n)
				}
			}
		})
	}
	ends := v.stream(t, "?event=released,expired,revoked")
	if err := v.renewed(two, n+10, 3); err != nil {
		t.Fatal(err)
	}
	held := fmt.Sprintf(`{"token":%d,"instance":"w-two"}`, two.Token)
	read[api.LeaseReply](t, v.post(t, "/leases/"+two.ID.String()+"/release", held, api.HeaderIdempotencyKey, "end"), http.StatusOK)
	if ev := ends.next(); ev.Event != "released" || ev.LeaseID != two.ID.String() {
		t.Errorf("got %+v, want the release of the lease of w-two", ev)
	}
	e := v.stream(t, "?owner=%2A")
	if err := v.renewed(one, n+10, 1); err != nil {
		t.Fatal(err)
	}
	v.stop()
	e.ended(api.CodeClosed) // and nothing of the owner who is not "*"
}

// TestEvents_resume closes a stream again and again while events come, at a
// moment that it does not choose, and reads each event once.
func TestEvents_resume(t *testing.T) {
	v := serve(t, ServerOptions{})
	l := v.held(t, "busy")
	const renewals = 300
	e := v.stream(t, "")
	failed := make(chan error, 1)
	go func() { failed <- v.renewed(l, 0, renewals) }()
	for i := range renewals {
		if ev := e.next(); ev.RequestID != fmt.Sprint("renew-", i) {
			t.Fatalf("event %d is of %s", i, ev.RequestID)
		}
		if i%7 == 3 {
			e = v.resume(e, "?owner=anonymous")
		}
	}
	if err := <-failed; err != nil {
		t.Fatal(err)
	}
	// And before the first event.
	e = v.stream(t, "")
	e.close()
	if err := v.renewed(l, renewals, 2); err != nil {
		t.Fatal(err)
	}
	e = v.resume(e, "")
	for i := range 2 {
		if ev := e.next(); ev.RequestID != fmt.Sprint("renew-", renewals+i) {
			t.Errorf("after a stream without events comes %s, want renewal %d", ev.RequestID, renewals+i)
		}
	}
}

// TestEvents_restart resumes at another gateway on the same backend, after the
// first one is gone.
func TestEvents_restart(t *testing.T) {
	first := serve(t, ServerOptions{})
	l := first.held(t, "busy")
	e := first.stream(t, "")
	if err := first.renewed(l, 0, 2); err != nil {
		t.Fatal(err)
	}
	e.next()
	first.stop()
	if err := first.ended(t); err != nil {
		t.Errorf("Run: %v", err)
	}
	if err := first.renewed(l, 2, 1); err != nil { // nobody looks
		t.Fatal(err)
	}
	second := serveRig(t, newRig(t, func(o *Options) { o.Namespaces[0].Store = first.backend.Open() }), ServerOptions{})
	e = second.resume(e, "")
	for i := 1; i < 3; i++ {
		if ev := e.next(); ev.RequestID != fmt.Sprint("renew-", i) {
			t.Errorf("after the restart comes %s, want renewal %d", ev.RequestID, i)
		}
	}
}

// TestEvents_gap comes back after the store has forgotten.
func TestEvents_gap(t *testing.T) {
	backend := memstore.New(memstore.Options{Ring: 8})
	v := serveRig(t, newRig(t, func(o *Options) { o.Namespaces[0].Store = backend.Open() }), ServerOptions{})
	v.store.Store = v.service.router.byName["default"].Store
	l := v.held(t, "busy")
	e := v.stream(t, "")
	e.close()
	eventually(t, "the stream is gone", func() bool { return v.openStreams(t) == "0" })
	if err := v.renewed(l, 0, 20); err != nil {
		t.Fatal(err)
	}
	e = v.resume(e, "")
	gap := e.named(api.EventGap)
	if want := fmt.Sprintf(`{"id":%q,"event":"gap","namespace":"default"}`, gap.id); gap.data != want {
		t.Errorf("got %s, want %s", gap.data, want)
	}
	e = v.resume(e, "") // at the gap
	for i := 12; i < 20; i++ {
		if ev := e.next(); ev.RequestID != fmt.Sprint("renew-", i) {
			t.Errorf("after the gap comes %s, want renewal %d", ev.RequestID, i)
		}
	}
	want := []string{`leased_event_gaps_total{namespace="default"} 1`}
	if diff := cmp.Diff(want, v.shown(t, `leased_event_gaps_total{namespace="default"}`)); diff != "" {
		t.Errorf("metrics (-want +got):\n%s", diff)
	}
}

// TestEvents_keepAlive: a stream without events shows that it lives, and where
// it has come to.
func TestEvents_keepAlive(t *testing.T) {
	r := newRig(t)
	r.service.streams.keepAlive = 20 * time.Millisecond
	v := serveRig(t, r, ServerOptions{})
	e := v.stream(t, "?instance=nobody")
	began := e.id
	v.held(t, "other")
	eventually(t, "the id moves over an event of another", func() bool {
		b := e.block()
		if b.comment != "keep-alive" || b.event != "" || b.id == "" {
			t.Fatalf("got %+v, want a keep-alive", b)
		}
		return b.id != began
	})
	e = v.resume(e, "")
	l := v.held(t, "next")
	if ev := e.next(); ev.LeaseID != l.ID.String() {
		t.Errorf("resumed at a keep-alive: got %+v, want what came after it", ev)
	}
	if d := defaultStreamTimes(); d.keepAlive+healthTimeout >= 15*time.Second || d.write >= DefaultShutdownTimeout {
		t.Errorf("a keep-alive may come after %v, want less than 15 s; a shutdown may take %v", d.keepAlive+healthTimeout, d.write)
	}
}

// TestEvents_idle: the bound of a write does not bound the time between writes.
func TestEvents_idle(t *testing.T) {
	r := newRig(t)
	// A write fails that begins so late, by whatever: it has a second for a busy machine.
	r.service.streams.keepAlive, r.service.streams.write = 1200*time.Millisecond, time.Second
	v := serveRig(t, r, ServerOptions{})
	two := overHTTP2(t)
	one, other := v.stream(t, ""), v.open(t, two, "")
	other.begins()
	if other.reply.ProtoMajor != 2 {
		t.Errorf("the stream is over %s, want HTTP/2", other.reply.Proto)
	}
	for range 2 {
		for _, e := range []*events{one, other} {
			if b := e.block(); b.comment != "keep-alive" {
				t.Errorf("got %+v, want a keep-alive", b)
			}
		}
	}
}

// overHTTP2 returns a client that speaks HTTP/2 without TLS.
func overHTTP2(t *testing.T) *http.Client {
	t.Helper()
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	transport := &http.Transport{Protocols: protocols}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// TestEvents_many opens a thousand streams, on HTTP/2 and on HTTP/1.
func TestEvents_many(t *testing.T) {
	const streams = 1000
	v := serve(t, ServerOptions{})
	l := v.held(t, "watched")
	var all sync.WaitGroup
	wrong := make(chan error, streams)
	open := make([]*events, streams)
	two := overHTTP2(t)
	for i := range open {
		client := http.DefaultClient
		if i%10 != 0 {
			client = two
		}
		open[i] = v.open(t, client, "?lease_id="+l.ID.String())
		open[i].begins()
	}
	if got := v.openStreams(t); got != fmt.Sprint(streams) {
		t.Errorf("%s streams are open, want %d", got, streams)
	}
	for _, e := range open {
		all.Go(func() {
			for i := range 3 {
				for {
					b, err := e.read()
					if err == nil && b.event == "" {
						continue
					}
					if want := fmt.Sprintf(`"request_id":"renew-%d"`, i); err != nil || !strings.Contains(b.data, want) {
						wrong <- fmt.Errorf("event %d: %+v, %w", i, b, err)
						return
					}
					break
				}
			}
			e.close()
		})
	}
	began := time.Now()
	if err := v.renewed(l, 0, 3); err != nil {
		t.Fatal(err)
	}
	all.Wait()
	t.Logf("%d streams were shown 3 events in %v", streams, time.Since(began))
	close(wrong)
	for err := range wrong {
		t.Error(err)
	}
	eventually(t, "no stream is open", func() bool { return v.openStreams(t) == "0" })
}
