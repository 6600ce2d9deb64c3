//go:build bench

package bench

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"leased/backends/etcd"
	"leased/backends/raftkv"
	"leased/backends/valkey"
	"leased/cluster"
	"leased/contract"
	"leased/test/proc"
)

// What was promised of listings in a server that holds much else.
const (
	foreignKeys = 200_000
	owners      = 1_000
	perOwner    = 50
	maxListing  = 50 * time.Millisecond
	maxP99Ratio = 3.0
)

// TestBench_List lists one owner's leases among those of many, in a server full
// of other keys, while others work.
func TestBench_List(t *testing.T) {
	t.Run("valkey", func(t *testing.T) {
		v := proc.StartValkey(t, durable()...)
		v.Do(t, "EVAL", fmt.Sprintf("for i = 1, %d do redis.call('SET', 'foreign:' .. i, 'x') end", foreignKeys), "0")
		s, err := valkey.Open(t.Context(), valkey.Config{Addresses: []string{v.Addr}})
		if err != nil {
			t.Fatal(err)
		}
		listing(t, "valkey", s)
	})
	t.Run("etcd", func(t *testing.T) {
		m := proc.StartEtcd(t, proc.EtcdOptions{Args: []string{"--quota-backend-bytes=4294967296"}})
		fillEtcd(t, m.Endpoints()[0])
		s, err := etcd.Open(t.Context(), etcd.Config{Endpoints: []string{m.Endpoints()[0]}})
		if err != nil {
			t.Fatal(err)
		}
		listing(t, "etcd", s)
	})
	t.Run("raftkv", func(t *testing.T) { listing(t, "raftkv", ownNode(t)) })
}

// ownNode starts a raft node with a store, and fills it with leases of another
// namespace: nobody else writes to a raftkv.
func ownNode(t *testing.T) contract.Store {
	t.Helper()
	fsm := raftkv.NewFSM()
	node, err := cluster.Open(t.Context(), cluster.Config{NodeID: "n1", DataDir: t.TempDir()}, fsm)
	if err != nil {
		t.Fatal(err)
	}
	engine := raftkv.New(raftkv.Options{FSM: fsm, Proposer: node, NodeID: "n1"})
	t.Cleanup(func() { // the store is closed before
		if err := errors.Join(engine.Close(context.Background()), node.Close(context.Background())); err != nil {
			t.Error(err)
		}
	})
	s := engine.Store()
	proc.Until(t, "the node leads", 20*time.Second, func() bool {
		h, err := s.Health(t.Context(), &contract.HealthRequest{Namespace: "default"})
		return err == nil && h.Ready
	})
	parallel(t, 256, foreignKeys, func(i int) error {
		r := benchRequest(fmt.Sprintf("owner-%d", i%owners), fmt.Sprintf("foreign-%d", i))
		r.Namespace = "foreign"
		_, err := s.Acquire(t.Context(), r)
		return err
	})
	return s
}

// fillEtcd puts foreign keys into etcd, over its HTTP gateway.
func fillEtcd(t *testing.T, url string) {
	t.Helper()
	const each = 100
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			c := newClient(url, w)
			for n := w; n < foreignKeys/each; n += 8 {
				var puts []map[string]any
				for i := range each {
					key := base64.StdEncoding.EncodeToString(fmt.Appendf(nil, "foreign/%d", n*each+i))
					puts = append(puts, map[string]any{"request_put": map[string]string{"key": key, "value": "eA=="}})
				}
				if err := c.call(t.Context(), "/v3/kv/txn", map[string]any{"success": puts}, &struct{}{}); err != nil {
					t.Errorf("fill: %v", err)
					return
				}
			}
		})
	}
	wg.Wait()
	if t.Failed() {
		t.FailNow()
	}
}

func benchRequest(owner, name string) *contract.AcquireRequest {
	key, err := contract.Key{Tenant: "acme", Target: contract.Target{Type: contract.TargetName, ID: name}, Actor: "crawler"}.Normalize()
	if err != nil {
		panic(err) // the name is the test's own
	}
	return &contract.AcquireRequest{
		Namespace: "default", RequestID: "a-" + name, Owner: owner, Instance: "w-1", Key: key,
		TTL: time.Hour, MaxLifetime: 2 * time.Hour,
		Retention: contract.Retention{Idempotency: 10 * time.Minute, History: time.Hour, HistoryPerKey: 16},
	}
}

func listing(t *testing.T, name string, s contract.Store) {
	t.Helper()
	defer func() { _ = s.Close(context.Background()) }()
	parallel(t, 64, owners*perOwner, func(i int) error {
		_, err := s.Acquire(t.Context(), benchRequest(fmt.Sprintf("owner-%d", i%owners), fmt.Sprintf("held-%d", i)))
		return err
	})
	alone := latencies(t, s, "alone", 4*time.Second)
	stop, done := make(chan struct{}), make(chan struct{})
	var lists []time.Duration
	go func() {
		defer close(done)
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			began := time.Now()
			got, err := s.List(t.Context(), &contract.ListRequest{Namespace: "default", Owner: fmt.Sprintf("owner-%d", i%owners)})
			if err != nil || len(got.Leases) != perOwner {
				t.Errorf("%d leases listed, %v, want %d", len(got.Leases), err, perOwner)
				return
			}
			lists = append(lists, time.Since(began))
		}
	}()
	beside := latencies(t, s, "beside", 4*time.Second)
	close(stop)
	<-done
	if t.Failed() {
		return
	}
	got, before, after := percentile(lists, 0.99), percentile(alone, 0.99), percentile(beside, 0.99)
	fmt.Printf("listing %d of %d leases among %d foreign keys on %s: p99 %v, median %v (promised < %v); p99 of acquire and release %v, beside listings %v, ratio %.1f (promised ≤ %.1f)\n",
		perOwner, owners*perOwner, foreignKeys, name, got, percentile(lists, 0.5), maxListing, before, after, float64(after)/float64(before), maxP99Ratio)
	if got >= maxListing {
		t.Errorf("a listing takes %v, want less than %v", got, maxListing)
	}
	if float64(after) > maxP99Ratio*float64(before) {
		t.Errorf("p99 of other calls rises from %v to %v beside listings, want at most %.1f times", before, after, maxP99Ratio)
	}
}

// latencies acquires and releases for a time, and returns how long each call
// took.
func latencies(t *testing.T, s contract.Store, round string, d time.Duration) []time.Duration {
	t.Helper()
	var mu sync.Mutex
	var all []time.Duration
	began := time.Now()
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			var own []time.Duration
			for i := 0; time.Since(began) < d; i++ {
				r := benchRequest("worker", fmt.Sprintf("%s-%d", round, w))
				r.RequestID = fmt.Sprintf("%s-%d", r.RequestID, i)
				start := time.Now()
				got, err := s.Acquire(t.Context(), r)
				middle := time.Now()
				if err != nil || got.Outcome != contract.OutcomeAcquired {
					t.Errorf("acquire: %v, %v", got.Outcome, err)
					return
				}
				_, err = s.Release(t.Context(), &contract.ReleaseRequest{
					Namespace: r.Namespace, RequestID: "r" + r.RequestID, Owner: r.Owner, Instance: r.Instance,
					LeaseID: got.Lease.ID, Token: got.Lease.Token, Retention: r.Retention,
				})
				if err != nil {
					t.Errorf("release: %v", err)
					return
				}
				own = append(own, middle.Sub(start), time.Since(middle))
			}
			mu.Lock()
			defer mu.Unlock()
			all = append(all, own...)
		})
	}
	wg.Wait()
	return all
}

// parallel calls f(0) … f(n-1), some at a time, and fails at the first error of
// each worker.
func parallel(t *testing.T, workers, n int, f func(i int) error) {
	t.Helper()
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for i := w; i < n; i += workers {
				if err := f(i); err != nil {
					t.Errorf("%d: %v", i, err)
					return
				}
			}
		})
	}
	wg.Wait()
	if t.Failed() {
		t.FailNow()
	}
}

// percentile returns the value below which the share p of the values lies.
func percentile(values []time.Duration, p float64) time.Duration {
	s := slices.Clone(values)
	slices.Sort(s)
	return s[min(len(s)-1, int(float64(len(s))*p))]
}
