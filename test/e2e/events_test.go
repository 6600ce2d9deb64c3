package e2e

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/google/go-cmp/cmp"

	"leased/client"
	"leased/gateway/api"
	"leased/test/proc"
)

// follower reads a namespace's events for as long as the test lasts.
type follower struct {
	t      *testing.T
	events chan *api.Event
	begins chan string // where each stream began
	breaks chan error
}

func follow(t *testing.T, c *client.Client, r client.WatchRequest) *follower {
	t.Helper()
	f := &follower{t: t, events: make(chan *api.Event, 1000), begins: make(chan string, 100), breaks: make(chan error, 100)}
	r.OnBegin = func(after string) { f.begins <- after }
	r.OnBreak = func(err error) { f.breaks <- err }
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ev, err := range c.Watch(ctx, r) {
			if err != nil {
				t.Errorf("watch: %v", err)
				return
			}
			f.events <- ev
		}
	}()
	t.Cleanup(func() { cancel(); <-done })
	return f
}

// receive returns the next value of a channel of the follower's.
func receive[T any](t *testing.T, what string, from <-chan T) T {
	t.Helper()
	select {
	case v := <-from:
		return v
	case <-time.After(proc.Patience):
		t.Fatalf("%s: nothing in %v", what, proc.Patience)
		panic("unreachable")
	}
}

// next wants these events next, each as "kind target", and returns the last one.
func (f *follower) next(want ...string) *api.Event {
	f.t.Helper()
	var ev *api.Event
	for _, w := range want {
		ev = receive(f.t, "waiting for the event "+w, f.events)
		if got := ev.Event + " " + ev.Key.Target.ID; got != w {
			f.t.Fatalf("got the event %s, want %s", got, w)
		}
	}
	return ev
}

// story lets a lease of a target be acquired, renewed and revoked, and returns it, and
// when it was to be revoked.
func story(t *testing.T, c *client.Client, namespace, target string) (*api.Lease, time.Time) {
	t.Helper()
	got, err := c.Acquire(t.Context(), client.AcquireRequest{
		Namespace: namespace, Key: api.Key{Tenant: "acme", Target: api.Target{Type: "name", ID: target}, Actor: "a"},
		Instance: "w", TTL: time.Minute,
	})
	if err != nil {
		t.Fatal(err)
	}
	l := got.Lease
	if _, err := c.Renew(t.Context(), client.RenewRequest{Namespace: namespace, LeaseID: l.LeaseID, Token: l.Token, Instance: "w"}); err != nil {
		t.Fatal(err)
	}
	sent := time.Now()
	if _, err := c.Revoke(t.Context(), client.RevokeRequest{Namespace: namespace, LeaseID: l.LeaseID, Reason: "incident"}); err != nil {
		t.Fatal(err)
	}
	return l, sent
}

// TestEvents follows the events of each backend over a kill -9 of the gateway and
// its orderly stop: all of them once, in order, and the revocation in a second.
func TestEvents(t *testing.T) {
	valkey, etcd := proc.StartValkey(t, "appendonly", "yes", "appendfsync", "always"), proc.StartEtcd(t, proc.EtcdOptions{})
	bin := proc.Build(t, "leased/cmd/leased")
	cluster := proc.StartLeasedCluster(t, bin, 1, onThree(valkey.Addr, strings.TrimPrefix(etcd.Endpoints()[0], "http://")))
	node := cluster.Nodes[0]
	c := node.Only(t)
	namespaces := []string{"on-raft", "on-valkey", "on-etcd"}
	followers := map[string]*follower{}
	begins := map[string]string{}
	told := []string{"acquired one", "renewed one", "revoked one"}
	for _, ns := range namespaces {
		f := follow(t, c, client.WatchRequest{Namespace: ns, Owner: "anonymous"})
		begins[ns] = receive(t, ns+" begins", f.begins)
		followers[ns] = f
		_, sent := story(t, c, ns, "one")
		f.next(told...)
		if took := time.Since(sent); took > time.Second {
			t.Errorf("%s: a revocation was told after %v, want at most 1 s", ns, took)
		}
	}
	restart := func(end func()) {
		t.Helper()
		end()
		for _, f := range followers {
			if err := receive(t, "the stream breaks off", f.breaks); err == nil {
				t.Error("a stream broke off and nothing says why")
			}
		}
		cluster.Launch(t, node)
		node.WaitReady(t)
	}

	restart(node.Kill)
	for _, ns := range namespaces {
		story(t, c, ns, "two") // most likely before anybody watches again
		followers[ns].next("acquired two", "renewed two", "revoked two")
		leftAlone(t, c, ns)
	}
	for _, ns := range namespaces {
		followers[ns].next("acquired left", "expired left")
	}

	began := time.Now()
	restart(func() { node.Stop(t) })
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("a stop with streams open, and a start, took %v", took)
	}
	for _, ns := range namespaces {
		story(t, c, ns, "three")
		followers[ns].next("acquired three", "renewed three", "revoked three")
		watches(t, bin, node.URL, ns, begins[ns], append(told, "acquired two", "renewed two", "revoked two"))
	}
	interrupts(t, bin, node.URL)
}

// leftAlone acquires a lease for a second.
func leftAlone(t *testing.T, c *client.Client, namespace string) {
	t.Helper()
	if _, err := c.Acquire(t.Context(), client.AcquireRequest{
		Namespace: namespace, Key: api.Key{Tenant: "acme", Target: api.Target{Type: "name", ID: "left"}, Actor: "a"},
		Instance: "w", TTL: time.Second,
	}); err != nil {
		t.Fatal(err)
	}
}

// watches has the command show what happened after a place.
func watches(t *testing.T, bin, url, namespace, after string, want []string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), bin, "watch", "--server", url, "--namespace", namespace,
		"--after", after, "--limit", fmt.Sprint(len(want)), "--timeout", "20s", "--json")
	out, err := cmd.Output()
	if err != nil {
		t.Errorf("leased watch on %s: %v", namespace, err)
	}
	var got []string
	for line := range strings.Lines(string(out)) {
		var ev api.Event
		if err := json.Unmarshal([]byte(line), &ev); err != nil {
			t.Fatalf("leased watch --json prints %s: %v", line, err)
		}
		if ev.Event == api.EventGap && namespace == "on-raft" {
			return // a node that was stopped in order has its history and not its streams
		}
		got = append(got, ev.Event+" "+ev.Key.Target.ID)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("leased watch on %s (-want +got):\n%s", namespace, diff)
	}
}

// interrupts ends the command as somebody at the terminal does.
func interrupts(t *testing.T, bin, url string) {
	t.Helper()
	var complaint bytes.Buffer
	cmd := exec.CommandContext(t.Context(), bin, "watch", "--server", url, "--namespace", "on-raft")
	header, err := os.CreateTemp(t.TempDir(), "out")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = header.Close() }()
	cmd.Stdout, cmd.Stderr = header, &complaint
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	proc.Succeeds(t, "the command watches", proc.Patience, func() error {
		text, err := os.ReadFile(header.Name())
		if err == nil && len(text) == 0 {
			err = fmt.Errorf("it prints nothing")
		}
		return err
	})
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil || complaint.Len() > 0 {
		t.Errorf("interrupted, it ends with %v and %q, want 0 and no complaint", err, complaint.String())
	}
}

// TestEvents_follower watches at a node that follows: it tells what the leader
// decided, and goes on when another node leads.
func TestEvents_follower(t *testing.T) {
	cluster := proc.StartLeasedCluster(t, proc.Build(t, "leased/cmd/leased"), 3, "")
	leader, others := cluster.Leader(t, cluster.Nodes[0])
	f := follow(t, others[0].Only(t), client.WatchRequest{})
	receive(t, "the stream begins", f.begins)
	_, sent := story(t, leader.Only(t), "default", "one")
	f.next("acquired one", "renewed one", "revoked one")
	if took := time.Since(sent); took > time.Second {
		t.Errorf("what the leader did was told after %v, want at most 1 s", took)
	}
	leader.Kill()
	story(t, cluster.Client(t, others[1]), "default", "two")
	f.next("acquired two", "renewed two", "revoked two")
	if len(f.breaks) > 0 {
		t.Errorf("the stream broke off when another node led: %v", <-f.breaks)
	}

	// Resumed at the other follower: the place is the same there.
	last, _ := story(t, cluster.Client(t, others[1]), "default", "three")
	ev := f.next("acquired three", "renewed three", "revoked three")
	if ev.LeaseID != last.LeaseID {
		t.Errorf("told of lease %s, want %s", ev.LeaseID, last.LeaseID)
	}
	again := follow(t, others[1].Only(t), client.WatchRequest{After: ev.ID})
	receive(t, "the resumed stream begins", again.begins)
	story(t, cluster.Client(t, others[0]), "default", "four")
	again.next("acquired four", "renewed four", "revoked four")
	f.next("acquired four", "renewed four", "revoked four")
}
