package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"leased/client"
	"leased/gateway/api"
	"leased/test/proc"
)

// keyArgs name the key of these tests.
func keyArgs(command string, more ...string) []string {
	return append([]string{command, "--tenant", "acme", "--target", "domain:Example.COM", "--actor", "crawler"}, more...)
}

// reply reads what a command printed with --json.
func reply[T any](t *testing.T, r result) *T {
	t.Helper()
	got := new(T)
	if err := json.Unmarshal([]byte(r.stdout), got); err != nil {
		t.Fatalf("%v in %v", err, r)
	}
	return got
}

// TestServe_firstLease follows what the server prints when it is started with
// nothing: the data is where it says, and the curl line grants a lease.
func TestServe_firstLease(t *testing.T) {
	dir := t.TempDir()
	s := serveIn(t, dir)
	words := shellWords(t, s.curl)
	if len(words) != 7 || words[0] != "curl" || words[3] != "-H" || words[5] != "-d" {
		t.Fatalf("the server suggests %q, want curl -sS URL -H HEADER -d BODY", s.curl)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, words[2], strings.NewReader(words[6]))
	if err != nil {
		t.Fatal(err)
	}
	name, value, _ := strings.Cut(words[4], ": ")
	req.Header.Set(name, value)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusCreated {
		body, _ := io.ReadAll(resp.Body)
		t.Errorf("%s\nanswers %s: %s, want 201", s.curl, resp.Status, body)
	}
	where := filepath.Join(dir, "leased-data")
	if _, err := os.Stat(where); err != nil {
		t.Errorf("no data where it is by default: %v", err)
	}
	if said := s.stdout.String(); !strings.Contains(said, where) {
		t.Errorf("the server says %q, want the directory of its data, %s", said, where)
	}
	if hint := "leased acquire --server " + s.url + " "; !strings.Contains(s.stdout.String(), hint) {
		t.Errorf("the server says %q, want a command that begins %q", s.stdout, hint)
	}
}

// shellWords splits a line as a shell does, as far as single quotes.
func shellWords(t *testing.T, line string) []string {
	t.Helper()
	var words []string
	for _, m := range regexp.MustCompile(`'([^']*)'|(\S+)`).FindAllStringSubmatch(line, -1) {
		words = append(words, m[1]+m[2])
	}
	return words
}

// TestCommands_lifeOfALease takes one lease through every command, against a
// real server and over a restart of it.
func TestCommands_lifeOfALease(t *testing.T) {
	dir := t.TempDir()
	s := serveIn(t, dir)

	lease := reply[jsonAnswer](t, s.mustRun(keyArgs("acquire", "--json", "--ttl", "1m", "--job", "job-17")...)).Lease
	if lease.Key.Target.ID != "example.com" || lease.State != "active" || lease.TTLMS != 60000 {
		t.Errorf("acquired %+v, want an active lease of a minute on example.com", lease)
	}
	token := strconv.FormatUint(lease.Token, 10)

	refused := s.run(keyArgs("acquire", "--instance", "other")...)
	if refused.code != exitHeld || !strings.Contains(refused.stderr, "job job-17") {
		t.Errorf("a second acquire: %v, want exit 3 and the holder's job", refused)
	}
	renewed := reply[jsonAnswer](t, s.mustRun("renew", lease.LeaseID, "--token", token, "--ttl", "2m", "--json"))
	if renewed.Outcome != "renewed" || renewed.Lease.Token != lease.Token || renewed.Lease.TTLMS != 120000 {
		t.Errorf("renewed %+v, want the same token and two minutes", renewed.Lease)
	}
	s.mustRun(keyArgs("check", "--token", token)...)
	s.mustRun("check", lease.KeyID, "--token", token)
	if got := s.run("check", lease.KeyID, "--token", strconv.FormatUint(lease.Token+1, 10)); got.code != exitLost {
		t.Errorf("check of another token: %v, want exit 4", got)
	}
	if got := reply[api.ListReply](t, s.mustRun("list", "--job", "job-17", "--json")); len(got.Leases) != 1 || got.Leases[0].LeaseID != lease.LeaseID {
		t.Errorf("list: %+v, want the one lease", got.Leases)
	}
	if got := s.run("renew", lease.LeaseID, "--token", token, "--instance", "thief"); got.code != exitLost {
		t.Errorf("renew by another instance: %v, want exit 4", got)
	}

	s.stop()
	s = serveIn(t, dir)
	if got := reply[api.GetReply](t, s.mustRun("get", lease.LeaseID, "--json")).Lease; got.State != "active" || got.Token != lease.Token {
		t.Errorf("after a restart the lease is %+v, want it active with token %d", got, lease.Token)
	}
	s.mustRun("release", lease.LeaseID, "--token", token, "--request-id", "give-back")
	again := reply[jsonAnswer](t, s.mustRun("release", lease.LeaseID, "--token", token, "--request-id", "give-back", "--json"))
	if !again.Replayed || again.RequestID != "give-back" {
		t.Errorf("the same release again: %+v, want the first answer replayed", again)
	}
	if got := s.run("renew", lease.LeaseID, "--token", token); got.code != exitLost {
		t.Errorf("renew after release: %v, want exit 4", got)
	}
	next := reply[jsonAnswer](t, s.mustRun(keyArgs("acquire", "--json")...)).Lease
	if next.Token <= lease.Token {
		t.Errorf("the next token is %d, want more than %d", next.Token, lease.Token)
	}
	s.mustRun("revoke", next.LeaseID, "--reason", "test is over", "--force-release")
	var kinds []string
	for _, e := range reply[api.HistoryReply](t, s.mustRun(keyArgs("history", "--json")...)).Events {
		kinds = append(kinds, e.Event)
	}
	if got, want := strings.Join(kinds, " "), "revoked acquired released acquired"; got != want {
		t.Errorf("history is %q, want %q", got, want)
	}
	if got := s.run("get", lease.KeyID); got.code != exitUsage {
		t.Errorf("get of something that is no lease id: %v, want exit 2", got)
	}
}

// TestServe_sameDirectory: the second process on a data directory says so and
// ends. It waited for ever once, on a file lock.
func TestServe_sameDirectory(t *testing.T) {
	dir := t.TempDir()
	first := serveIn(t, dir)
	// The program as users have it: what the race detector takes on a busy machine is
	// nothing that they wait for.
	bin := proc.Build(t, "leased/cmd/leased")
	started := time.Now()
	got := startProgram(t, bin, dir, nil, "serve", "--http.listen", "127.0.0.1:0").wait()
	if took := time.Since(started); took > 5*time.Second {
		t.Errorf("the second process took %v to end, want at most 5s", took)
	}
	if got.code != exitOther || !strings.Contains(got.stderr, "leased-data") || !strings.Contains(got.stderr, "another leased process") {
		t.Errorf("got %v, want exit 1 and the directory", got)
	}
	first.mustRun(keyArgs("acquire")...)
}

func TestServe_portInUse(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	dir := t.TempDir()
	got := start(t, dir, nil, "serve", "--http.listen", l.Addr().String()).wait()
	if got.code != exitOther || !strings.Contains(got.stderr, l.Addr().String()) || !strings.Contains(got.stderr, "address already in use") {
		t.Errorf("got %v, want exit 1 and the address", got)
	}
	serveIn(t, dir) // nothing of the failed start is left in the way
}

func TestServe_wrongConfiguration(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "leased.yaml"), []byte("node:\n  idd: a\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	got := start(t, dir, nil, "serve", "-c", "leased.yaml").wait()
	if want := "error: leased.yaml:2: unknown field \"idd\" in node; did you mean \"id\"?\n"; got.code != exitUsage || got.stderr != want {
		t.Errorf("got %v, want exit 2 and %q", got, want)
	}
	if _, err := os.Stat(filepath.Join(dir, "leased-data")); err == nil {
		t.Error("a server that was refused made its data directory")
	}
}

// TestServe_stopsWhileOneWaits: a call that waits for a key is answered when the
// server ends, and nothing is granted to it by that.
func TestServe_stopsWhileOneWaits(t *testing.T) {
	dir := t.TempDir()
	s := serveIn(t, dir)
	held := reply[jsonAnswer](t, s.mustRun(keyArgs("acquire", "--json", "--ttl", "10m")...)).Lease
	waiter := start(t, dir, []string{"LEASED_SERVER=" + s.url}, keyArgs("acquire", "--wait", "4m", "--instance", "waiter")...)
	untilQueued(t, s, held.KeyID)

	started := time.Now()
	s.stop()
	if took := time.Since(started); took > stopTimeout {
		t.Errorf("the server took %v to end", took)
	}
	if got := waiter.wait(); got.code != exitUnavailable {
		t.Errorf("the waiter got %v, want exit 5", got)
	}

	s = serveIn(t, dir)
	s.mustRun("release", held.LeaseID, "--token", strconv.FormatUint(held.Token, 10))
	if got := reply[api.ListReply](t, s.mustRun("list", "--json")); len(got.Leases) != 0 {
		t.Errorf("after the release the leases are %+v, want none: the waiter was gone", got.Leases)
	}
}

// untilQueued returns when one call waits for the key.
func untilQueued(t *testing.T, s *server, keyID string) {
	t.Helper()
	c, err := client.New(client.Options{Servers: []string{s.url}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	proc.Succeeds(t, "one call waits", patience, func() error {
		got, err := c.GetKey(t.Context(), "", keyID)
		if err != nil {
			t.Fatal(err)
		}
		if got.Queue.Length != 1 {
			return fmt.Errorf("the queue is %+v", got.Queue)
		}
		return nil
	})
}

// TestServe_secondSignal: whoever cannot wait for the orderly end sends the
// signal again. The request whose body never comes makes the end slow.
func TestServe_secondSignal(t *testing.T) {
	s := serveIn(t, t.TempDir())
	defer hangingRequest(t, s).Close()
	s.signal(syscall.SIGTERM)
	untilLogged(t, s, "stopping")
	s.signal(syscall.SIGTERM)
	started := time.Now()
	s.wait()
	if took := time.Since(started); took > drainTimeout/2 {
		t.Errorf("the server took %v to end, want at once", took)
	}
	if state := s.cmd.ProcessState.Sys().(syscall.WaitStatus); !state.Signaled() {
		t.Errorf("the server ended with %v, want by the signal", s.cmd.ProcessState)
	}
}

// hangingRequest sends a request whose body never comes, and returns once the
// server reads it.
func hangingRequest(t *testing.T, s *server) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	_, err = io.WriteString(conn, "POST /v1/namespaces/default/leases HTTP/1.1\r\nHost: x\r\n"+
		"Content-Type: application/json\r\nContent-Length: 10\r\nExpect: 100-continue\r\n\r\n")
	if err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(conn).ReadString('\n'); err != nil || !strings.Contains(line, "100") {
		t.Fatalf("got %q, %v; want the server to read the body", line, err)
	}
	return conn
}

// untilLogged returns when a line of the server's log has the text.
func untilLogged(t *testing.T, s *server, text string) {
	t.Helper()
	deadline := time.After(patience)
	for {
		s.stderr.mu.Lock()
		grown := s.stderr.grown
		s.stderr.mu.Unlock()
		if strings.Contains(s.stderr.String(), text) {
			return
		}
		select {
		case <-grown:
		case <-deadline:
			t.Fatalf("the log has no line with %q", text)
		}
	}
}

// TestServe_slowClient: a client that does not send its body costs the end no
// more than the server's share of it, and the stores are closed all the same.
func TestServe_slowClient(t *testing.T) {
	dir := t.TempDir()
	s := serveIn(t, dir)
	defer hangingRequest(t, s).Close()
	started := time.Now()
	s.signal(syscall.SIGTERM)
	s.wait()
	if took := time.Since(started); took > stopTimeout {
		t.Errorf("the server took %v to end, want at most %v", took, stopTimeout)
	}
	serveIn(t, dir)
}
