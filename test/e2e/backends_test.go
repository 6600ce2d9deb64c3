package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"leased/client"
	"leased/gateway/api"
	"leased/test/proc"
)

// recoverWithin is how soon after its backend's return a namespace is served.
const recoverWithin = 2 * time.Second

// onThree is the configuration of a gateway with a namespace on each backend.
func onThree(valkey, etcd string) string {
	return fmt.Sprintf(`
backends:
  local: {type: raftkv}
  cache: {type: valkey, addresses: ["%s"]}
  coord: {type: etcd, endpoints: ["%s"]}
namespaces:
  on-raft: {backend: local}
  on-valkey: {backend: cache}
  on-etcd: {backend: coord}
`, valkey, etcd)
}

// TestBackends_down starts a gateway while two of its three backends are down,
// and brings them up, down and up again: the others are served throughout, and
// readiness tells which is not, without a word about where it would be.
func TestBackends_down(t *testing.T) {
	valkey, etcd := proc.StartValkey(t), proc.StartEtcd(t, proc.EtcdOptions{})
	etcdAddress := strings.TrimPrefix(etcd.Endpoints()[0], "http://")
	valkey.Kill()
	etcd.Kill(0)
	bin := proc.Build(t, "leased/cmd/leased")
	leased := proc.StartLeasedOn(t, bin, t.TempDir(), onThree(valkey.Addr, etcdAddress))
	g := &gatewayUnderTest{t: t, url: leased.URL, hidden: []string{valkey.Addr, etcdAddress}}
	g.ready("on-raft")
	for round := range 2 {
		valkey.Start(t)
		g.recovers("on-valkey")
		g.ready("on-raft", "on-valkey")
		etcd.StartAll(t)
		g.recovers("on-etcd")
		g.ready("on-raft", "on-valkey", "on-etcd")
		valkey.Kill()
		g.refuses("on-valkey", round)
		g.ready("on-raft", "on-etcd")
		etcd.Kill(0)
		g.refuses("on-etcd", round)
		g.ready("on-raft")
	}
}

// TestBackends_noRaft: without a raftkv backend no node is started: nothing is
// written to the data directory.
func TestBackends_noRaft(t *testing.T) {
	valkey := proc.StartValkey(t, "appendonly", "yes", "appendfsync", "always")
	dir := t.TempDir()
	leased := proc.StartLeasedOn(t, proc.Build(t, "leased/cmd/leased"), dir, fmt.Sprintf(`
backends: {cache: {type: valkey, addresses: ["%s"]}}
`, valkey.Addr))
	g := &gatewayUnderTest{t: t, url: leased.URL, hidden: []string{valkey.Addr}}
	g.served("default")
	g.ready("default")
	if _, err := os.Stat(filepath.Join(dir, "data")); err == nil {
		t.Errorf("there is a raft node's data, though no backend asks for one")
	}
}

// gatewayUnderTest is a running gateway, and what it must not show.
type gatewayUnderTest struct {
	t      *testing.T
	url    string
	hidden []string
	n      int
}

// get returns a path's status and body.
func (g *gatewayUnderTest) get(path string) (int, string) {
	g.t.Helper()
	ctx, cancel := context.WithTimeout(g.t.Context(), 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, g.url+path, nil)
	if err != nil {
		g.t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		g.t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		g.t.Fatal(err)
	}
	for _, hidden := range g.hidden {
		if strings.Contains(string(body), hidden) {
			g.t.Errorf("GET %s shows the address of a backend: %s", path, body)
		}
	}
	return res.StatusCode, string(body)
}

// ready wants exactly these namespaces to be ready, each of them to be served,
// and everything that needs no store to work.
func (g *gatewayUnderTest) ready(names ...string) {
	g.t.Helper()
	status, body := g.get("/readyz")
	var got api.Readiness
	if err := json.Unmarshal([]byte(body), &got); err != nil {
		g.t.Fatalf("/readyz: %v in %s", err, body)
	}
	all := true
	for _, ns := range got.Namespaces {
		all = all && ns.Ready
		if want := slices.Contains(names, ns.Namespace); ns.Ready != want || !ns.Ready && ns.Detail == "" {
			g.t.Errorf("/readyz says of %s: ready %v, because of %q; want ready %v, and why not", ns.Namespace, ns.Ready, ns.Detail, want)
		}
	}
	if want := map[bool]int{true: http.StatusOK, false: http.StatusServiceUnavailable}[all]; status != want {
		g.t.Errorf("/readyz answers %d, want %d: %s", status, want, body)
	}
	for _, name := range names {
		if err := g.cycle(name, 5*time.Second); err != nil {
			g.t.Errorf("namespace %s is ready and not served: %v", name, err)
		}
	}
	for _, path := range []string{"/healthz", "/metrics", "/v1/namespaces", "/openapi.json"} {
		if status, body := g.get(path); status != http.StatusOK {
			g.t.Errorf("GET %s answers %d: %.200s", path, status, body)
		}
	}
	for _, ns := range got.Namespaces {
		g.guarantees(ns.Namespace)
	}
}

// guarantees wants what a namespace promises to be shown, whether or not its
// backend is there.
func (g *gatewayUnderTest) guarantees(name string) {
	g.t.Helper()
	_, body := g.get("/v1/namespaces/" + name)
	var got api.Namespace
	if err := json.Unmarshal([]byte(body), &got); err != nil {
		g.t.Fatalf("namespace %s: %v in %s", name, err, body)
	}
	if got.Guarantees.MachineCrash == "" || got.Guarantees.Fairness == "" || got.Guarantees.GranularityMS == 0 {
		g.t.Errorf("namespace %s shows no guarantees: %+v", name, got.Guarantees)
	}
}

// cycle acquires and releases a lease.
func (g *gatewayUnderTest) cycle(namespace string, within time.Duration) error {
	g.t.Helper()
	c, err := client.New(client.Options{Servers: []string{g.url}, Namespace: namespace, RetryFor: -1, Timeout: within})
	if err != nil {
		g.t.Fatal(err)
	}
	defer c.Close()
	g.n++
	got, err := c.Acquire(g.t.Context(), client.AcquireRequest{
		Key:      api.Key{Tenant: "acme", Target: api.Target{Type: "name", ID: fmt.Sprint(g.n)}, Actor: "a"},
		Instance: "w", TTL: 30 * time.Second,
	})
	if err != nil {
		return err
	}
	_, err = c.Release(g.t.Context(), client.ReleaseRequest{LeaseID: got.Lease.LeaseID, Token: got.Lease.Token, Instance: "w"})
	return err
}

// served wants a namespace to be served that has been well since before the gateway
// began: nobody is promised how soon that is.
func (g *gatewayUnderTest) served(namespace string) {
	g.t.Helper()
	proc.Succeeds(g.t, namespace+" is served", proc.Patience, func() error { return g.cycle(namespace, time.Second) })
}

// recovers wants a namespace to be served soon after its backend came back.
func (g *gatewayUnderTest) recovers(namespace string) {
	g.t.Helper()
	began := time.Now()
	proc.Succeeds(g.t, namespace+" is served after its backend came back", 5*recoverWithin, func() error {
		return g.cycle(namespace, time.Second)
	})
	if took := time.Since(began); took > recoverWithin {
		g.t.Errorf("%s is served %v after its backend came back, want at most %v", namespace, took, recoverWithin)
	}
}

// refuses wants a namespace whose backend was just killed to say so, in time.
func (g *gatewayUnderTest) refuses(namespace string, round int) {
	g.t.Helper()
	const within = 2 * time.Second
	for try := range 5 {
		began := time.Now()
		err := g.cycle(namespace, within)
		if took := time.Since(began); took > within+time.Second {
			g.t.Errorf("round %d: %s answered after %v, want at most %v and a little", round, namespace, took, within)
		}
		// The first call may be the one that finds the connection dead.
		if err == nil || try > 0 && !errors.Is(err, client.ErrUnavailable) {
			g.t.Errorf("round %d, call %d: %s answers %v without its backend, want %v", round, try, namespace, err, client.ErrUnavailable)
		}
	}
}

// TestBackends_stop: a gateway whose backends hang ends in order and in time, and
// does not take its own raft node down with them.
func TestBackends_stop(t *testing.T) {
	valkey, etcd := proc.StartValkey(t), proc.StartEtcd(t, proc.EtcdOptions{})
	leased := proc.StartLeasedOn(t, proc.Build(t, "leased/cmd/leased"), t.TempDir(), onThree(valkey.Addr, strings.TrimPrefix(etcd.Endpoints()[0], "http://")))
	g := &gatewayUnderTest{t: t, url: leased.URL}
	for _, ns := range []string{"on-raft", "on-valkey", "on-etcd"} {
		g.served(ns)
	}
	valkey.Pause(t)
	etcd.Pause(t, 0)
	defer func() { valkey.Resume(); etcd.Resume(0) }()
	began := time.Now()
	leased.Stop(t)
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("it took %v to stop with backends that hang, want at most 10s", took)
	}
}

// TestBackends_expiries: a lease that nobody renews is counted once, whichever
// backend noticed.
func TestBackends_expiries(t *testing.T) {
	valkey, etcd := proc.StartValkey(t), proc.StartEtcd(t, proc.EtcdOptions{})
	leased := proc.StartLeasedOn(t, proc.Build(t, "leased/cmd/leased"), t.TempDir(),
		onThree(valkey.Addr, strings.TrimPrefix(etcd.Endpoints()[0], "http://")))
	g := &gatewayUnderTest{t: t, url: leased.URL}
	var want []string
	for _, ns := range []string{"on-raft", "on-valkey", "on-etcd"} {
		g.served(ns)
		c, err := client.New(client.Options{Servers: []string{g.url}, Namespace: ns})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.Close)
		_, err = c.Acquire(t.Context(), client.AcquireRequest{
			Key: api.Key{Tenant: "acme", Target: api.Target{Type: "name", ID: "left"}, Actor: "a"}, Instance: "w", TTL: time.Second,
		})
		if err != nil {
			t.Fatal(err)
		}
		want = append(want, fmt.Sprintf("leased_expirations_total{namespace=%q} 1\n", ns))
	}
	proc.Succeeds(t, "the metrics count each expiry once", time.Minute, func() error {
		_, body := g.get("/metrics")
		if missing := slices.DeleteFunc(slices.Clone(want), func(line string) bool { return strings.Contains(body, line) }); len(missing) > 0 {
			return fmt.Errorf("they lack %q", missing)
		}
		return nil
	})
}
