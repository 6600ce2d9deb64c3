//go:build bench

package bench

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"leased/test/proc"
)

// What was promised of three nodes, beside three etcd members on the same machine.
const (
	// minClusterRatio is of cycles per second through all nodes to those of etcd's
	// own lock calls over HTTP through all members.
	minClusterRatio = 2.0
	// maxFailOver is the longest time without a grant after the leader was killed
	// under load, at the median. It is at most that of etcd besides.
	maxFailOver = time.Second
)

func startCluster(t *testing.T) (cluster *proc.Cluster, urls []string) {
	t.Helper()
	cluster = proc.StartLeasedCluster(t, proc.Build(t, "leased/cmd/leased"), 3, "")
	for _, n := range cluster.Nodes {
		urls = append(urls, "http://"+n.Addr)
	}
	return cluster, urls
}

func TestBench_Cluster(t *testing.T) {
	const rounds, each = 5, 4 * time.Second
	_, nodes := startCluster(t)
	members := proc.StartEtcd(t, proc.EtcdOptions{Members: 3}).Endpoints()
	etcdCycles(t, members, time.Second)
	cycles(t, nodes, time.Second, 101)
	var locks, leaseds, ratios []float64
	for i := range rounds {
		e := etcdCycles(t, members, each)
		l := cycles(t, nodes, each, i) / 2 // two requests a cycle
		locks, leaseds, ratios = append(locks, e), append(leaseds, l), append(ratios, l/e)
	}
	got := median(ratios)
	fmt.Printf("cycles, %d clients of all nodes: three etcd members' own lock over HTTP %.0f/s, three leased nodes %.0f/s, ratio %.2f (promised ≥ %.2f; rounds %.2f)\n",
		clients, median(locks), median(leaseds), got, minClusterRatio, ratios)
	if got < minClusterRatio {
		t.Errorf("ratio %.2f, want at least %.2f", got, minClusterRatio)
	}
}

func TestBench_FailOver(t *testing.T) {
	const rounds = 5
	cluster, nodes := startCluster(t)
	etcd := proc.StartEtcd(t, proc.EtcdOptions{Members: 3})
	var leaseds, locks []time.Duration
	for i := range rounds {
		leaseds = append(leaseds, leasedFailOver(t, cluster, nodes, i))
		locks = append(locks, etcdFailOver(t, etcd))
	}
	got, bound := median(leaseds), median(locks)
	fmt.Printf("the leader is killed under %d clients of all nodes: longest time without a grant on leased %v, on etcd %v (promised ≤ %v and ≤ etcd's; rounds %v and %v)\n",
		clients, got, bound, maxFailOver, leaseds, locks)
	if got > maxFailOver || got > bound {
		t.Errorf("longest time without a grant %v, want at most %v and at most etcd's %v", got, maxFailOver, bound)
	}
}

func leasedFailOver(t *testing.T, c *proc.Cluster, urls []string, round int) time.Duration {
	t.Helper()
	leader, _ := c.Leader(t, c.Nodes[0])
	got := failOver(t, leader.Kill, func(ctx context.Context, i int, grant func()) {
		one := newPatientClient(urls, i+1000*round)
		defer one.http.CloseIdleConnections()
		key := fmt.Sprintf("client-%d", i)
		for ctx.Err() == nil {
			g, err := one.acquire(ctx, key, 30*time.Second)
			if err == nil {
				grant()
				err = one.release(ctx, g)
			}
			if err != nil && ctx.Err() == nil {
				t.Errorf("client %d: %v", i, err)
				return
			}
		}
	})
	c.Launch(t, leader)
	leader.WaitReady(t)
	c.Healthy(t)
	return got
}

func etcdFailOver(t *testing.T, e *proc.Etcd) time.Duration {
	t.Helper()
	leader := etcdLeader(t, e)
	got := failOver(t, func() { e.Kill(leader) }, func(ctx context.Context, i int, grant func()) {
		one := newPatientClient(e.Endpoints(), i)
		defer one.http.CloseIdleConnections()
		lease, err := one.etcdLease(ctx)
		for err == nil && ctx.Err() == nil {
			var key string
			if key, err = one.etcdLock(ctx, etcdName(i), lease); err == nil {
				grant()
				err = one.etcdUnlock(ctx, key)
			}
		}
		if err != nil && ctx.Err() == nil {
			t.Errorf("client %d: %v", i, err)
		}
	})
	e.StartAll(t)
	return got
}

// etcdLeader returns which member leads.
func etcdLeader(t *testing.T, e *proc.Etcd) int {
	t.Helper()
	for i, url := range e.Endpoints() {
		var status struct {
			Header struct {
				Member string `json:"member_id"`
			} `json:"header"`
			Leader string `json:"leader"`
		}
		if err := newClient(url, i).call(t.Context(), "/v3/maintenance/status", struct{}{}, &status); err != nil {
			t.Fatal(err)
		}
		if status.Leader == status.Header.Member {
			return i
		}
	}
	t.Fatal("no member of etcd leads")
	return 0
}

// failOver has all clients work, kills the leader, and returns the longest time
// without a grant from then until the work goes on.
func failOver(t *testing.T, kill func(), work func(ctx context.Context, i int, grant func())) time.Duration {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	defer func() { cancel(); wg.Wait() }()
	g := new(grants)
	for i := range clients {
		wg.Go(func() { work(ctx, i, g.add) })
	}
	const enough = 1000 // about a second of work
	g.wait(t, enough)
	g.restart()
	kill()
	g.wait(t, enough)
	return g.restart()
}

// grants finds the longest time without one.
type grants struct {
	mu      sync.Mutex
	count   int
	last    time.Time
	longest time.Duration
}

func (g *grants) add() {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	g.longest = max(g.longest, now.Sub(g.last))
	g.count, g.last = g.count+1, now
}

// restart returns the longest time without a grant and begins anew.
func (g *grants) restart() time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	longest := g.longest
	g.count, g.last, g.longest = 0, time.Now(), 0
	return longest
}

// wait returns when so many were given since the beginning.
func (g *grants) wait(t *testing.T, count int) {
	t.Helper()
	proc.Until(t, "clients are granted", proc.Patience, func() bool {
		g.mu.Lock()
		defer g.mu.Unlock()
		return g.count >= count
	})
}
