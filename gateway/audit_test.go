package gateway

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/google/go-cmp/cmp"

	"leased/contract"
	"leased/gateway/api"
)

// memorySink keeps what is recorded.
type memorySink struct {
	mu     sync.Mutex
	events []AuditEvent
}

func (s *memorySink) Record(e *AuditEvent) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.events = append(s.events, *e)
}

func (*memorySink) Dropped() uint64             { return 0 }
func (*memorySink) Close(context.Context) error { return nil }

func (s *memorySink) recorded() []AuditEvent {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]AuditEvent(nil), s.events...)
}

func newAuditRig(t *testing.T) (*rig, *memorySink) {
	t.Helper()
	sink := &memorySink{}
	at := time.Date(2026, time.February, 1, 12, 0, 0, 0, time.UTC)
	return newRig(t, func(o *Options) {
		o.Audit = sink
		o.Now = func() time.Time { return at }
	}), sink
}

// TestAudit tells a story and compares what was recorded of it, field by field.
func TestAudit(t *testing.T) {
	r, sink := newAuditRig(t)
	id := func(s string) []string { return []string{api.HeaderIdempotencyKey, s} }
	l := r.acquired(t, "r-1")
	held := fmt.Sprintf(`{"token":%d,"instance":"worker-7"}`, l.Token)
	lease := "/leases/" + l.LeaseID
	r.post(t, "/leases", acquireBody, id("r-1")...)                                    // replayed
	r.post(t, "/leases", acquireBody, id("r-2")...)                                    // conflict
	r.post(t, lease+"/renew", held, id("r-3")...)                                      // renewed
	r.post(t, lease+"/renew", strings.Replace(held, "worker-7", "w", 1), id("r-4")...) // not owner
	r.post(t, "/check", fmt.Sprintf(`{"key_id":%q,"token":%d}`, l.KeyID, l.Token+1))   // stale
	r.post(t, "/check", fmt.Sprintf(`{"key_id":%q,"token":%d}`, l.KeyID, l.Token))     // a read that succeeds: nothing
	r.get(t, lease)                                                                    // nothing
	r.get(t, "/leases/"+someLease)                                                     // not found by a read: nothing
	r.post(t, lease+"/renew", `{`, id("r-5")...)                                       // malformed: nothing
	r.post(t, lease+"/revoke", `{"reason":"the host is gone"}`, append(id("r-6"), "traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")...)
	r.post(t, lease+"/release", held, id("r-7")...) // over
	r.post(t, "/renew", fmt.Sprintf(`{"instance":"worker-7","leases":[{"lease_id":%q,"token":7}]}`, someLease), id("r-8")...)
	r.service.observe(contract.Event{Namespace: "default", Kind: contract.EventExpired, Instance: "w", Token: 9, Previous: contract.StateActive, State: contract.StateExpired, Late: 3 * time.Second})

	type row struct {
		RequestID, Operation, Outcome, Code string
		Replayed                            bool
		Previous, State                     contract.State
		Reason                              string
		Token                               contract.Token
	}
	active, free, revoked := contract.StateActive, contract.StateFree, contract.StateRevoked
	want := []row{
		{RequestID: "r-1", Operation: "acquire", Outcome: "acquired", Previous: free, State: active, Token: 1},
		{RequestID: "r-1", Operation: "acquire", Outcome: "acquired", Replayed: true, Previous: active, State: active, Token: 1},
		{RequestID: "r-2", Operation: "acquire", Outcome: "conflict", Code: "conflict", Previous: active, State: active, Token: 1},
		{RequestID: "r-3", Operation: "renew", Outcome: "renewed", Previous: active, State: active, Token: 1},
		{RequestID: "r-4", Operation: "renew", Outcome: "not_owner", Code: "not_owner", Token: 1},
		{Operation: "check", Outcome: "stale_token", Code: "stale_token", Token: 2},
		{RequestID: "r-6", Operation: "revoke", Outcome: "revoked", Previous: active, State: revoked, Reason: "the host is gone", Token: 1},
		{RequestID: "r-7", Operation: "release", Outcome: "ended_revoked", Code: "revoked", Previous: revoked, State: revoked, Reason: "the host is gone", Token: 1},
		{RequestID: "r-8", Operation: "renew", Outcome: "not_found", Code: "not_found", Token: 7},
		{Operation: "expire", Outcome: "expired", Previous: active, State: contract.StateExpired, Token: 9},
	}
	var got []row
	for _, e := range sink.recorded() {
		if e.Operation == "check" {
			e.RequestID = "" // made by chance
		}
		got = append(got, row{e.RequestID, e.Operation, e.Outcome, e.Code, e.Replayed, e.Previous, e.State, e.Reason, e.Token})
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("audit (-want +got):\n%s", diff)
	}
	first := sink.recorded()[0]
	first.LeaseID = contract.LeaseID{} // by chance
	key := contract.Key{
		Tenant: "acme", Program: "recon", Target: contract.Target{Type: contract.TargetDomain, ID: "example.com"},
		Actor: "crawler", Workflow: "default", Operation: "scan",
	}
	whole := AuditEvent{
		Time: time.Date(2026, time.February, 1, 12, 0, 0, 0, time.UTC), RequestID: "r-1", Principal: "anonymous", Instance: "worker-7",
		Namespace: "default", Key: key, KeyID: key.ID(), Token: 1, Operation: "acquire", Outcome: "acquired", Previous: free, State: active,
	}
	if diff := cmp.Diff(whole, first); diff != "" {
		t.Errorf("the first event (-want +got):\n%s", diff)
	}
	if got := sink.recorded()[6].TraceID; got != "4bf92f3577b34da6a3ce929d0e0e4736" {
		t.Errorf("got trace id %q", got)
	}
}

// TestAudit_faults: a failing store is audited, for reads too.
func TestAudit_faults(t *testing.T) {
	r, sink := newAuditRig(t)
	for _, code := range []contract.Code{
		contract.CodeUnavailable, contract.CodeTimeout, contract.CodeOutcomeUnknown, contract.CodeClosed, contract.CodeInternal,
	} {
		r.store.renew = func(context.Context, *contract.RenewRequest) (contract.Result, error) {
			return contract.Result{}, contract.Errorf(code, errors.New("dial 192.0.2.7"), "no answer")
		}
		a := r.post(t, "/leases/"+someLease+"/renew", `{"token":7,"instance":"w"}`)
		wantProblem(t, a, api.CodeOfError(code))
		if strings.Contains(a.body, "192.0.2.7") {
			t.Errorf("%v: the reply shows the cause: %s", code, a.body)
		}
		events := sink.recorded()
		if e := events[len(events)-1]; e.Outcome != code.String() || e.Code != code.String() {
			t.Errorf("%v: audited outcome %q, code %q", code, e.Outcome, e.Code)
		}
	}
}

func TestOpenAudit(t *testing.T) {
	file := filepath.Join(t.TempDir(), "audit.jsonl")
	sink, err := OpenAudit(file)
	if err != nil {
		t.Fatal(err)
	}
	r := newRig(t, func(o *Options) { o.Audit = sink })
	r.acquired(t, "r-1")
	r.acquired(t, "r-1")
	wantProblem(t, r.post(t, "/leases", acquireBody, api.HeaderIdempotencyKey, "r-2"), api.CodeConflict)
	if err := sink.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.acquired(t, "r-1") // after Close: dropped, and no panic
	if got := sink.Dropped(); got != 1 {
		t.Errorf("got %d dropped, want 1", got)
	}
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("got mode %v, %v; want 0600", info.Mode(), err)
	}
	var outcomes []string
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var line auditLine
		if err := json.Unmarshal(lines.Bytes(), &line, json.RejectUnknownMembers(true)); err != nil {
			t.Fatalf("%s: %v", lines.Text(), err)
		}
		if line.Key != "v1/acme/recon/domain:example.com/crawler/default/scan" || len(line.LeaseID) != 43 || line.Time.IsZero() {
			t.Errorf("got line %s", lines.Text())
		}
		if strings.Contains(lines.Text(), "nightly") {
			t.Errorf("the line has metadata: %s", lines.Text())
		}
		outcomes = append(outcomes, line.Outcome)
	}
	if diff := cmp.Diff([]string{"acquired", "acquired", "conflict"}, outcomes); diff != "" {
		t.Errorf("outcomes (-want +got):\n%s", diff)
	}
}

func TestOpenAudit_none(t *testing.T) {
	sink, err := OpenAudit("")
	if sink != nil || err != nil {
		t.Errorf("no file: got %v, %v; want nil, nil", sink, err)
	}
	if _, err := OpenAudit(filepath.Join(t.TempDir(), "no", "such", "folder")); err == nil {
		t.Error("a file that cannot be made: got no error")
	}
}

// stuckWriter blocks until it is let go, then fails as often as it is told to.
type stuckWriter struct {
	free  chan struct{}
	mu    sync.Mutex
	fails int
	lines strings.Builder
}

func (w *stuckWriter) Write(b []byte) (int, error) {
	<-w.free
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.fails > 0 {
		w.fails--
		return 0, errors.New("the disk is full")
	}
	return w.lines.Write(b)
}

func (*stuckWriter) Close() error { return nil }

// TestAudit_stuck: a sink that hangs delays nobody; what it loses is counted and
// shown.
func TestAudit_stuck(t *testing.T) {
	w := &stuckWriter{free: make(chan struct{})}
	sink := newAuditLog(w, 4)
	r := newRig(t, func(o *Options) { o.Audit = sink })
	const sent = 400
	for range sent {
		r.acquired(t, "r-1") // granted once and then replayed
	}
	dropped := sink.Dropped()
	if dropped == 0 {
		t.Errorf("nothing of %d is dropped with room for 4", sent)
	}
	ready := read[api.Readiness](t, r.call(t, http.MethodGet, "/readyz", ""), http.StatusOK)
	if ready.AuditDropped != dropped {
		t.Errorf("/readyz shows %d dropped, want %d", ready.AuditDropped, dropped)
	}
	metrics := r.call(t, http.MethodGet, "/metrics", "").body
	if want := fmt.Sprintf("leased_audit_dropped_total %d", dropped); !strings.Contains(metrics, want) {
		t.Errorf("/metrics does not show %q", want)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if err := sink.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("close of a stuck sink: got %v, want the end of its bound", err)
	}
	close(w.free)
	if err := sink.Close(t.Context()); err != nil {
		t.Errorf("close once it runs again: %v", err)
	}
	if written := strings.Count(w.lines.String(), "\n"); uint64(written)+dropped != sent {
		t.Errorf("%d written and %d dropped of %d", written, dropped, sent)
	}
}

// TestAudit_recovers: events are lost while the disk fails, and written again
// once it does not, each on a line of its own.
func TestAudit_recovers(t *testing.T) {
	w := &stuckWriter{free: make(chan struct{}), fails: 1}
	sink := newAuditLog(w, 16)
	close(w.free)
	sink.Record(&AuditEvent{RequestID: "lost"})
	eventually(t, "the event is counted as dropped", func() bool { return sink.Dropped() == 1 })
	sink.Record(&AuditEvent{RequestID: "kept-1"})
	sink.Record(&AuditEvent{RequestID: "kept-2"})
	if err := sink.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	var got []string
	for line := range strings.Lines(w.lines.String()) {
		var l auditLine
		if line == "\n" {
			continue // ends what the failed write may have left
		}
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		got = append(got, l.RequestID)
	}
	if diff := cmp.Diff([]string{"kept-1", "kept-2"}, got); diff != "" {
		t.Errorf("written (-want +got):\n%s", diff)
	}
}
