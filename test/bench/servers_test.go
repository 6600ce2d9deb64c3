//go:build bench

package bench

import (
	"context"
	"encoding/base64"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"leased/test/proc"
)

// What was promised of the backends on servers of others.
const (
	// minValkeyRatio is of requests per second of acquire and release on Valkey to
	// those of a bare gin handler.
	minValkeyRatio = 0.60
	// minEtcdRatio is of cycles per second on etcd to those of etcd's own lock
	// calls over its HTTP gateway, on the same server.
	minEtcdRatio = 1.0
	// minHandOverRatio is of hand-overs per second of contended keys to those of
	// etcd's own lock.
	minHandOverRatio = 3.0
)

// durable is how a Valkey is run that loses nothing when its process dies.
func durable() []string { return []string{"appendonly", "yes", "appendfsync", "everysec"} }

func startOnValkey(t *testing.T) *proc.Server {
	t.Helper()
	server := proc.StartValkey(t, durable()...)
	return startGateway(t, fmt.Sprintf("backends: {cache: {type: valkey, addresses: [%q]}}\n", server.Addr))
}

func startOnEtcd(t *testing.T) (gateway *proc.Server, server *proc.Etcd) {
	t.Helper()
	server = proc.StartEtcd(t, proc.EtcdOptions{})
	gateway = startGateway(t, fmt.Sprintf("backends: {coord: {type: etcd, endpoints: [%q]}}\n", strings.TrimPrefix(server.Endpoints()[0], "http://")))
	return gateway, server
}

func startGateway(t *testing.T, config string) *proc.Server {
	t.Helper()
	s := proc.StartLeasedOn(t, proc.Build(t, "leased/cmd/leased"), t.TempDir(), config)
	c := newClient(s.URL, 1<<20)
	for began := time.Now(); ; {
		g, err := c.acquire(t.Context(), "warm-up", 30*time.Second)
		if err == nil {
			err = c.release(t.Context(), g)
		}
		if err == nil {
			return s
		}
		if time.Since(began) > 10*time.Second {
			t.Fatal(err)
		}
	}
}

func TestBench_Valkey(t *testing.T) {
	const rounds, each = 9, 2 * time.Second
	bare := proc.StartPrinting(t, proc.Build(t, "leased/test/bench/bare"))
	gateway := startOnValkey(t)
	cycles(t, []string{bare.URL}, time.Second, 100)
	cycles(t, []string{gateway.URL}, time.Second, 101)
	var bares, leaseds, ratios []float64
	for i := range rounds {
		b := cycles(t, []string{bare.URL}, each, 2*i)
		l := cycles(t, []string{gateway.URL}, each, 2*i+1)
		bares, leaseds, ratios = append(bares, b), append(leaseds, l), append(ratios, l/b)
	}
	got := median(ratios)
	fmt.Printf("throughput, %d clients: bare gin %.0f req/s, leased on valkey %.0f req/s, ratio %.2f (promised ≥ %.2f; rounds %.2f)\n",
		clients, median(bares), median(leaseds), got, minValkeyRatio, ratios)
	if got < minValkeyRatio {
		t.Errorf("ratio %.2f, want at least %.2f", got, minValkeyRatio)
	}
}

func TestBench_Etcd(t *testing.T) {
	const rounds, each = 9, 2 * time.Second
	gateway, server := startOnEtcd(t)
	etcdCycles(t, server.Endpoints(), time.Second)
	cycles(t, []string{gateway.URL}, time.Second, 101)
	var locks, leaseds, ratios []float64
	for i := range rounds {
		e := etcdCycles(t, server.Endpoints(), each)
		l := cycles(t, []string{gateway.URL}, each, i) / 2 // two requests a cycle
		locks, leaseds, ratios = append(locks, e), append(leaseds, l), append(ratios, l/e)
	}
	got := median(ratios)
	fmt.Printf("cycles, %d clients: etcd's own lock over HTTP %.0f/s, leased on etcd %.0f/s, ratio %.2f (promised ≥ %.2f; rounds %.2f)\n",
		clients, median(locks), median(leaseds), got, minEtcdRatio, ratios)
	if got < minEtcdRatio {
		t.Errorf("ratio %.2f, want at least %.2f", got, minEtcdRatio)
	}
}

const (
	contended = 4  // keys
	waiters   = 32 // for each of them
)

// handOvers lets waiters crowd on few keys and returns how often a second one of
// them is handed on.
func handOvers(t *testing.T, d time.Duration, hold func(ctx context.Context, i int, key string) error) float64 {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d+30*time.Second)
	defer cancel()
	counts := make([]int, contended*waiters)
	var wg sync.WaitGroup
	begin := time.Now()
	for i := range counts {
		wg.Go(func() {
			for time.Since(begin) < d {
				if err := hold(ctx, i, fmt.Sprintf("contended-%d", i%contended)); err != nil {
					t.Errorf("waiter %d: %v", i, err)
					return
				}
				if time.Since(begin) < d {
					counts[i]++
				}
			}
		})
	}
	wg.Wait()
	total := 0
	for _, n := range counts {
		total += n
	}
	return float64(total) / d.Seconds()
}

// leasedHold returns a hold through the gateway: acquire with wait, release.
func leasedHold(url string) func(context.Context, int, string) error {
	all := make([]*client, contended*waiters)
	for i := range all {
		all[i] = newClient(url, 5000+i)
	}
	return func(ctx context.Context, i int, key string) error {
		g, err := all[i].acquireWaiting(ctx, key, 30*time.Second, time.Minute)
		if err != nil {
			return err
		}
		return all[i].release(ctx, g)
	}
}

func etcdHold(t *testing.T, url string) func(context.Context, int, string) error {
	t.Helper()
	all, leases := make([]*client, contended*waiters), make([]string, contended*waiters)
	for i := range all {
		all[i] = newClient(url, i)
		var err error
		if leases[i], err = all[i].etcdLease(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	return func(ctx context.Context, i int, key string) error {
		return all[i].etcdCycle(ctx, base64.StdEncoding.EncodeToString([]byte(key)), leases[i])
	}
}

func TestBench_HandOver(t *testing.T) {
	const rounds, each = 3, 4 * time.Second
	onEtcd, server := startOnEtcd(t)
	onValkey := startOnValkey(t)
	onRaft := proc.StartLeased(t, proc.Build(t, "leased/cmd/leased"), t.TempDir())
	lock := etcdHold(t, server.Endpoints()[0])
	subjects := []struct {
		name string
		hold func(context.Context, int, string) error
		got  []float64
	}{
		{name: "raftkv", hold: leasedHold(onRaft.URL)},
		{name: "valkey", hold: leasedHold(onValkey.URL)},
		{name: "etcd", hold: leasedHold(onEtcd.URL)},
	}
	var locks []float64
	for range rounds {
		locks = append(locks, handOvers(t, each, lock))
		for i := range subjects {
			subjects[i].got = append(subjects[i].got, handOvers(t, each, subjects[i].hold))
		}
	}
	for _, s := range subjects {
		ratio := median(s.got) / median(locks)
		fmt.Printf("hand-overs, %d waiters on each of %d keys: etcd's own lock %.0f/s, leased on %s %.0f/s, ratio %.1f (promised ≥ %.1f)\n",
			waiters, contended, median(locks), s.name, median(s.got), ratio, minHandOverRatio)
		if ratio < minHandOverRatio {
			t.Errorf("%s: ratio %.1f, want at least %.1f", s.name, ratio, minHandOverRatio)
		}
	}
}
