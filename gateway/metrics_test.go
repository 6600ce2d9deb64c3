package gateway

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"leased/contract"
	"leased/contract/memstore"
	"leased/gateway/api"
)

// shown returns the lines of /metrics that begin with one of the names.
func (r *rig) shown(t *testing.T, names ...string) []string {
	t.Helper()
	a := r.call(t, http.MethodGet, "/metrics", "")
	if a.status != http.StatusOK {
		t.Fatalf("got status %d: %s", a.status, a.body)
	}
	var lines []string
	for line := range strings.Lines(a.body) {
		if slices.ContainsFunc(names, func(n string) bool { return strings.HasPrefix(line, n) }) {
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	return lines
}

// story lets happen, once or more, most of what is counted.
func story(t *testing.T, r *rig, name string) {
	t.Helper()
	l := r.acquired(t, name+"-1")
	held := fmt.Sprintf(`{"token":%d,"instance":"worker-7"}`, l.Token)
	stale := fmt.Sprintf(`{"token":%d,"instance":"worker-7"}`, l.Token+1)
	lease := "/leases/" + l.LeaseID
	r.post(t, "/leases", acquireBody)
	r.post(t, lease+"/renew", held)
	r.post(t, lease+"/renew", stale)
	r.post(t, lease+"/renew", `{`)
	r.post(t, "/check", fmt.Sprintf(`{"key_id":%q,"token":%d}`, l.KeyID, l.Token+1))
	r.post(t, "/renew", fmt.Sprintf(`{"instance":"worker-7","leases":[{"lease_id":%q,"token":%d},{"lease_id":%q,"token":7}]}`, l.LeaseID, l.Token, someLease))
	r.post(t, lease+"/revoke", `{"reason":"x"}`, api.HeaderIdempotencyKey, name+"-2")
	r.post(t, lease+"/revoke", `{"reason":"x"}`, api.HeaderIdempotencyKey, name+"-2") // replayed: no revocation
	r.get(t, lease)
	r.service.observe(contract.Event{Namespace: "default", Kind: contract.EventExpired, Late: 20 * time.Millisecond})
	r.service.observe(contract.Event{Namespace: "elsewhere", Kind: contract.EventExpired})
}

func TestMetrics(t *testing.T) {
	r := newRig(t)
	story(t, r, "r")
	want := []string{
		`leased_active_leases{namespace="default"} 0`,
		`leased_conflicts_total{namespace="default"} 1`,
		`leased_conflicts_total{namespace="unknown"} 0`,
		`leased_expiration_lateness_seconds_sum{namespace="default"} 0.02`,
		`leased_expiration_lateness_seconds_count{namespace="default"} 1`,
		`leased_expiration_lateness_seconds_sum{namespace="unknown"} 0`,
		`leased_expiration_lateness_seconds_count{namespace="unknown"} 1`,
		`leased_expirations_total{namespace="default"} 1`,
		`leased_expirations_total{namespace="unknown"} 1`,
		`leased_namespace_ready{namespace="default"} 1`,
		`leased_operations_total{namespace="default",operation="acquire",outcome="acquired"} 1`,
		`leased_operations_total{namespace="default",operation="acquire",outcome="conflict"} 1`,
		`leased_operations_total{namespace="default",operation="check",outcome="stale_token"} 1`,
		`leased_operations_total{namespace="default",operation="get",outcome="found"} 1`,
		`leased_operations_total{namespace="default",operation="renew",outcome="invalid"} 1`,
		`leased_operations_total{namespace="default",operation="renew",outcome="not_found"} 1`,
		`leased_operations_total{namespace="default",operation="renew",outcome="renewed"} 2`,
		`leased_operations_total{namespace="default",operation="renew",outcome="stale_token"} 1`,
		`leased_operations_total{namespace="default",operation="renew_bulk",outcome="renewed"} 1`,
		`leased_operations_total{namespace="default",operation="revoke",outcome="revoked"} 2`,
		`leased_renew_failures_total{namespace="default",reason="invalid"} 1`,
		`leased_renew_failures_total{namespace="default",reason="not_found"} 1`,
		`leased_renew_failures_total{namespace="default",reason="stale_token"} 1`,
		`leased_revocations_total{namespace="default"} 1`,
		`leased_revocations_total{namespace="unknown"} 0`,
		`leased_stale_fence_rejections_total{namespace="default"} 2`,
		`leased_stale_fence_rejections_total{namespace="unknown"} 0`,
		`leased_waiters{namespace="default"} 0`,
	}
	got := r.shown(t, "leased_active", "leased_conflicts", "leased_expir", "leased_namespace_ready", "leased_operations",
		"leased_renew_failures", "leased_revocations", "leased_stale", "leased_waiters")
	got = slices.DeleteFunc(got, func(s string) bool {
		counted := strings.HasPrefix(s, "leased_operations") || strings.HasPrefix(s, "leased_renew_failures")
		return strings.Contains(s, "_bucket") || counted && strings.HasSuffix(s, " 0")
	})
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("metrics (-want +got):\n%s", diff)
	}
	want = []string{
		`leased_operation_duration_seconds_count{namespace="default",operation="acquire"} 2`,
		`leased_operation_duration_seconds_count{namespace="default",operation="renew"} 3`,
		`leased_operation_duration_seconds_count{namespace="default",operation="renew_bulk"} 1`,
	}
	got = slices.DeleteFunc(r.shown(t, "leased_operation_duration_seconds_count"), func(s string) bool { return !slices.Contains(want, s) })
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("durations (-want +got):\n%s", diff)
	}
	if got := r.shown(t, "leased_build_info"); len(got) != 1 || !strings.Contains(got[0], `version="v0.0.0-test"`) {
		t.Errorf("got build info %v", got)
	}
}

// TestMetrics_fresh: what the guide to operations says to be alerted by is there
// before anything happened, with 0: no rate sees the first count of a series that
// begins with it.
func TestMetrics_fresh(t *testing.T) {
	r := newRig(t)
	const guide = "../docs/operations.md"
	text, err := os.ReadFile(guide)
	if err != nil {
		t.Fatal(err)
	}
	_, watch, found := strings.Cut(string(text), "\n## Watch\n")
	watch, _, _ = strings.Cut(watch, "\n## ")
	rows := regexp.MustCompile("(?m)^\\| `(leased_[a-z_]+)`(?: with outcome `([a-z_]+)` or `([a-z_]+)`)? \\|").FindAllStringSubmatch(watch, -1)
	if !found || len(rows) < 6 || rows[4][2] == "" {
		t.Fatalf("%s does not say what to watch as this test reads it: %q", guide, rows)
	}
	for _, row := range rows {
		for _, outcome := range row[2:] {
			if row[2] == "" {
				outcome = ""
			}
			shown := slices.DeleteFunc(r.shown(t, row[1]), func(line string) bool {
				return !strings.Contains(line, `namespace="default"`) || outcome != "" && !strings.Contains(line, `outcome="`+outcome+`"`)
			})
			if len(shown) == 0 {
				t.Errorf("%s%s is not shown", row[1], outcome)
			}
			for _, line := range shown {
				if !strings.HasSuffix(line, " 0") {
					t.Errorf("nothing has happened: %s", line)
				}
			}
		}
	}
	for _, reason := range []string{"ended_expired", "stale_token", "unavailable"} {
		want := `leased_renew_failures_total{namespace="default",reason="` + reason + `"} 0`
		if got := r.shown(t, "leased_renew_failures_total"); !slices.Contains(got, want) {
			t.Errorf("got %q, want %s among them", got, want)
		}
	}
}

// TestMetrics_bounded: no text of a caller becomes a series. Whatever is sent a
// second time under other names makes none.
func TestMetrics_bounded(t *testing.T) {
	r := newRig(t)
	send := func(i int) {
		name := fmt.Sprintf("name-%d", i)
		story(t, r, name)
		r.call(t, http.MethodGet, "/"+name, "")
		r.call(t, "M"+strings.ToUpper(strings.ReplaceAll(name, "-", "")), "/healthz", "")
		r.call(t, http.MethodGet, "/v1/namespaces/"+name+"/leases", "")
		r.call(t, http.MethodPost, "/v1/namespaces/"+name+"/leases", acquireBody)
		r.get(t, "/leases?owner="+name)
		r.get(t, "/leases?"+name+"=1")
		r.get(t, "/keys/"+name)
		r.post(t, "/resolve", strings.ReplaceAll(`{"key":{"tenant":"NAME","target":{"type":"name","id":"NAME"},"actor":"NAME"}}`, "NAME", name))
		r.service.observe(contract.Event{Namespace: name})
	}
	series := func() []string {
		value := regexp.MustCompile(` [^ ]+$`)
		var names []string
		for _, line := range r.shown(t, "leased_") {
			names = append(names, value.ReplaceAllString(line, ""))
		}
		return names
	}
	send(1)
	series() // the scrape itself is a request
	want := series()
	for i := range 20 {
		send(100 + i)
	}
	if diff := cmp.Diff(want, series()); diff != "" {
		t.Errorf("new series (-before +after):\n%s", diff)
	}
	for _, s := range want {
		if strings.Contains(s, "name-") || strings.Contains(s, "acme") || strings.Contains(s, "MNAME") {
			t.Errorf("a caller's text in %s", s)
		}
	}
	if !slices.Contains(want, `leased_http_requests_total{method="other",route="unknown",status="404"}`) ||
		!slices.Contains(want, `leased_http_requests_total{method="other",route="unknown",status="405"}`) {
		t.Errorf("unknown paths and methods are not counted: %v", want)
	}
}

// TestMetrics_deadStore: a store that never answers delays a scrape by a bound,
// and only the first of a second; its numbers are left out, not invented.
func TestMetrics_deadStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		var calls atomic.Int64
		r.store.health = func(ctx context.Context, _ *contract.HealthRequest) (contract.Health, error) {
			calls.Add(1)
			<-ctx.Done()
			return contract.Health{}, contract.NotSubmitted(ctx)
		}
		before := time.Now()
		got := r.shown(t, "leased_active", "leased_namespace_ready", "leased_waiters")
		if diff := cmp.Diff([]string{`leased_namespace_ready{namespace="default"} 0`}, got); diff != "" {
			t.Errorf("gauges (-want +got):\n%s", diff)
		}
		if took := time.Since(before); took > healthTimeout {
			t.Errorf("the scrape took %v, want at most %v", took, healthTimeout)
		}
		synctest.Wait()
		before = time.Now()
		r.shown(t, "leased_namespace_ready")
		if took := time.Since(before); took > 0 || calls.Load() != 1 {
			t.Errorf("a second scrape took %v and %d looks at the store, want 0s and 1", took, calls.Load())
		}
		wantProblemStatus(t, r.call(t, http.MethodGet, "/readyz", ""), http.StatusServiceUnavailable)
		if a := r.call(t, http.MethodGet, "/healthz", ""); a.status != http.StatusOK {
			t.Errorf("/healthz: got status %d with a dead store", a.status)
		}
	})
}

func wantProblemStatus(t *testing.T, a answer, status int) {
	t.Helper()
	if a.status != status || a.header.Get("Content-Type") != api.ProblemMediaType {
		t.Errorf("got %d %s, want a problem of status %d", a.status, a.header.Get("Content-Type"), status)
	}
}

// TestHealth_oneLook: readiness checks do not pile up on a store that hangs, and
// one that hangs past its deadline is not ready within the bound all the same.
func TestHealth_oneLook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		var calls atomic.Int64
		free := make(chan struct{})
		r.store.health = func(context.Context, *contract.HealthRequest) (contract.Health, error) {
			calls.Add(1)
			<-free // deaf to its deadline
			return contract.Health{Ready: true, Guarantees: memstore.Guarantees()}, nil
		}
		answers := make(chan answer, 8)
		for range cap(answers) {
			go func() { answers <- r.call(t, http.MethodGet, "/readyz", "") }()
		}
		before := time.Now()
		for range cap(answers) {
			wantProblemStatus(t, <-answers, http.StatusServiceUnavailable)
		}
		if took := time.Since(before); took != healthTimeout || calls.Load() != 1 {
			t.Errorf("8 checks took %v and %d looks, want %v and 1", took, calls.Load(), healthTimeout)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		look := r.service.router.sorted[0].health
		if err := look.wait(ctx); err == nil {
			t.Error("nothing waited for the look that runs")
		}
		close(free)
		read[api.Readiness](t, r.call(t, http.MethodGet, "/readyz", ""), http.StatusOK)
		// What a store promises does not change when it fails.
		r.store.health = func(context.Context, *contract.HealthRequest) (contract.Health, error) {
			return contract.Health{}, contract.Errorf(contract.CodeClosed, nil, "the store is closed")
		}
		ns := read[api.Namespace](t, r.call(t, http.MethodGet, "/v1/namespaces/default", ""), http.StatusOK)
		if ns.State != api.StateUnavailable || ns.Health.Detail != "closed: the store is closed" || !ns.Guarantees.QuotaExact {
			t.Errorf("got state %q, detail %q, guarantees %+v", ns.State, ns.Health.Detail, ns.Guarantees)
		}
	})
}

// TestNew_twice: two gateways in one process are an ordinary thing; two on one
// registry are refused rather than mixed.
func TestNew_twice(t *testing.T) {
	newRig(t)
	shared := prometheus.NewRegistry()
	newRig(t, func(o *Options) { o.Registry = shared })
	_, err := New(Options{
		Auth: AuthNone(), Registry: shared,
		Namespaces: []Namespace{{Name: "default", Backend: "local", Store: memstore.New(memstore.Options{}).Open(), Policy: DefaultPolicy()}},
	})
	if err == nil || !strings.Contains(err.Error(), "metrics") {
		t.Errorf("got %v, want a refusal", err)
	}
}
