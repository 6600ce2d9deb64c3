package etcd_test

import (
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"leased/backends/etcd"
	"leased/contract"
	"leased/test/proc"
)

// TestStore_keepsForTheLongest: a lease that has ended is kept for the request that
// asked for the longest, whichever came last: its answer is made of the lease.
func TestStore_keepsForTheLongest(t *testing.T) {
	t.Parallel()
	e := proc.StartEtcd(t, proc.EtcdOptions{})
	s, c := openOn(t, etcd.Config{Endpoints: e.Endpoints()}), etcdClient(t, e)
	brief := contract.Retention{Idempotency: time.Second, HistoryPerKey: 2}
	long := contract.Retention{Idempotency: time.Hour, HistoryPerKey: 2}
	kept := func(name, prefix string) {
		t.Helper()
		resp, err := c.Get(t.Context(), prefix, clientv3.WithPrefix())
		if err != nil || len(resp.Kvs) != 1 {
			t.Fatalf("%s: %d of it under %s, error %v, want 1", name, len(resp.Kvs), prefix, err)
		}
		ttl, err := c.TimeToLive(t.Context(), clientv3.LeaseID(resp.Kvs[0].Lease))
		if left := time.Duration(ttl.TTL) * time.Second; err != nil || left < long.Idempotency-time.Minute {
			t.Errorf("%s: kept for %v, error %v, want about %v", name, left, err, long.Idempotency)
		}
	}
	for _, name := range []string{"acquire", "renew", "release"} {
		retention := func(verb string) contract.Retention {
			if verb == name {
				return long
			}
			return brief
		}
		acquire := testAcquire(t, name, "acquire-"+name)
		acquire.Retention = retention("acquire")
		l := gotKey(t, name, func() (contract.Result, error) { return s.Acquire(t.Context(), acquire) })
		renew := &contract.RenewRequest{
			Namespace: l.Namespace, LeaseID: l.ID, Owner: l.Owner, Instance: l.Instance, Token: l.Token,
			TTL: time.Minute, RequestID: "renew-" + name, Retention: retention("renew"),
		}
		if _, err := s.Renew(t.Context(), renew); err != nil {
			t.Fatalf("renew: %v", err)
		}
		release := &contract.ReleaseRequest{
			Namespace: l.Namespace, LeaseID: l.ID, Owner: l.Owner, Instance: l.Instance, Token: l.Token,
			RequestID: "release-" + name, Retention: retention("release"),
		}
		if _, err := s.Release(t.Context(), release); err != nil {
			t.Fatalf("release: %v", err)
		}
		kept("the newest lease, with "+name+" for long", "leased/k/"+l.Namespace+"/"+l.KeyID.String()+"/h")
		next := testAcquire(t, name, "next-"+name)
		next.Retention = brief
		gotKey(t, name, func() (contract.Result, error) { return s.Acquire(t.Context(), next) })
		kept("the lease before, with "+name+" for long", "leased/l/"+l.Namespace+"/"+l.KeyID.String()+"/")
	}
}
