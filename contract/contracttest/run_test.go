package contracttest

import (
	"context"
	"errors"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"leased/contract"
)

func TestRules(t *testing.T) {
	kebab := regexp.MustCompile(`^[a-z]+(-[a-z]+)+$`)
	seen := map[string]bool{}
	for _, rule := range Rules() {
		if !kebab.MatchString(rule.ID) || seen[rule.ID] {
			t.Errorf("rule id %q: want kebab-case, and no other rule with it", rule.ID)
		}
		seen[rule.ID] = true
		if rule.Func == nil || !strings.HasSuffix(rule.Sentence, ".") {
			t.Errorf("rule %s: want a function and a sentence, got %q", rule.ID, rule.Sentence)
		}
		if reopens := strings.HasPrefix(rule.ID, "reopen-"); reopens && !rule.Reopens {
			t.Errorf("rule %s restarts the store and does not say so", rule.ID)
		}
	}
}

// closer is a store that can only be closed.
type closer struct {
	contract.Store
	close func() error
}

func (c *closer) Close(context.Context) error { return c.close() }

// bare is a harness on nothing, for rules that do not ask the store.
func bare(s contract.Store) *Harness {
	return &Harness{
		Name: "bare", Open: func(TB) contract.Store { return s }, Kill: func(TB, contract.Store) {}, Reopen: func(TB) {},
		Advance: func(TB, time.Duration) {}, Guarantees: contract.Guarantees{Granularity: 1},
	}
}

func TestRunRule(t *testing.T) {
	tests := []struct {
		name     string
		rule     func(*Env)
		close    func() error
		failures []string // how each begins
		logs     []string
	}{
		{name: "passes", rule: func(e *Env) { e.Logf("seed %d", 7) }, logs: []string{"seed 7"}},
		{name: "fails and goes on", rule: func(e *Env) { e.Errorf("one"); e.Errorf("two") }, failures: []string{"one", "two"}},
		{name: "fails and ends", rule: func(e *Env) {
			defer e.Logf("unwound")
			e.Fatalf("one")
			e.Errorf("never")
		}, failures: []string{"one"}, logs: []string{"unwound"}},
		{name: "panics", rule: func(*Env) { panic("at the disco") }, failures: []string{"panic: at the disco"}},
		{name: "panics beside", rule: func(e *Env) { e.race(2, func(i int) { _ = []int{}[i] }) },
			failures: []string{"panic: runtime error", "panic: runtime error"}},
		{name: "close fails", rule: func(e *Env) { e.open() }, close: func() error { return errors.New("disk") },
			failures: []string{"close: disk"}},
		{name: "close panics", rule: func(e *Env) { e.open() }, close: func() error { panic("disk") },
			failures: []string{"panic: disk"}},
		{name: "fails with handles open", rule: func(e *Env) {
			s := e.open()
			e.open()
			e.kill(s) // and so not closed
			e.Fatalf("one")
		}, close: func() error { return errors.New("closed") }, failures: []string{"one"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := RunRule(t.Context(), Rule{ID: "a-rule", Func: tt.rule}, func(TB) *Harness {
				return bare(&closer{close: tt.close})
			})
			if got.Failed != (len(tt.failures) > 0) || got.Backend != "bare" || got.Rule.ID != "a-rule" {
				t.Errorf("report: got %+v", got)
			}
			if !slices.EqualFunc(got.Failures, tt.failures, strings.HasPrefix) {
				t.Errorf("failures: got %q, want %q", got.Failures, tt.failures)
			}
			if diff := cmp.Diff(tt.logs, got.Logs); diff != "" {
				t.Errorf("logs (-want +got):\n%s", diff)
			}
		})
	}
}

func TestRunRule_CleansUp(t *testing.T) {
	var told []string
	var dir string
	var ended context.Context
	RunRule(t.Context(), Rule{ID: "a-rule", Func: func(e *Env) {
		told = append(told, "rule")
		e.FailNow()
	}}, func(t TB) *Harness {
		dir, ended = t.TempDir(), t.Context()
		t.Cleanup(func() { told = append(told, "first") })
		t.Cleanup(func() {
			if ended.Err() == nil {
				t.Errorf("the context still runs")
			}
			told = append(told, "last")
			t.FailNow() // which must not keep the others from running
		})
		return bare(&closer{})
	})
	if diff := cmp.Diff([]string{"rule", "last", "first"}, told); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("temporary folder: got %v, want it removed", err)
	}
}

// TestRun_timed: the timed rules of all deployments are over before another rule
// begins, and are none of them at once.
func TestRun_timed(t *testing.T) {
	var running, over, others atomic.Int64
	deployments := []string{"one", "another"}
	rules := []Rule{
		{ID: "other", Func: func(e *Env) {
			others.Add(1)
			if n := over.Load(); int(n) != len(deployments) {
				e.Errorf("begins after %d timed rules, want %d", n, len(deployments))
			}
		}},
		{ID: "timed", Timed: true, Func: func(e *Env) {
			if n := running.Add(1); n != 1 {
				e.Errorf("%d timed rules run at once", n)
			}
			running.Add(-1)
			over.Add(1)
		}},
	}
	t.Run("deployments", func(t *testing.T) {
		for _, name := range deployments {
			t.Run(name, func(t *testing.T) {
				run(t, rules, func(*testing.T) *Harness { return bare(&closer{}) })
			})
		}
	})
	if n := others.Load(); int(n) != len(deployments) {
		t.Errorf("%d other rules were run, want %d", n, len(deployments))
	}
}

func TestRunRule_RefusesHarness(t *testing.T) {
	for what, spoil := range map[string]func(*Harness){
		"without a name":            func(h *Harness) { h.Name = "" },
		"that cannot reopen":        func(h *Harness) { h.Reopen = nil },
		"without a granularity":     func(h *Harness) { h.Guarantees.Granularity = 0 },
		"with a negative slack":     func(h *Harness) { h.Guarantees.Slack = -1 },
		"that cannot let time pass": func(h *Harness) { h.Advance = nil },
	} {
		h := bare(&closer{})
		spoil(h)
		ran := false
		report := RunRule(t.Context(), Rule{ID: "a-rule", Func: func(*Env) { ran = true }}, func(TB) *Harness { return h })
		if !report.Failed || ran {
			t.Errorf("a harness %s: failed %v, rule ran %v, want it refused", what, report.Failed, ran)
		}
	}
}

func TestEnv_TTL(t *testing.T) {
	for _, tt := range []struct{ least, step, ask, want time.Duration }{
		{0, 1, 0, 1},
		{0, 1, time.Minute, time.Minute},
		{0, time.Second, time.Millisecond, time.Second},
		{1500 * time.Millisecond, time.Second, 0, 2 * time.Second},
		{2 * time.Second, time.Second, 2500 * time.Millisecond, 3 * time.Second},
		{2 * time.Second, time.Second, 3 * time.Second, 3 * time.Second},
	} {
		e := &Env{harness: &Harness{Guarantees: contract.Guarantees{MinTTL: tt.least, Granularity: tt.step}}}
		if got := e.ttl(tt.ask); got != tt.want {
			t.Errorf("at least %v in steps of %v, asked %v: got %v, want %v", tt.least, tt.step, tt.ask, got, tt.want)
		}
	}
}

func TestPulse_Between(t *testing.T) {
	start := time.Now()
	at := func(n int) time.Time { return start.Add(time.Duration(n) * time.Second) }
	p := &pulse{stalls: []stall{{at(10), at(12)}, {at(20), at(25)}}}
	for _, tt := range []struct {
		from, to int
		want     time.Duration
	}{
		{0, 10, 0}, {0, 11, time.Second}, {11, 15, time.Second}, {0, 30, 7 * time.Second},
		{21, 22, time.Second}, {12, 20, 0}, {24, 40, time.Second}, {30, 40, 0},
	} {
		if got := p.between(at(tt.from), at(tt.to)); got != tt.want {
			t.Errorf("between %d and %d: got %v, want %v", tt.from, tt.to, got, tt.want)
		}
	}
}
