package etcd_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"leased/contract"
	"leased/test/proc"
)

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
		if _, err := stream.Next(within(t, proc.Patience)); err != nil {
			t.Fatal(err)
		}
	}
	server.Empty(t, 0)
	server.StartAll(t)
	gotKey(t, "first", func() (contract.Result, error) {
		return recovered(t, func(ctx context.Context) (contract.Result, error) {
			return g2.Acquire(ctx, testAcquire(t, "first", "first"))
		})
	})
	for i := range 7 {
		grantOn(t, g2, fmt.Sprint("after-", i))
	}
	bob := grantOn(t, g2, "key")
	if bob.Token <= old.Token {
		t.Errorf("token %d after token %d", bob.Token, old.Token)
	}
	if res, err := recovered(t, func(ctx context.Context) (contract.Result, error) {
		return g1.Release(ctx, releaseOf(t, old, "release-old"))
	}); err != nil || res.Outcome != contract.OutcomeNotFound {
		t.Errorf("release of a lease that etcd lost: got %v, error %v, want not_found", res.Outcome, err)
	}
	if res, err := g2.Renew(within(t, proc.Patience), renewalOf(t, bob, "renew-bob")); err != nil || res.Outcome != contract.OutcomeRenewed {
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
		res, err := g.GetKey(within(t, proc.Patience), &contract.GetKeyRequest{Namespace: "test", KeyID: r.Key.ID()})
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

// TestStore_noSpaceStaleHint ends a lease that another gateway renewed, and
// shows one that expired, while etcd takes no more than deletions.
func TestStore_noSpaceStaleHint(t *testing.T) {
	t.Parallel()
	server := proc.StartEtcd(t, proc.EtcdOptions{NoFsync: true})
	g1, g2 := crashOn(t, server), crashOn(t, server)
	lease := grantOn(t, g1, "key")
	if res, err := g2.Renew(within(t, proc.Patience), renewalOf(t, lease, "renew")); err != nil || res.Outcome != contract.OutcomeRenewed {
		t.Fatal(res.Outcome, err)
	}
	short := testAcquire(t, "short", "short")
	short.TTL = time.Second
	res, err := g2.Acquire(within(t, proc.Patience), short)
	if err != nil || res.Outcome != contract.OutcomeAcquired {
		t.Fatal(res.Outcome, err)
	}
	c := etcdClient(t, server)
	status, err := c.Status(t.Context(), server.Endpoints()[0])
	if err != nil {
		t.Fatal(err)
	}
	if _, err = pb.NewMaintenanceClient(c.ActiveConnection()).Alarm(t.Context(), &pb.AlarmRequest{
		Action: pb.AlarmRequest_ACTIVATE, MemberID: status.Header.MemberId, Alarm: pb.AlarmType_NOSPACE,
	}); err != nil {
		t.Fatal(err)
	}
	r := releaseOf(t, lease, "release")
	r.Retention.Idempotency += time.Minute // which takes a bucket that there is not yet
	if res, err := g1.Release(within(t, proc.Patience), r); err != nil || res.Outcome != contract.OutcomeReleased {
		t.Errorf("release: got %v, error %v", res.Outcome, err)
	}
	for until := time.Now().Add(10 * time.Second); ; {
		got, err := g2.Get(within(t, proc.Patience), &contract.GetRequest{Namespace: "test", LeaseID: res.Lease.ID})
		if err != nil {
			t.Fatalf("get: %v", err)
		}
		if got.Lease.State == contract.StateExpired {
			break
		}
		if time.Now().After(until) {
			t.Fatalf("get: the lease is still %v", got.Lease.State)
		}
		pause(50 * time.Millisecond)
	}
	check, err := g2.Check(within(t, proc.Patience), &contract.CheckRequest{Namespace: "test", KeyID: res.Lease.KeyID, Token: res.Lease.Token})
	if err != nil || check.Outcome != contract.OutcomeEndedExpired {
		t.Errorf("check: got %v, error %v, want expired", check.Outcome, err)
	}
	if _, err := g2.History(within(t, proc.Patience), &contract.HistoryRequest{Namespace: "test", KeyID: res.Lease.KeyID}); err != nil {
		t.Errorf("history: %v", err)
	}
}
