package etcd_test

import (
	"testing"
	"time"

	"leased/backends/etcd"
	"leased/contract"
	"leased/test/proc"
)

// shift moves the times in a key's record, as if the gateway that wrote it had a
// clock that is ahead by so much.
func shift(t *testing.T, e *proc.Etcd, l *contract.Lease, ahead time.Duration) {
	t.Helper()
	c := etcdClient(t, e)
	name := "leased/k/test/" + l.KeyID.String() + "/h"
	resp, err := c.Get(t.Context(), name)
	if err != nil || len(resp.Kvs) != 1 {
		t.Fatal(err, len(resp.Kvs))
	}
	// The value's own revision is another one from now on.
	value, err := etcd.ShiftRecord(resp.Kvs[0].Value, ahead, int64(l.Token))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Put(t.Context(), name, value); err != nil {
		t.Fatal(err)
	}
}

// TestStore_replayOtherClock repeats an acquire at a gateway whose clock is far
// behind: it is not told more time than is left.
func TestStore_replayOtherClock(t *testing.T) {
	t.Parallel()
	server := proc.StartEtcd(t, proc.EtcdOptions{NoFsync: true})
	g1, g2 := crashOn(t, server), crashOn(t, server)
	r := testAcquire(t, "key", "alice")
	r.TTL, r.MaxLifetime = 6*time.Second, time.Minute
	began := time.Now()
	res, err := g1.Acquire(within(t, proc.Patience), r)
	if err != nil || res.Outcome != contract.OutcomeAcquired {
		t.Fatal(res.Outcome, err)
	}
	granted := time.Now()
	shift(t, server, res.Lease, time.Minute)
	pause(3 * time.Second)
	sent := time.Now()
	res, err = g2.Acquire(within(t, proc.Patience), r)
	if err != nil || res.Outcome != contract.OutcomeAcquired || !res.Replayed {
		t.Fatal(res.Outcome, err)
	}
	most := r.TTL - sent.Sub(granted) + time.Second // an etcd lease has a second more
	least := r.TTL - time.Since(began) - time.Second
	if res.Lease.ExpiresIn > most || res.Lease.ExpiresIn < least {
		t.Errorf("%v is left as the replay says, want between %v and %v", res.Lease.ExpiresIn, least, most)
	}
}

// TestStore_renewOtherClock renews near the maximum lifetime at a gateway whose
// clock is far behind: nobody else gets the key before what was told is over.
func TestStore_renewOtherClock(t *testing.T) {
	t.Parallel()
	server := proc.StartEtcd(t, proc.EtcdOptions{NoFsync: true})
	g1, g2 := crashOn(t, server), crashOn(t, server)
	r := testAcquire(t, "key", "alice")
	r.TTL, r.MaxLifetime = 10*time.Second, 12*time.Second
	res, err := g1.Acquire(within(t, proc.Patience), r)
	if err != nil || res.Outcome != contract.OutcomeAcquired {
		t.Fatal(res.Outcome, err)
	}
	if res, err = g1.Renew(within(t, proc.Patience), renewalOf(t, res.Lease, "first")); err != nil || res.Outcome != contract.OutcomeRenewed {
		t.Fatal(res.Outcome, err)
	}
	shift(t, server, res.Lease, time.Minute)
	pause(8 * time.Second)
	sent := time.Now()
	res, err = g2.Renew(within(t, proc.Patience), renewalOf(t, res.Lease, "second"))
	if err != nil || res.Outcome != contract.OutcomeRenewed {
		t.Fatal(res.Outcome, err)
	}
	bob := waitingAcquire(t, "bob", 20*time.Second)
	t.Cleanup(func() {
		if !t.Failed() {
			return
		}
		key, err := g1.GetKey(within(t, proc.Patience), &contract.GetKeyRequest{Namespace: "test", KeyID: bob.Key.ID()})
		t.Logf("the key: %+v, lease %+v, error %v", key, key.Lease, err)
	})
	lease := granted(t, park(within(t, 25*time.Second), g2, bob), 18*time.Second)
	if took := time.Since(sent); took < res.Lease.ExpiresIn {
		t.Errorf("the next holder, token %d, came %v after a renewal that was told %v", lease.Token, took, res.Lease.ExpiresIn)
	}
}

// TestStore_renewAhead renews at a gateway whose clock is ahead by more than the
// maximum lifetime: the lease has its TTL.
func TestStore_renewAhead(t *testing.T) {
	t.Parallel()
	server := proc.StartEtcd(t, proc.EtcdOptions{NoFsync: true})
	g1, g2 := crashOn(t, server), crashOn(t, server)
	r := testAcquire(t, "key", "alice")
	r.TTL, r.MaxLifetime = 8*time.Second, time.Minute
	res, err := g1.Acquire(within(t, proc.Patience), r)
	if err != nil || res.Outcome != contract.OutcomeAcquired {
		t.Fatal(res.Outcome, err)
	}
	shift(t, server, res.Lease, -65*time.Second)
	for _, request := range []string{"first", "second"} { // without and with a limit of the lifetime in etcd
		res, err = g2.Renew(within(t, proc.Patience), renewalOf(t, res.Lease, request))
		if err != nil || res.Outcome != contract.OutcomeRenewed || res.Lease.ExpiresIn < 7*time.Second {
			t.Errorf("renewal: got %v, error %v, %v left, want %v", res.Outcome, err, res.Lease.ExpiresIn, r.TTL)
		}
		shift(t, server, res.Lease, -65*time.Second)
	}
}
