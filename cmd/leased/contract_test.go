package main

import (
	"context"
	"encoding/xml"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jstemmer/go-junit-report/v2/junit"

	"leased/contract"
	"leased/contract/contracttest"
	"leased/contract/memstore"
)

// TestContract_usage holds what a wrong command line is told. None of it may
// show a password that somebody put into the URL.
func TestContract_usage(t *testing.T) {
	t.Chdir(t.TempDir())
	tests := []struct{ args, want string }{
		{"", "--backend is needed: the store to hold to the contract, such as valkey://127.0.0.1:6379"},
		{"--backend 127.0.0.1:6379", "--backend is no URL that begins with valkey://, etcd:// or raftkv://"},
		{"--backend redis://127.0.0.1:6379", "--backend is no URL that begins with valkey://, etcd:// or raftkv://"},
		{"--backend valkey://", "--backend: addresses is missing; list the servers, such as [127.0.0.1:6379]"},
		{"--backend valkey://a", `--backend: addresses: "a" is not host:port, such as 127.0.0.1:6379`},
		{"--backend valkey://me:hush@a:1", "--backend holds a user name or password, which others could read in the list of processes; say ?username=NAME and --password-file FILE"},
		{"--backend etcd://a:1?password=hush", "--backend holds a password, which others could read in the list of processes; say --password-file FILE"},
		{"--backend etcd://a:1?PassWd=hush", "--backend holds a password, which others could read in the list of processes; say --password-file FILE"},
		{"--backend etcd://a:1?username=me", "--backend: username has no password_file beside it; name the file that holds the password"},
		{"--backend etcd://a:1?a=b", `--backend: unknown setting "a"; known are username, password_file, tls.enabled, tls.ca, tls.cert, tls.key, tls.server_name, prefix`},
		{"--backend etcd://a:1?prefix=a&prefix=b", "--backend sets prefix twice; remove one"},
		{"--backend etcd://a:1/0", "--backend has a path after its servers; etcd takes none"},
		{"--backend valkey://a:1?replica_acks=two", `--backend: replica_acks: "two" is not a whole number`},
		{"--backend valkey://a:1?%zz", "--backend: what follows the ? is not name=value&name=value"},
		{"--backend raftkv://", "--backend raftkv:// needs a directory, such as raftkv:///mnt/disk or raftkv://./scratch"},
		{"--backend raftkv://none", "--backend: stat none: no such file or directory"},
		{"--backend raftkv://. --password-file p", "--password-file has no effect on raftkv; remove it"},
		{"--backend raftkv://. --rules x-*", `--rules: no rule matches "x-*"; their names begin like ` + contracttest.Rules()[0].ID},
		{"--backend raftkv://. --rules [", `--rules: "[" is no pattern; * stands for any text, ? for one character`},
		{"--backend raftkv://. --parallel 0", "--parallel must be at least 1, not 0"},
		{"--backend raftkv://. --timeout 0s", "--timeout must be positive, not 0s"},
		{"--backend raftkv://. --junit none/r.xml", "--junit: open none/r.xml: no such file or directory"},
	}
	for _, tt := range tests {
		t.Run(tt.args, func(t *testing.T) {
			got := command(t.Context(), nil, append([]string{"contract"}, strings.Fields(tt.args)...)...)
			first, _, _ := strings.Cut(got.stderr, "\n")
			if diff := cmp.Diff("error: "+tt.want, first); diff != "" || got.code != exitUsage {
				t.Errorf("exit %d, want 2; refusal (-want +got):\n%s", got.code, diff)
			}
			if strings.Contains(got.String(), "hush") {
				t.Errorf("a password is shown: %v", got)
			}
		})
	}
}

func TestNewSubject(t *testing.T) {
	got, err := newSubject("valkey://s1:26379,[::1]:26379?sentinel_master=main&replica_acks=1&username=me&tls.ca=ca.pem&prefix=team", "pw")
	if err != nil {
		t.Fatal(err)
	}
	want := &subject{kind: "valkey", shown: "valkey://s1:26379,[::1]:26379", backend: backendConfig{
		Type: "valkey", Addresses: []string{"s1:26379", "[::1]:26379"}, Username: "me", PasswordFile: "pw", Prefix: "team",
		TLS: backendTLSConfig{CA: "ca.pem"}, SentinelMaster: "main", ReplicaAcks: 1,
	}}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(subject{})); diff != "" {
		t.Errorf("subject (-want +got):\n%s", diff)
	}
}

// TestContract_raftkv runs rules on this machine's disk, one of them over a
// restart, and holds that nothing is left of it but the report.
func TestContract_raftkv(t *testing.T) {
	t.Chdir(t.TempDir())
	got := command(t.Context(), nil, "contract", "--backend", "raftkv://.", "--rules", "release-*,wait-killed-skipped,reopen-tokens-rise", "--junit", "r.xml")
	if got.code != 0 || got.stderr != "" {
		t.Fatalf("got %v, want exit 0", got)
	}
	for _, want := range []string{"raftkv://. is ready", "ok    reopen-tokens-rise", " hold, 0 do not, 0 were not run to their end, in "} {
		if !strings.Contains(got.stdout, want) {
			t.Errorf("%q is not in the report:\n%s", want, got.stdout)
		}
	}
	if strings.Contains(got.stdout, "not restarted") {
		t.Errorf("the node is restarted, and the report denies it:\n%s", got.stdout)
	}
	text, err := os.ReadFile("r.xml")
	if err != nil {
		t.Fatal(err)
	}
	var suites junit.Testsuites
	if err := xml.Unmarshal(text, &suites); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(got.stdout, "  ok    "); suites.Tests != n || suites.Failures+suites.Errors != 0 {
		t.Errorf("%d tests, %d failures and %d errors in the XML, want %d rules that hold", suites.Tests, suites.Failures, suites.Errors, n)
	}
	left, err := filepath.Glob("*")
	if err != nil || !cmp.Equal(left, []string{"r.xml"}) {
		t.Errorf("left behind: %q, %v; want only the report", left, err)
	}
}

// TestContract_interrupted: what was not run is not known to hold.
func TestContract_interrupted(t *testing.T) {
	t.Chdir(t.TempDir())
	ctx, cancel := context.WithCancel(t.Context())
	stdout, stderr := &interrupting{after: "  ok    ", interrupt: cancel}, new(strings.Builder)
	code := run(ctx, &env{
		args:   []string{"contract", "--backend", "raftkv://.", "--rules", "release-*", "--parallel", "1"},
		stdout: stdout, stderr: stderr, hostname: "host-1", version: "v1.2.3", now: time.Now,
	})
	got := result{code, stdout.text.String(), stderr.String()}
	if got.code != exitOther || !strings.Contains(got.stderr, "were not run") || strings.Count(got.stdout, "  ok    ") != 1 {
		t.Errorf("got %v, want one rule that holds, exit 1, and that the others were not run", got)
	}
	if left, err := filepath.Glob("*"); err != nil || len(left) != 0 {
		t.Errorf("left behind: %q, %v; want nothing", left, err)
	}
}

// interrupting is an output that interrupts its command after a text.
type interrupting struct {
	after     string
	interrupt func()
	text      strings.Builder
}

func (w *interrupting) Write(p []byte) (int, error) {
	n, err := w.text.Write(p)
	if strings.Contains(w.text.String(), w.after) {
		w.interrupt()
	}
	return n, err
}

// reluctant is a store that says why it cannot serve, and nothing when it is asked
// for less than a second.
type reluctant struct{ contract.Store }

func (reluctant) Health(ctx context.Context, _ *contract.HealthRequest) (contract.Health, error) {
	if end, _ := ctx.Deadline(); time.Until(end) < time.Second {
		<-ctx.Done()
		return contract.Health{}, contract.Lost(ctx)
	}
	return contract.Health{Detail: "the policy is wrong"}, nil
}

func (reluctant) Close(context.Context) error { return nil }

// TestCheckReady_cutOff: that the last look at a store was cut off is not why it
// cannot serve.
func TestCheckReady_cutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		open := &openSubject{store: func() (contract.Store, error) { return reluctant{}, nil }}
		err := checkReady(t.Context(), open, newContractReport(&env{stdout: io.Discard, now: time.Now}, &subject{}, 1))
		if want := (&notReadyError{why: "the policy is wrong"}).Error(); err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	})
}

// TestRunRules_ended: no rule is begun when the time is over, to be called broken for
// that.
func TestRunRules_ended(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	rules := contracttest.Rules()[:8]
	begun := func(contracttest.TB) *contracttest.Harness {
		t.Error("a rule was begun")
		return &contracttest.Harness{}
	}
	open := &openSubject{harness: func(contracttest.Rule) func(contracttest.TB) *contracttest.Harness { return begun }}
	report := newContractReport(&env{stdout: io.Discard, now: time.Now}, &subject{}, len(rules))
	for range 2000 { // it takes a worker that is ready before the first is sent
		if left := runRules(ctx, open, rules, 4, report); len(left) != len(rules) {
			t.Fatalf("%d of %d rules were left", len(left), len(rules))
		}
	}
}

// TestRunRules_cutOff: a rule that an interrupt ends did not show that the store breaks
// it. One that had failed by then, or holds all the same, did what it says.
func TestRunRules_cutOff(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	begun := make(chan struct{})
	rules := []contracttest.Rule{
		{ID: "broken", Sentence: "A rule is kept.", Func: func(e *contracttest.Env) { e.Errorf("it is not") }},
		{ID: "holds", Sentence: "A rule is kept.", Func: func(*contracttest.Env) { <-begun; cancel() }},
		{ID: "late", Sentence: "A rule is run.", Func: func(*contracttest.Env) { t.Error("it was begun") }},
	}
	cut := contracttest.Rule{ID: "cut", Sentence: "A rule is kept.", Func: func(e *contracttest.Env) {
		close(begun)
		<-e.Context().Done()
		e.Errorf("%v", e.Context().Err())
	}}
	backend := memstore.New(memstore.Options{Start: time.Now()})
	open := &openSubject{harness: func(contracttest.Rule) func(contracttest.TB) *contracttest.Harness {
		return func(contracttest.TB) *contracttest.Harness {
			return &contracttest.Harness{
				Name: "memory", Guarantees: contract.Guarantees{Granularity: 1},
				Open: func(contracttest.TB) contract.Store { return backend.Open() },
				Kill: func(contracttest.TB, contract.Store) {}, Reopen: func(contracttest.TB) {}, Advance: contracttest.AdvanceRealTime,
			}
		}
	}}
	var text, file strings.Builder
	report := newContractReport(&env{stdout: &text, now: time.Now}, &subject{}, 4)
	var cutting sync.WaitGroup
	cutting.Go(func() { report.notRun(runRules(ctx, open, []contracttest.Rule{cut}, 1, report), endedBecause(ctx)) })
	report.notRun(runRules(ctx, open, rules, 1, report), endedBecause(ctx))
	cutting.Wait()
	if err := report.end(); exitCode(err) != exitOther || err.Error() != "1 of 4 rules do not hold, and 2 were not run to their end" {
		t.Errorf("got %v, want one broken, one cut off and one not begun", err)
	}
	if err := report.writeJUnit(&file); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"FAIL  broken", "ok    holds", "These do not hold: broken.\n", "1 hold, 1 do not, 2 were not run to their end"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("%q is not in the report:\n%s", want, text.String())
		}
	}
	if !strings.Contains(file.String(), `errors="2"`) || !strings.Contains(file.String(), "not run to its end: interrupted") {
		t.Errorf("the XML does not tell:\n%s", file.String())
	}
}

// TestContractReport holds both forms of the report, for each way in which a
// rule can end.
func TestContractReport(t *testing.T) {
	var text, file strings.Builder
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	r := newContractReport(&env{stdout: &text, version: "v1.2.3", now: func() time.Time { return now }},
		&subject{kind: "valkey", shown: "valkey://127.0.0.1:6379"}, 4)
	r.ready(3 * time.Millisecond)
	r.begin(&openSubject{})
	r.add(contracttest.Report{Rule: contracttest.Rule{ID: "a-holds"}, Took: time.Second})
	r.add(contracttest.Report{Rule: contracttest.Rule{ID: "reopen-holds", Reopens: true}, Took: 20 * time.Millisecond})
	r.add(contracttest.Report{
		Rule: contracttest.Rule{ID: "a-broken", Sentence: "A rule is kept."}, Failed: true, Took: 1500 * time.Millisecond,
		Failures: []string{"got \x00\x1b[31m]]> and \xff,\nwant <x>", "more"}, Logs: []string{"a log"},
	})
	r.notRun([]contracttest.Rule{{ID: "a-late", Sentence: "A rule is run."}}, "interrupted")
	now = now.Add(2500 * time.Millisecond)
	err := r.end()
	if exitCode(err) != exitOther || err.Error() != "1 of 4 rules do not hold, and 1 were not run to their end" {
		t.Errorf("got %v, want 1 broken, 1 not run and exit 1", err)
	}
	if err := r.writeJUnit(&file); err != nil {
		t.Fatal(err)
	}
	golden(t, "contract/report", text.String())
	golden(t, "contract/junit", file.String())
}
