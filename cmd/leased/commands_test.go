package main

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/google/go-cmp/cmp"

	"leased/gateway/api"
)

// fakeServer answers each request with the next of its replies, the last one
// for ever, and keeps what it was asked.
type fakeServer struct {
	*httptest.Server
	mu      sync.Mutex
	replies []any
	asked   []string
}

func newFakeServer(t *testing.T, replies ...any) *fakeServer {
	t.Helper()
	s := &fakeServer{replies: replies}
	s.Server = httptest.NewServer(s)
	t.Cleanup(s.Close)
	return s
}

func (s *fakeServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	q := r.URL.Query()
	q.Del("timeout")
	s.mu.Lock()
	s.asked = append(s.asked, strings.TrimSpace(r.Method+" "+r.URL.EscapedPath()+" "+q.Encode()+" "+r.Header.Get("Authorization")+" "+string(body)))
	reply := s.replies[min(len(s.asked), len(s.replies))-1]
	s.mu.Unlock()
	w.Header().Set("Content-Type", api.MediaType)
	if p, ok := reply.(*api.Problem); ok {
		w.Header().Set("Content-Type", api.ProblemMediaType)
		w.WriteHeader(p.Status)
	}
	_ = json.MarshalWrite(w, reply)
}

func at(s string) api.Time {
	t, err := time.Parse(time.RFC3339, s)
	if err != nil {
		panic(err)
	}
	return api.NewTime(t)
}

func exampleLease(change ...func(*api.Lease)) *api.Lease {
	l := &api.Lease{
		RecordVersion: 1, Namespace: "default",
		Key: api.Key{
			Tenant: "acme", Program: "recon", Target: api.Target{Type: "domain", ID: "example.com"},
			Actor: "crawler", Workflow: "default", Operation: "scan",
		},
		KeyID: "Jf0c8wVbQ4mJcJ4m2gT09Q", LeaseID: "Jf0c8wVbQ4mJcJ4m2gT09QAAAAAAAAAAAAAAAAAAAAA", Owner: "svc-a", Instance: "worker-7",
		Token: 42, State: "active", AcquiredAt: at("2026-01-02T03:04:00Z"), RenewedAt: at("2026-01-02T03:04:00Z"),
		ExpiresAt: at("2026-01-02T03:04:30Z"), ExpiresInMS: 24567, TTLMS: 30000, MaxLifetimeMS: 86400000,
		Metadata: map[string]string{},
	}
	for _, f := range change {
		f(l)
	}
	return l
}

func full(l *api.Lease) {
	l.JobID, l.ExecutionID, l.TraceID = "job-17", "exec-1", "0af7651916cd43dd8448eb211c80319c"
	l.Metadata = map[string]string{"purpose": "nightly", "evil": "\x1b[31m\nlease: forged"}
	l.Renewals, l.RenewedAt = 3, at("2026-01-02T03:04:10Z")
}

func ended(state, by, reason string) func(*api.Lease) {
	return func(l *api.Lease) {
		l.State, l.EndedBy, l.Reason, l.EndedAt, l.ExpiresInMS = state, by, reason, at("2026-01-02T03:04:31Z"), 0
	}
}

func refusal(code api.Code, detail string, change ...func(*api.Problem)) *api.Problem {
	p := api.NewProblem(code, "req-1", detail)
	for _, f := range change {
		f(p)
	}
	return p
}

func held(p *api.Problem) {
	p.Holder = &api.Holder{
		Owner: "svc-b", Instance: "worker-9", JobID: "job-4", AcquiredAt: at("2026-01-02T03:00:00Z"), ExpiresInMS: 12345,
	}
	p.Queue = &api.Queue{Length: 2}
}

// later makes the client give up at once: what it would wait is more than it
// has.
func later(p *api.Problem) { p.RetryAfterMS = 60000 }

func events() *api.HistoryReply {
	one := api.Event{
		ID: "2", At: at("2026-01-02T03:04:31Z"), Event: "revoked", Namespace: "default", KeyID: "K", LeaseID: "L", Token: 42,
		Owner: "svc-a", Instance: "worker-7", Principal: "admin", JobID: "job-17", PreviousState: "active", State: "revoked",
		Reason: "incident\n4711",
	}
	two := one
	two.ID, two.At, two.Event, two.Principal, two.Reason, two.JobID = "1", at("2026-01-02T03:04:00Z"), "acquired", "svc-a", "", ""
	return &api.HistoryReply{Events: []api.Event{one, two}}
}

// TestCommands holds what each command asks the server, prints, and exits with.
func TestCommands(t *testing.T) {
	const key = " --tenant acme --program recon --target domain:Example.COM --actor crawler --operation scan"
	answer := func(outcome string, l *api.Lease) api.LeaseReply { return api.LeaseReply{Outcome: outcome, Lease: l} }
	tests := []struct {
		name    string
		args    string
		replies []any
		code    int
	}{
		{"acquire", "acquire --request-id req-1" + key, []any{answer("acquired", exampleLease())}, 0},
		{"acquire-full", "acquire --request-id req-1 --instance worker-7 --ttl 30s --max-lifetime 24h --wait 1m --job job-17 --execution exec-1 " +
			"--workflow w --meta purpose=nightly --meta a=b=c" + key, []any{answer("acquired", exampleLease(full))}, 0},
		{"acquire-replayed", "acquire --request-id req-1" + key,
			[]any{api.LeaseReply{Outcome: "acquired", Lease: exampleLease(), Replayed: true}}, 0},
		{"acquire-json", "acquire --request-id req-1 --json" + key, []any{answer("acquired", exampleLease(full))}, 0},
		{"acquire-ipv6", "acquire --request-id req-1 --tenant acme --target ip:2001:db8::1 --actor a", []any{answer("acquired", exampleLease())}, 0},
		{"acquire-conflict", "acquire --request-id req-1" + key, []any{refusal(api.CodeConflict, "the key is held", held)}, 3},
		{"acquire-conflict-wait", "acquire --request-id req-1 --wait 2s" + key, []any{refusal(api.CodeConflict, "the key is held", held)}, 3},
		{"acquire-conflict-json", "acquire --request-id req-1 --json" + key, []any{refusal(api.CodeConflict, "the key is held", held)}, 3},
		{"acquire-invalid", "acquire --request-id req-1" + key,
			[]any{refusal(api.CodeInvalid, "ttl_ms is 1; this namespace allows 1000 to 3600000", func(p *api.Problem) { p.Field = "ttl_ms" })}, 2},
		{"acquire-ended", "acquire --request-id req-1" + key, []any{refusal(api.CodeExpired, "the lease is over", func(p *api.Problem) {
			p.Lease, p.Replayed = exampleLease(ended("expired", "", "")), true
		})}, 4},
		{"acquire-reused", "acquire --request-id req-1" + key, []any{refusal(api.CodeRequestIDReused, "the request id named another request")}, 1},
		{"acquire-quota", "acquire --request-id req-1" + key,
			[]any{refusal(api.CodeQuotaExceeded, "leases_per_owner is 5", func(p *api.Problem) { p.RetryAfterMS = 1500 })}, 1},
		{"acquire-denied", "acquire --request-id req-1" + key, []any{refusal(api.CodeDenied, "needs the right \"acquire\"")}, 6},
		{"acquire-unauthenticated", "acquire --request-id req-1" + key, []any{refusal(api.CodeUnauthenticated, "no credential")}, 6},
		{"acquire-unavailable", "acquire --request-id req-1" + key, []any{refusal(api.CodeUnavailable, "there is no leader here", later)}, 5},
		{"acquire-closed", "acquire --request-id req-1" + key, []any{refusal(api.CodeClosed, "the gateway is shutting down", later)}, 5},
		{"acquire-timeout", "acquire --request-id req-1" + key, []any{refusal(api.CodeTimeout, "the deadline passed", later)}, 5},
		{"acquire-unknown", "acquire --request-id req-1" + key, []any{refusal(api.CodeOutcomeUnknown, "no answer", later)}, 5},
		{"acquire-internal", "acquire --request-id req-1" + key, []any{refusal(api.CodeInternal, "")}, 1},

		{"renew", "renew L --token 42 --request-id req-1", []any{answer("renewed", exampleLease(full))}, 0},
		{"renew-ttl", "renew L --token 42 --ttl 1m --instance w --request-id req-1", []any{answer("renewed", exampleLease(full))}, 0},
		{"renew-expired", "renew L --token 42 --request-id req-1",
			[]any{refusal(api.CodeExpired, "", func(p *api.Problem) { p.Lease = exampleLease(ended("expired", "", "")) })}, 4},
		{"renew-revoked", "renew L --token 42 --request-id req-1",
			[]any{refusal(api.CodeRevoked, "", func(p *api.Problem) { p.Lease = exampleLease(ended("revoked", "admin", "incident 4711")) })}, 4},
		{"renew-stale", "renew L --token 41 --request-id req-1", []any{refusal(api.CodeStaleToken, "")}, 4},
		{"renew-stranger", "renew L --token 42 --request-id req-1", []any{refusal(api.CodeNotOwner, "")}, 4},
		{"renew-notfound", "renew L --token 42 --request-id req-1", []any{refusal(api.CodeNotFound, "")}, 4},

		{"release", "release L --token 42 --request-id req-1", []any{answer("released", exampleLease(ended("released", "svc-a", "")))}, 0},
		{"release-released", "release L --token 42 --request-id req-1",
			[]any{refusal(api.CodeReleased, "", func(p *api.Problem) { p.Lease = exampleLease(ended("released", "svc-a", "")) })}, 4},
		{"release-notfound", "release L --token 42 --request-id req-1", []any{refusal(api.CodeNotFound, "")}, 4},

		{"get", "get L", []any{api.GetReply{Lease: exampleLease(full)}}, 0},
		{"get-ended", "get L", []any{api.GetReply{Lease: exampleLease(ended("revoked", "admin", "host\x07 is gone"))}}, 0},
		{"get-json", "get L --json", []any{api.GetReply{Lease: exampleLease()}}, 0},
		{"get-notfound", "get L", []any{refusal(api.CodeNotFound, "the lease never was")}, 1},
		{"get-nonamespace", "get L --namespace other", []any{refusal(api.CodeUnknownNamespace, "no namespace has this name")}, 1},

		{"list", "list", []any{api.ListReply{Leases: []*api.Lease{exampleLease(), exampleLease(full)}}}, 0},
		{"list-empty", "list", []any{api.ListReply{Leases: []*api.Lease{}}}, 0},
		{"list-filters", "list --owner o --instance i --tenant t --program p --target name:n:m --actor a --job j --state expired --expires-before 30s",
			[]any{api.ListReply{Leases: []*api.Lease{exampleLease(ended("expired", "", ""))}}}, 0},
		{"list-pages", "list --json", []any{
			api.ListReply{Leases: []*api.Lease{exampleLease()}, NextCursor: "c1"}, api.ListReply{Leases: []*api.Lease{exampleLease()}},
		}, 0},
		{"list-limit", "list --limit 3", []any{
			api.ListReply{Leases: []*api.Lease{exampleLease(), exampleLease()}, NextCursor: "c1"},
			api.ListReply{Leases: []*api.Lease{exampleLease()}, NextCursor: "c2"},
		}, 0},

		{"history-key", "history" + key, []any{api.ResolveReply{KeyID: "K"}, events()}, 0},
		{"history-id", "history K --limit 2", []any{events()}, 0},
		{"history-json", "history K --json", []any{events()}, 0},
		{"history-empty", "history K", []any{api.HistoryReply{Events: []api.Event{}}}, 0},

		{"check-key", "check --token 42" + key, []any{answer("current", exampleLease())}, 0},
		{"check-id", "check K --token 42 --json", []any{answer("current", exampleLease())}, 0},
		{"check-stale", "check K --token 41", []any{refusal(api.CodeStaleToken, "")}, 4},
		{"check-notfound", "check K --token 41", []any{refusal(api.CodeNotFound, "")}, 4},

		{"revoke", "revoke L --reason why --request-id req-1", []any{answer("revoked", exampleLease(ended("revoked", "admin", "why")))}, 0},
		{"revoke-force", "revoke L --reason why --force-release --request-id req-1",
			[]any{answer("revoked", exampleLease(ended("revoked", "admin", "why")))}, 0},
		{"revoke-notfound", "revoke L --reason why --request-id req-1", []any{refusal(api.CodeNotFound, "")}, 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := newFakeServer(t, tt.replies...)
			got := command(t.Context(), []string{"LEASED_SERVER=" + s.URL}, strings.Fields(tt.args)...)
			if got.code != tt.code {
				t.Errorf("got exit code %d, want %d", got.code, tt.code)
			}
			golden(t, "commands/"+tt.name, "$ leased "+tt.args+"\n"+strings.Join(s.asked, "\n")+"\n"+got.String())
		})
	}
}

// TestCommands_environment: each flag of the client has a variable, which the
// flag wins over.
func TestCommands_environment(t *testing.T) {
	s := newFakeServer(t, api.GetReply{Lease: exampleLease()})
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte("s3cret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	environ := []string{"LEASED_SERVER=" + s.URL, "LEASED_NAMESPACE=jobs", "LEASED_TOKEN_FILE=" + file}
	if got := command(t.Context(), environ, "get", "L"); got.code != 0 {
		t.Fatal(got)
	}
	other := []string{"LEASED_SERVER=http://127.0.0.1:1", "LEASED_NAMESPACE=jobs", "LEASED_TOKEN_FILE=/none"}
	if got := command(t.Context(), other, "get", "L", "--server", s.URL, "--namespace", "default", "--token-file", file); got.code != 0 {
		t.Fatal(got)
	}
	want := []string{
		"GET /v1/namespaces/jobs/leases/L  Bearer s3cret",
		"GET /v1/namespaces/default/leases/L  Bearer s3cret",
	}
	if diff := cmp.Diff(want, s.asked); diff != "" {
		t.Errorf("asked (-want +got):\n%s", diff)
	}
}

// TestCommands_interrupted: whoever breaks off a wait is told that it was that,
// and how to learn what became of it.
func TestCommands_interrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // else net/http does not notice the client's end
		cancel()
		<-r.Context().Done()
	}))
	defer s.Close()
	got := command(ctx, []string{"LEASED_SERVER=" + s.URL}, keyArgs("acquire", "--wait", "1m", "--request-id", "req-1")...)
	golden(t, "commands/interrupted", got.String())
	if got.code != exitUnavailable {
		t.Errorf("got exit code %d, want 5", got.code)
	}
}

// TestCommands_noServer: a server that is not there is told quickly, although
// the command may take ten seconds.
func TestCommands_noServer(t *testing.T) {
	started := time.Now()
	got := command(t.Context(), []string{"LEASED_SERVER=http://127.0.0.1:1"}, "get", "L")
	if got.code != exitUnavailable {
		t.Errorf("got %v, want exit 5", got)
	}
	if took := time.Since(started); took > 5*time.Second {
		t.Errorf("it took %v to say so", took)
	}
	golden(t, "commands/noserver", got.String())
}

func TestCommands_version(t *testing.T) {
	got := command(t.Context(), nil, "version")
	if !strings.HasPrefix(got.stdout, "leased v1.2.3\n  go      go1.") || !strings.Contains(got.stdout, "\n  commit  ") {
		t.Errorf("got %v, want version, Go release and commit", got)
	}
	var v buildVersion
	if got = command(t.Context(), nil, "version", "--json"); json.Unmarshal([]byte(got.stdout), &v) != nil || v.Version != "v1.2.3" || v.Commit == "" {
		t.Errorf("got %v, want the same as JSON", got)
	}
}

func TestMilliseconds(t *testing.T) {
	tests := []struct {
		ms   int64
		want string
	}{
		{0, "0s"}, {5, "5ms"}, {1500, "1.5s"}, {24567, "24.5s"}, {60000, "1m"}, {90500, "1m30s"}, {3600000, "1h"}, {3660000, "1h1m"},
		{86400000, "24h"}, {600000, "10m"}, {36000000, "10h"},
	}
	for _, tt := range tests {
		if got := milliseconds(tt.ms); got != tt.want {
			t.Errorf("milliseconds(%d) = %s, want %s", tt.ms, got, tt.want)
		}
	}
}
