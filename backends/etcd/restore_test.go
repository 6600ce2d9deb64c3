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

// TestStore_olderBackup puts etcd back to an older state under a gateway: the
// holder of a lease that the backup has goes on, who was granted one since is
// refused, and every later token is higher than any before.
func TestStore_olderBackup(t *testing.T) {
	t.Parallel()
	server := proc.StartEtcd(t, proc.EtcdOptions{})
	s := openOn(t, etcd.Config{Endpoints: server.Endpoints()})
	kept := grantOn(t, s, "kept")
	restore := server.Backup(t, 0)
	server.StartAll(t)
	again := func(s contract.Store, name string, i int) *contract.Lease {
		return gotKey(t, name, func() (contract.Result, error) {
			return recovered(t, func(ctx context.Context) (contract.Result, error) {
				return s.Acquire(ctx, testAcquire(t, name, fmt.Sprint("attempt-", i)))
			})
		})
	}
	last := again(s, "lost", 0)
	for i := range 5 {
		releaseOn(t, s, last)
		last = again(s, "lost", i+1)
	}
	restore()
	server.StartAll(t)
	res, err := recovered(t, func(ctx context.Context) (contract.Result, error) {
		return s.Renew(ctx, renewalOf(t, last, "renew-lost"))
	})
	if err != nil || res.Outcome != contract.OutcomeNotFound {
		t.Errorf("renew of a lease that the backup has not: got %v, error %v, want not_found", res.Outcome, err)
	}
	if res, err := s.Renew(within(t, proc.Patience), renewalOf(t, kept, "renew-kept")); err != nil || res.Outcome != contract.OutcomeRenewed {
		t.Errorf("renew of a lease that the backup has: got %v, error %v, want renewed", res.Outcome, err)
	}
	for _, name := range []string{"lost", "new"} {
		if l := again(s, name, 9); l.Token <= last.Token {
			t.Errorf("key %s has token %d after token %d", name, l.Token, last.Token)
		}
	}
	// Gateways that start now know nothing of what was before.
	later := openOn(t, etcd.Config{Endpoints: server.Endpoints()})
	if l := grantOn(t, later, "later"); l.Token <= last.Token {
		t.Errorf("a gateway that came after the restore grants token %d after token %d", l.Token, last.Token)
	}
}

// TestStore_Watch_compacted compacts etcd beyond what a stream has read, and
// beyond where a stream begins: both are told of the gap, once, and go on.
func TestStore_Watch_compacted(t *testing.T) {
	t.Parallel()
	server := proc.StartEtcd(t, proc.EtcdOptions{})
	direct := openOn(t, etcd.Config{Endpoints: server.Endpoints()})
	behind, proxy := throughProxy(t, server)
	next := func(t *testing.T, stream contract.Stream) contract.Event {
		t.Helper()
		ev, err := stream.Next(within(t, proc.Patience))
		if err != nil {
			t.Fatalf("the stream: %v", err)
		}
		return ev
	}
	watch := func(t *testing.T, s contract.Store, after string) contract.Stream {
		t.Helper()
		stream, err := s.Watch(within(t, proc.Patience), &contract.WatchRequest{Namespace: "test", After: after})
		if err != nil {
			t.Fatalf("watch: %v", err)
		}
		t.Cleanup(stream.Close)
		return stream
	}
	running := watch(t, behind, "")
	first := grantOn(t, direct, "first")
	seen := next(t, running)
	if seen.LeaseID != first.ID {
		t.Fatalf("the stream shows %+v, want the first grant", seen)
	}
	proxy.Set(t, proc.Refuse)
	for i := range 3 {
		grantOn(t, direct, fmt.Sprint("missed-", i))
	}
	c := etcdClient(t, server)
	resp, err := c.Get(t.Context(), "leased/", clientv3.WithCountOnly())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Compact(t.Context(), resp.Header.Revision, clientv3.WithCompactPhysical()); err != nil {
		t.Fatal(err)
	}
	proxy.Set(t, proc.Pass)
	late := watch(t, direct, seen.ID)
	streams := map[string]contract.Stream{"that ran": running, "that begins before": late}
	for name, stream := range streams {
		if ev := next(t, stream); ev.Kind != contract.EventGap {
			t.Errorf("the stream %s shows %v, want a gap", name, ev.Kind)
		}
	}
	after := grantOn(t, direct, "after")
	for name, stream := range streams {
		// The compaction's own revision is still there: what it holds comes first.
		for {
			ev := next(t, stream)
			if ev.Kind == contract.EventGap {
				t.Errorf("the stream %s tells of a second gap", name)
			}
			if ev.LeaseID == after.ID {
				break
			}
		}
	}
}

// TestStore_Watch_tokenEnds has etcd's auth token end under a stream.
func TestStore_Watch_tokenEnds(t *testing.T) {
	t.Parallel()
	server := proc.StartEtcd(t, proc.EtcdOptions{Args: []string{"--auth-token-ttl=1"}})
	c := etcdClient(t, server)
	ctx := t.Context()
	for _, step := range []func() error{
		func() error { _, err := c.UserAdd(ctx, "root", "secret"); return err },
		func() error { _, err := c.UserGrantRole(ctx, "root", "root"); return err },
		func() error { _, err := c.AuthEnable(ctx); return err },
	} {
		if err := step(); err != nil {
			t.Fatal(err)
		}
	}
	s := openOn(t, etcd.Config{Endpoints: server.Endpoints(), Username: "root", Password: "secret"})
	untilReady(t, s)
	stream, err := s.Watch(within(t, proc.Patience), &contract.WatchRequest{Namespace: "test"})
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	for i := range 3 {
		l := grantOn(t, s, fmt.Sprint("key-", i))
		ev, err := stream.Next(within(t, proc.Patience))
		if err != nil || ev.LeaseID != l.ID {
			t.Fatalf("grant %d: the stream shows %+v, error %v", i, ev, err)
		}
		pause(1500 * time.Millisecond) // beyond the life of a token
	}
	r := waitingAcquire(t, "waits", 20*time.Second)
	held := grantOn(t, s, r.Key.Target.ID)
	waiter := park(ctx, s, r)
	queueOn(t, s, 1)
	pause(2500 * time.Millisecond) // the line's and the session's own tokens end too
	releaseOn(t, s, held)
	if l := granted(t, waiter, 2*time.Second); l.Token <= held.Token {
		t.Errorf("token %d after token %d", l.Token, held.Token)
	}
}
