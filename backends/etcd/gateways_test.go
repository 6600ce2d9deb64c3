package etcd_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"leased/backends/etcd"
	"leased/contract"
	"leased/test/proc"
)

// crash is a gateway of which the test may end the process.
func crashOn(t *testing.T, e *proc.Etcd) *etcd.Store {
	t.Helper()
	s, err := etcd.Open(t.Context(), etcd.Config{Endpoints: e.Endpoints()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Kill)
	return s
}

func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

func waitingAcquire(t *testing.T, name, request string, wait time.Duration) *contract.AcquireRequest {
	t.Helper()
	r := testAcquire(t, name, request)
	r.Wait = wait
	return r
}

func renewalOf(t *testing.T, l *contract.Lease, request string) *contract.RenewRequest {
	t.Helper()
	return &contract.RenewRequest{
		Namespace: "test", RequestID: request, Owner: l.Owner, Instance: l.Instance, LeaseID: l.ID, Token: l.Token,
		Retention: testAcquire(t, "x", "x").Retention,
	}
}

func releaseOf(t *testing.T, l *contract.Lease, request string) *contract.ReleaseRequest {
	t.Helper()
	return &contract.ReleaseRequest{
		Namespace: "test", RequestID: request, Owner: l.Owner, Instance: l.Instance, LeaseID: l.ID, Token: l.Token,
		Retention: testAcquire(t, "x", "x").Retention,
	}
}

func releaseOn(t *testing.T, s contract.Store, l *contract.Lease) {
	t.Helper()
	res, err := s.Release(within(t, 5*time.Second), releaseOf(t, l, "release-"+l.ID.String()))
	if err != nil || res.Outcome != contract.OutcomeReleased {
		t.Fatalf("release: got %v, error %v", res.Outcome, err)
	}
}

// queueOn waits until so many wait for the key.
func queueOn(t *testing.T, s contract.Store, name string, want int) {
	t.Helper()
	key := testAcquire(t, name, "x").Key.ID()
	for until := time.Now().Add(20 * time.Second); ; {
		res, err := s.GetKey(within(t, 5*time.Second), &contract.GetKeyRequest{Namespace: "test", KeyID: key})
		if err == nil && res.Queue.Length == want {
			return
		}
		if time.Now().After(until) {
			t.Fatalf("%d wait for the key, error %v, want %d", res.Queue.Length, err, want)
		}
		pause(5 * time.Millisecond)
	}
}

func pause(d time.Duration) { <-time.After(d) }

// park waits for a key in the background.
func park(ctx context.Context, s contract.Store, r *contract.AcquireRequest) <-chan contract.Result {
	out := make(chan contract.Result, 1)
	go func() {
		res, _ := s.Acquire(ctx, r)
		out <- res
	}()
	return out
}

func granted(t *testing.T, ch <-chan contract.Result, limit time.Duration) *contract.Lease {
	t.Helper()
	select {
	case res := <-ch:
		if res.Outcome != contract.OutcomeAcquired {
			t.Fatalf("the waiter got %v", res.Outcome)
		}
		return res.Lease
	case <-time.After(limit):
		t.Fatalf("the waiter was not served within %v", limit)
		return nil
	}
}

// TestStore_emptiedTwoGateways has two gateways meet an etcd that lost everything
// and whose revisions come again: tokens rise, nobody ends another's lease, and
// streams tell of the gap and go on.
func TestStore_emptiedTwoGateways(t *testing.T) {
	server := proc.StartEtcd(t, proc.EtcdOptions{})
	g1, g2 := crashOn(t, server), crashOn(t, server)
	stream, err := g1.Watch(t.Context(), &contract.WatchRequest{Namespace: "test"})
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	for i := range 8 {
		grantOn(t, g1, fmt.Sprint("before-", i))
	}
	old := grantOn(t, g1, "key")
	for range 9 {
		if _, err := stream.Next(within(t, 5*time.Second)); err != nil {
			t.Fatal(err)
		}
	}
	server.Empty(t, 0)
	server.StartAll(t)
	for i := range 8 {
		grantOn(t, g2, fmt.Sprint("after-", i))
	}
	bob := grantOn(t, g2, "key")
	if bob.Token <= old.Token {
		t.Errorf("token %d after token %d", bob.Token, old.Token)
	}
	if res, err := g1.Release(within(t, 5*time.Second), releaseOf(t, old, "release-old")); err != nil || res.Outcome != contract.OutcomeNotFound {
		t.Errorf("release of a lease that etcd lost: got %v, error %v, want not_found", res.Outcome, err)
	}
	if res, err := g2.Renew(within(t, 5*time.Second), renewalOf(t, bob, "renew-bob")); err != nil || res.Outcome != contract.OutcomeRenewed {
		t.Errorf("renew of the new holder: got %v, error %v", res.Outcome, err)
	}
	gap := false
	for {
		ev, err := stream.Next(within(t, 10*time.Second))
		if err != nil {
			t.Fatalf("the stream ended with %v, gap %v", err, gap)
		}
		if gap = gap || ev.Kind == contract.EventGap; gap {
			break
		}
	}
	next := grantOn(t, g2, "next")
	for {
		ev, err := stream.Next(within(t, 10*time.Second))
		if err != nil {
			t.Fatalf("the stream is deaf after the gap: %v", err)
		}
		if ev.LeaseID == next.ID {
			break
		}
	}
}

// TestStore_aliveNamesLease wants what every end and renewal compares to name the
// lease: after a restore from a backup revisions come again.
func TestStore_aliveNamesLease(t *testing.T) {
	server := proc.StartEtcd(t, proc.EtcdOptions{})
	g1 := crashOn(t, server)
	mine := grantOn(t, g1, "key")
	c := etcdClient(t, server)
	name := "leased/k/test/" + mine.KeyID.String() + "/a"
	resp, err := c.Get(t.Context(), name)
	if err != nil || len(resp.Kvs) != 1 {
		t.Fatal(err, len(resp.Kvs))
	}
	if got := string(resp.Kvs[0].Value); got != mine.ID.String() {
		t.Errorf("what shows that the lease is alive is %q, want the lease's id %q", got, mine.ID)
	}
}

// TestStore_noSpaceOnTheWay fills etcd with grants: whoever is told unavailable
// holds nothing.
func TestStore_noSpaceOnTheWay(t *testing.T) {
	const quota = 16 << 20
	server := proc.StartEtcd(t, proc.EtcdOptions{NoFsync: true, Args: []string{fmt.Sprint("--quota-backend-bytes=", quota)}})
	g := crashOn(t, server)
	grantOn(t, g, "first")
	c := etcdClient(t, server)
	pad := strings.Repeat("x", 200<<10)
	for i := 0; ; i++ {
		st, err := c.Status(t.Context(), server.Endpoints()[0])
		if err != nil {
			t.Fatal(err)
		}
		if st.DbSize > quota-1500<<10 {
			break
		}
		if _, err := c.Put(t.Context(), fmt.Sprint("pad/", i), pad); err != nil {
			t.Fatal(err)
		}
		pause(20 * time.Millisecond) // the size is that of the last commit to disk
	}
	meta := map[string]string{}
	for i := range 15 {
		meta[fmt.Sprint("m", i)] = strings.Repeat("y", 250)
	}
	var mu sync.Mutex
	var refused []*contract.AcquireRequest
	full := make(chan struct{})
	var once sync.Once
	var wg sync.WaitGroup
	for w := range 128 {
		wg.Go(func() {
			for i := range 400 {
				select {
				case <-full:
					return
				default:
				}
				r := testAcquire(t, fmt.Sprintf("k-%d-%d", w, i), fmt.Sprintf("r-%d-%d", w, i))
				r.Metadata = meta
				ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
				_, err := g.Acquire(ctx, r)
				cancel()
				if contract.CodeOf(err) == contract.CodeUnavailable {
					mu.Lock()
					refused = append(refused, r)
					mu.Unlock()
					once.Do(func() { time.AfterFunc(200*time.Millisecond, func() { close(full) }) })
				}
			}
		})
	}
	wg.Wait()
	if len(refused) == 0 {
		t.Fatal("etcd was never out of space")
	}
	held := 0
	for _, r := range refused {
		res, err := g.GetKey(within(t, 5*time.Second), &contract.GetKeyRequest{Namespace: "test", KeyID: r.Key.ID()})
		if err != nil {
			t.Fatal(err)
		}
		if res.Lease != nil {
			held++
		}
	}
	if held > 0 {
		t.Errorf("%d of %d that were told unavailable hold their keys", held, len(refused))
	}
}

// TestStore_deadGatewayFreeKey frees a key whose only waiter was at a gateway that
// died: who comes without waiting gets it, or is told who has it.
func TestStore_deadGatewayFreeKey(t *testing.T) {
	server := proc.StartEtcd(t, proc.EtcdOptions{NoFsync: true})
	g1, g2 := crashOn(t, server), crashOn(t, server)
	lease := grantOn(t, g2, "key")
	park(t.Context(), g1, waitingAcquire(t, "key", "wanda", 30*time.Second))
	queueOn(t, g2, "key", 1)
	pause(time.Second) // its session is known to be alive
	g1.Kill()
	releaseOn(t, g2, lease)
	began := time.Now()
	for i := 0; ; i++ {
		res, err := g2.Acquire(within(t, 5*time.Second), testAcquire(t, "key", fmt.Sprint("bob-", i)))
		if err == nil && res.Outcome == contract.OutcomeAcquired {
			break
		}
		if time.Since(began) > 3*time.Second {
			t.Fatalf("a free key is %v, error %v, %v after its only waiter died", res.Outcome, err, time.Since(began))
		}
	}
	t.Logf("served after %v", time.Since(began))
}

// dropSessions ends all sessions, as etcd does when the gateways cannot reach it
// for some seconds.
func dropSessions(t *testing.T, e *proc.Etcd) {
	t.Helper()
	if _, err := etcdClient(t, e).Delete(t.Context(), "leased/g/", clientv3.WithPrefix()); err != nil {
		t.Fatal(err)
	}
}

// TestStore_manyWaiters has more waiters at one gateway than one transaction
// takes: they outlive the loss of its session, and when it dies they are in
// nobody's way.
func TestStore_manyWaiters(t *testing.T) {
	const crowd = 200
	server := proc.StartEtcd(t, proc.EtcdOptions{NoFsync: true})
	g1, g2 := crashOn(t, server), crashOn(t, server)
	lease := grantOn(t, g2, "key")
	served := make(chan contract.Result, crowd)
	for i := range crowd {
		r := waitingAcquire(t, "key", fmt.Sprint("w", i), 100*time.Second)
		go func() {
			res, err := g1.Acquire(context.Background(), r)
			if err == nil {
				served <- res
			}
		}()
	}
	// Without a deadline their wait ends with the default one.
	queueOn(t, g2, "key", crowd)
	dropSessions(t, server)
	queueOn(t, g2, "key", 0)
	queueOn(t, g2, "key", crowd)
	releaseOn(t, g2, lease)
	lease = granted(t, served, 5*time.Second)
	g1.Kill()
	began := time.Now()
	releaseOn(t, g2, lease)
	for i := 0; ; i++ {
		res, err := g2.Acquire(within(t, 5*time.Second), testAcquire(t, "key", fmt.Sprint("newcomer-", i)))
		if err == nil && res.Outcome == contract.OutcomeAcquired {
			break
		}
		if time.Since(began) > 4*time.Second {
			t.Fatalf("a free key is %v, error %v, %v after the gateway of its waiters died", res.Outcome, err, time.Since(began))
		}
	}
}

// TestStore_ghostPlace has a waiter leave while etcd hangs with the request for
// its place: once etcd is back nobody is in the way.
func TestStore_ghostPlace(t *testing.T) {
	server := proc.StartEtcd(t, proc.EtcdOptions{NoFsync: true})
	g1, g2 := crashOn(t, server), crashOn(t, server)
	lease := grantOn(t, g2, "key")
	lina := park(within(t, time.Minute), g1, waitingAcquire(t, "key", "lina", 50*time.Second))
	queueOn(t, g2, "key", 1)
	server.Pause(0)
	if res, err := g1.Acquire(within(t, 3*time.Second), waitingAcquire(t, "key", "xena", 100*time.Millisecond)); err == nil && res.Outcome == contract.OutcomeAcquired {
		t.Error("a held key was granted")
	}
	pause(300 * time.Millisecond)
	server.Resume(0)
	pause(time.Second)
	queueOn(t, g2, "key", 1)
	releaseOn(t, g2, lease)
	lease = granted(t, lina, 5*time.Second)
	releaseOn(t, g2, lease)
	queueOn(t, g2, "key", 0)
	if res, err := g2.Acquire(within(t, 5*time.Second), testAcquire(t, "key", "carol")); err != nil || res.Outcome != contract.OutcomeAcquired {
		t.Errorf("the free key is %v, error %v", res.Outcome, err)
	}
}

// TestStore_strangePlace puts a place of the gateway's session into the queue that
// no call of it waits for, as a request that etcd applies late does.
func TestStore_strangePlace(t *testing.T) {
	server := proc.StartEtcd(t, proc.EtcdOptions{NoFsync: true})
	g := crashOn(t, server)
	lease := grantOn(t, g, "key")
	ctx, cancel := context.WithCancel(t.Context())
	gone := park(ctx, g, waitingAcquire(t, "key", "gone", 50*time.Second))
	queueOn(t, g, "key", 1)
	c := etcdClient(t, server)
	resp, err := c.Get(t.Context(), "leased/w/test/"+lease.KeyID.String()+"/", clientv3.WithPrefix())
	if err != nil || len(resp.Kvs) != 1 {
		t.Fatal(err, len(resp.Kvs))
	}
	cancel()
	<-gone
	queueOn(t, g, "key", 0)
	if _, err := c.Put(t.Context(), string(resp.Kvs[0].Key), string(resp.Kvs[0].Value)); err != nil {
		t.Fatal(err)
	}
	queueOn(t, g, "key", 1) // a ghost
	bob := park(within(t, time.Minute), g, waitingAcquire(t, "key", "bob", 50*time.Second))
	releaseOn(t, g, lease)
	granted(t, bob, 5*time.Second)
	queueOn(t, g, "key", 0)
}

// TestStore_room gives the room of the first in the queue that is away to a
// newcomer, whoever left first.
func TestStore_room(t *testing.T) {
	server := proc.StartEtcd(t, proc.EtcdOptions{NoFsync: true})
	g := crashOn(t, server)
	lease := grantOn(t, g, "key")
	request := func(name string) *contract.AcquireRequest {
		r := waitingAcquire(t, "key", name, 30*time.Second)
		r.Limits.WaitersPerKey = 2
		return r
	}
	leave1, leave2 := context.CancelFunc(nil), context.CancelFunc(nil)
	var ctx context.Context
	ctx, leave1 = context.WithCancel(t.Context())
	first := park(ctx, g, request("first"))
	queueOn(t, g, "key", 1)
	ctx, leave2 = context.WithCancel(t.Context())
	second := park(ctx, g, request("second"))
	queueOn(t, g, "key", 2)
	leave2()
	<-second
	queueOn(t, g, "key", 1)
	leave1()
	<-first
	queueOn(t, g, "key", 0)
	park(t.Context(), g, request("newcomer"))
	queueOn(t, g, "key", 1)
	again := park(within(t, time.Minute), g, request("second"))
	queueOn(t, g, "key", 2)
	releaseOn(t, g, lease)
	granted(t, again, 5*time.Second)
}
