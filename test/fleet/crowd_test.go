package fleet

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"leased/client"
	"leased/gateway/api"
	"leased/test/proc"
)

// TestCrowd: what the store does when a key passes to the next waiter does not
// grow with how many wait: for two thousand, or ten thousand under LEASED_CHAOS, it
// is what it is for a hundred.
func TestCrowd(t *testing.T) {
	crowd := 2000
	if os.Getenv("LEASED_CHAOS") != "" {
		crowd = 10_000
	}
	valkey, etcd := proc.StartValkey(t), proc.StartEtcd(t, proc.EtcdOptions{})
	config := fmt.Sprintf(`
backends: {raftkv: {type: raftkv}, valkey: {type: valkey, addresses: [%q]}, etcd: {type: etcd, endpoints: [%q]}}
namespaces:
  raftkv: {backend: raftkv, quotas: {waiters_per_key: 10000}}
  valkey: {backend: valkey, quotas: {waiters_per_key: 10000}}
  etcd: {backend: etcd, quotas: {waiters_per_key: 10000}}
`, valkey.Addr, strings.TrimPrefix(etcd.Endpoints()[0], "http://"))
	server := proc.StartLeasedOn(t, proc.Build(t, "leased/cmd/leased"), t.TempDir(), config)
	c, err := client.New(client.Options{Servers: []string{server.URL}, Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	for namespace, operations := range map[string]func() float64{
		"raftkv": func() float64 {
			s, err := c.Cluster(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			return float64(s.Nodes[0].AppliedIndex)
		},
		"valkey": func() float64 { return valkeyCommands(t, valkey) },
		"etcd":   func() float64 { return proc.Metric(t, etcd.Endpoints()[0], "grpc_server_started_total") },
	} {
		t.Run(namespace, func(t *testing.T) {
			few := passing(t, c, server, namespace, "few", 100, operations)
			many := passing(t, c, server, namespace, "many", crowd, operations)
			t.Logf("operations a release: %.1f with 100 waiting, %.1f with %d", few, many, crowd)
			if many > 2*few+1 {
				t.Errorf("a release takes %.1f operations with 100 waiting, and %.1f with %d", few, many, crowd)
			}
		})
	}
}

// passing returns how many operations of the store a release takes while so many
// wait for the key.
func passing(t *testing.T, c *client.Client, server *proc.Server, namespace, name string, waiters int, operations func() float64) float64 {
	t.Helper()
	// The longest that a namespace lets a caller wait, unless it is told to.
	const releases, maxWait = 50, 5 * time.Minute
	acquire := func(owner string, wait time.Duration) client.AcquireRequest {
		return client.AcquireRequest{
			Namespace: namespace, Instance: owner, TTL: time.Hour, Wait: wait,
			Key: api.Key{Tenant: "acme", Target: api.Target{Type: "name", ID: name}, Actor: "crowd"},
		}
	}
	held, err := c.Acquire(t.Context(), acquire("first", 0))
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan *client.Answer)
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	defer func() { cancel(); all.Wait() }()
	for i := range waiters {
		all.Go(func() {
			got, err := c.Acquire(ctx, acquire(fmt.Sprint("w-", i), maxWait))
			if err != nil && ctx.Err() == nil {
				t.Errorf("waiter %d: %v", i, err)
				cancel()
			}
			select {
			case served <- got:
			case <-ctx.Done():
			}
		})
	}
	proc.Succeeds(t, "all wait", maxWait, func() error {
		if ctx.Err() != nil {
			t.FailNow()
		}
		if n := proc.Metric(t, server.URL, fmt.Sprintf("leased_waiters{namespace=%q}", namespace)); int(n) != waiters {
			return fmt.Errorf("%.0f of %d wait", n, waiters)
		}
		return nil
	})
	// What goes on while nothing is released, heartbeats and looks.
	began, before := time.Now(), operations()
	<-time.After(3 * time.Second)
	idle := (operations() - before) / time.Since(began).Seconds()
	began, before = time.Now(), operations()
	for i := range releases {
		r := client.ReleaseRequest{Namespace: namespace, LeaseID: held.Lease.LeaseID, Token: held.Lease.Token, Instance: held.Lease.Instance}
		if _, err := c.Release(t.Context(), r); err != nil {
			t.Fatalf("release %d: %v", i, err)
		}
		over := time.NewTimer(proc.Patience)
		select {
		case held = <-served:
		case <-ctx.Done():
		case <-over.C:
			held = nil
		}
		if over.Stop(); held == nil || held.Lease == nil {
			t.Fatalf("after release %d nobody was served", i)
		}
	}
	took := time.Since(began)
	t.Logf("%d waiting: %v a release, %.1f operations a second while nothing is released", waiters, (took / releases).Round(time.Microsecond), idle)
	return (operations() - before - idle*took.Seconds()) / releases
}

// valkeyCommands returns how many commands the server ran, those of scripts too.
func valkeyCommands(t *testing.T, v *proc.Valkey) float64 {
	t.Helper()
	for line := range strings.Lines(v.Do(t, "INFO", "stats")) {
		if text, ok := strings.CutPrefix(strings.TrimSpace(line), "total_commands_processed:"); ok {
			n, err := strconv.ParseFloat(text, 64)
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
	}
	t.Fatal("INFO has no total_commands_processed")
	return 0
}
