package etcd_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"leased/backends/etcd"
	"leased/contract"
	"leased/test/proc"
)

// crashOn opens a gateway of which the test may end the process.
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

func waitingAcquire(t *testing.T, request string, wait time.Duration) *contract.AcquireRequest {
	t.Helper()
	r := testAcquire(t, "key", request)
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
	res, err := s.Release(within(t, proc.Patience), releaseOf(t, l, "release-"+l.ID.String()))
	if err != nil || res.Outcome != contract.OutcomeReleased {
		t.Fatalf("release: got %v, error %v", res.Outcome, err)
	}
}

// queueOn waits until so many wait for the key "key".
func queueOn(t *testing.T, s contract.Store, want int) {
	t.Helper()
	key := testAcquire(t, "key", "x").Key.ID()
	for until := time.Now().Add(20 * time.Second); ; {
		res, err := s.GetKey(within(t, proc.Patience), &contract.GetKeyRequest{Namespace: "test", KeyID: key})
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

// TestStore_deadGatewayFreeKey frees a key whose only waiter was at a gateway that
// died: who comes without waiting gets it, or is told who has it.
func TestStore_deadGatewayFreeKey(t *testing.T) {
	server := proc.StartEtcd(t, proc.EtcdOptions{NoFsync: true})
	g1, g2 := crashOn(t, server), crashOn(t, server)
	lease := grantOn(t, g2, "key")
	park(t.Context(), g1, waitingAcquire(t, "wanda", 30*time.Second))
	queueOn(t, g2, 1)
	pause(time.Second) // its session is known to be alive
	g1.Kill()
	releaseOn(t, g2, lease)
	began := time.Now()
	for i := 0; ; i++ {
		res, err := g2.Acquire(within(t, proc.Patience), testAcquire(t, "key", fmt.Sprint("bob-", i)))
		if err == nil && res.Outcome == contract.OutcomeAcquired {
			break
		}
		if time.Since(began) > 3*time.Second {
			t.Fatalf("a free key is %v, error %v, %v after its only waiter died", res.Outcome, err, time.Since(began))
		}
	}
	t.Logf("served after %v", time.Since(began))
}

// TestStore_awayAtHead has a key become free for a waiter that came back to its
// place: another came to its gateway before it did, and one that is away stands
// before it in the queue.
func TestStore_awayAtHead(t *testing.T) {
	server := proc.StartEtcd(t, proc.EtcdOptions{NoFsync: true})
	s := openOn(t, etcd.Config{Endpoints: server.Endpoints()})
	held := grantOn(t, s, "key")
	ctx, cancel := context.WithCancel(t.Context())
	away := park(ctx, s, waitingAcquire(t, "away", 20*time.Second))
	queueOn(t, s, 1)
	cancel()
	<-away
	queueOn(t, s, 0)
	if res := <-park(t.Context(), s, waitingAcquire(t, "back", 300*time.Millisecond)); res.Outcome != contract.OutcomeConflict || res.Queue.Position == 0 {
		t.Fatalf("a wait that ended: got %v and %+v, want a conflict and a place", res.Outcome, res.Queue)
	}
	queueOn(t, s, 0)
	park(t.Context(), s, waitingAcquire(t, "later", 20*time.Second))
	queueOn(t, s, 1)
	back := park(t.Context(), s, waitingAcquire(t, "back", 20*time.Second))
	queueOn(t, s, 2)
	releaseOn(t, s, held)
	granted(t, back, 2*time.Second)
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
		r := waitingAcquire(t, fmt.Sprint("w", i), 100*time.Second)
		go func() {
			res, err := g1.Acquire(context.Background(), r)
			if err == nil {
				served <- res
			}
		}()
	}
	// Without a deadline their wait ends with the default one.
	queueOn(t, g2, crowd)
	dropSessions(t, server)
	queueOn(t, g2, 0)
	queueOn(t, g2, crowd)
	releaseOn(t, g2, lease)
	lease = granted(t, served, 5*time.Second)
	g1.Kill()
	began := time.Now()
	releaseOn(t, g2, lease)
	for i := 0; ; i++ {
		res, err := g2.Acquire(within(t, proc.Patience), testAcquire(t, "key", fmt.Sprint("newcomer-", i)))
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
	t.Parallel()
	server := proc.StartEtcd(t, proc.EtcdOptions{NoFsync: true})
	g1, g2 := crashOn(t, server), crashOn(t, server)
	lease := grantOn(t, g2, "key")
	lina := park(within(t, time.Minute), g1, waitingAcquire(t, "lina", 50*time.Second))
	queueOn(t, g2, 1)
	server.Pause(t, 0)
	if res, err := g1.Acquire(within(t, 3*time.Second), waitingAcquire(t, "xena", 100*time.Millisecond)); err == nil && res.Outcome == contract.OutcomeAcquired {
		t.Error("a held key was granted")
	}
	pause(300 * time.Millisecond)
	server.Resume(0)
	pause(time.Second)
	queueOn(t, g2, 1)
	releaseOn(t, g2, lease)
	lease = granted(t, lina, 5*time.Second)
	releaseOn(t, g2, lease)
	queueOn(t, g2, 0)
	if res, err := g2.Acquire(within(t, proc.Patience), testAcquire(t, "key", "carol")); err != nil || res.Outcome != contract.OutcomeAcquired {
		t.Errorf("the free key is %v, error %v", res.Outcome, err)
	}
}

// TestStore_strangePlace puts a place of the gateway's session into the queue that
// no call of it waits for, as a request that etcd applies late does.
func TestStore_strangePlace(t *testing.T) {
	t.Parallel()
	server := proc.StartEtcd(t, proc.EtcdOptions{NoFsync: true})
	g, other := crashOn(t, server), crashOn(t, server)
	lease := grantOn(t, g, "key")
	ctx, cancel := context.WithCancel(t.Context())
	gone := park(ctx, g, waitingAcquire(t, "gone", 50*time.Second))
	queueOn(t, g, 1)
	c := etcdClient(t, server)
	resp, err := c.Get(t.Context(), "leased/w/test/"+lease.KeyID.String()+"/", clientv3.WithPrefix())
	if err != nil || len(resp.Kvs) != 1 {
		t.Fatal(err, len(resp.Kvs))
	}
	cancel()
	<-gone
	queueOn(t, g, 0)
	if _, err := c.Put(t.Context(), string(resp.Kvs[0].Key), string(resp.Kvs[0].Value)); err != nil {
		t.Fatal(err)
	}
	queueOn(t, other, 1) // a ghost
	if res, err := g.Acquire(within(t, proc.Patience), waitingAcquire(t, "gone", 0)); err != nil || res.Queue != (contract.Queue{Position: 1}) {
		t.Errorf("the gateway whose it is: got %v and %+v, error %v, want none waiting and a place at the head", res.Outcome, res.Queue, err)
	}
	queueOn(t, g, 0)
	bob := park(within(t, time.Minute), g, waitingAcquire(t, "bob", 50*time.Second))
	releaseOn(t, g, lease)
	granted(t, bob, 5*time.Second)
	queueOn(t, g, 0)
}

// TestStore_room gives the room of the first in the queue that is away to a
// newcomer, whoever left first.
func TestStore_room(t *testing.T) {
	t.Parallel()
	server := proc.StartEtcd(t, proc.EtcdOptions{NoFsync: true})
	g := crashOn(t, server)
	lease := grantOn(t, g, "key")
	request := func(name string) *contract.AcquireRequest {
		r := waitingAcquire(t, name, 30*time.Second)
		r.Limits.WaitersPerKey = 2
		return r
	}
	ctx, leave1 := context.WithCancel(t.Context())
	defer leave1()
	first := park(ctx, g, request("first"))
	queueOn(t, g, 1)
	ctx, leave2 := context.WithCancel(t.Context())
	defer leave2()
	second := park(ctx, g, request("second"))
	queueOn(t, g, 2)
	leave2()
	<-second
	queueOn(t, g, 1)
	leave1()
	<-first
	queueOn(t, g, 0)
	park(t.Context(), g, request("newcomer"))
	queueOn(t, g, 1)
	again := park(within(t, time.Minute), g, request("second"))
	queueOn(t, g, 2)
	releaseOn(t, g, lease)
	granted(t, again, 5*time.Second)
}

// TestStore_crowdDies serves the next waiter that is present within two seconds,
// however many there were at a gateway that died.
func TestStore_crowdDies(t *testing.T) {
	const crowd = 500
	server := proc.StartEtcd(t, proc.EtcdOptions{NoFsync: true})
	g1, g2 := crashOn(t, server), crashOn(t, server)
	lease := grantOn(t, g2, "key")
	ctx := within(t, time.Minute)
	for i := range crowd {
		park(ctx, g1, waitingAcquire(t, fmt.Sprint("w", i), 50*time.Second))
	}
	queueOn(t, g2, crowd)
	last := park(ctx, g2, waitingAcquire(t, "last", 50*time.Second))
	queueOn(t, g2, crowd+1)
	pause(2 * time.Second) // the gateways know each other
	died := time.Now()
	g1.Kill()
	releaseOn(t, g2, lease)
	granted(t, last, 10*time.Second)
	if took := time.Since(died); took > 2*time.Second+contract.AnswerSlack {
		t.Errorf("the next one present was served %v after the gateway of the others died", took)
	}
}
