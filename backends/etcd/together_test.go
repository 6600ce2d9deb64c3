package etcd_test

import (
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

// TestStore_Watch_oneRevision shows every event of keys that were granted in one
// transaction, once, in the order of their ids, and can begin after each.
func TestStore_Watch_oneRevision(t *testing.T) {
	t.Parallel()
	const callers = 40
	server := proc.StartEtcd(t, proc.EtcdOptions{})
	s := openOn(t, etcd.Config{Endpoints: server.Endpoints()})
	// Each key was granted before, so that nothing need be read; and what they
	// need of etcd is made.
	for i := range callers {
		l := grantOn(t, s, fmt.Sprint("key-", i))
		if _, err := s.Release(within(t, proc.Patience), releaseOf(t, l, fmt.Sprint("release-", i))); err != nil {
			t.Fatal(err)
		}
	}
	watch := func(after string) contract.Stream {
		t.Helper()
		stream, err := s.Watch(within(t, 20*time.Second), &contract.WatchRequest{Namespace: "test", After: after})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(stream.Close)
		return stream
	}
	stream := watch("")
	server.Pause(t, 0)
	var calls sync.WaitGroup
	for i := range callers {
		r := testAcquire(t, fmt.Sprint("key-", i), fmt.Sprint("again-", i))
		calls.Go(func() {
			if res, err := s.Acquire(within(t, 20*time.Second), r); err != nil || res.Outcome != contract.OutcomeAcquired {
				t.Errorf("acquire: got %v, error %v", res.Outcome, err)
			}
		})
	}
	pause(500 * time.Millisecond) // for half of them to gather
	server.Resume(0)
	calls.Wait()
	var ids []string
	revisions := map[string]bool{}
	for range callers {
		ev, err := stream.Next(within(t, 20*time.Second))
		if err != nil || ev.Kind != contract.EventAcquired {
			t.Fatalf("event %d: %v, error %v", len(ids), ev.Kind, err)
		}
		if len(ids) > 0 && ev.ID <= ids[len(ids)-1] {
			t.Errorf("event %s after %s", ev.ID, ids[len(ids)-1])
		}
		ids = append(ids, ev.ID)
		revisions[strings.Split(ev.ID, "-")[0]] = true
	}
	if len(revisions) > callers/2 {
		t.Errorf("%d grants in %d revisions: they do not go together", callers, len(revisions))
	}
	for i := range ids[:callers-1] {
		ev, err := watch(ids[i]).Next(within(t, 20*time.Second))
		if err != nil || ev.ID != ids[i+1] {
			t.Errorf("after %s: got %s, error %v, want %s", ids[i], ev.ID, err, ids[i+1])
		}
	}
}

// TestStore_queueNames has many wait for a key in turn: the places they had are
// few keys of etcd's, of which it looks at all that there ever were.
func TestStore_queueNames(t *testing.T) {
	t.Parallel()
	const callers, turns = 4, 150
	server := proc.StartEtcd(t, proc.EtcdOptions{NoFsync: true})
	gateways := []*etcd.Store{openOn(t, etcd.Config{Endpoints: server.Endpoints()}), openOn(t, etcd.Config{Endpoints: server.Endpoints()})}
	var calls sync.WaitGroup
	for i := range callers {
		calls.Go(func() {
			for k := range turns {
				r := testAcquire(t, "key", fmt.Sprintf("turn-%d-%d", i, k))
				r.Wait = time.Minute
				res, err := gateways[i%2].Acquire(within(t, time.Minute), r)
				if err != nil || res.Outcome != contract.OutcomeAcquired {
					t.Errorf("acquire: got %v, error %v", res.Outcome, err)
					return
				}
				if res, err := gateways[i%2].Release(within(t, time.Minute), releaseOf(t, res.Lease, fmt.Sprintf("end-%d-%d", i, k))); err != nil {
					t.Errorf("release: got %v, error %v", res.Outcome, err)
				}
			}
		})
	}
	calls.Wait()
	c := etcdClient(t, server)
	present, err := c.Get(t.Context(), "leased/epoch")
	if err != nil {
		t.Fatal(err)
	}
	made := 0
	names := map[string]bool{}
	changes := c.Watch(within(t, 20*time.Second), "leased/w/", clientv3.WithPrefix(), clientv3.WithRev(1), clientv3.WithFilterDelete(), clientv3.WithProgressNotify())
	for last := int64(0); last < present.Header.Revision; {
		select {
		case resp, ok := <-changes:
			if !ok || resp.Err() != nil {
				t.Fatal("the history of etcd cannot be read", resp.Err())
			}
			for _, ev := range resp.Events {
				made++
				names[string(ev.Kv.Key)] = true
			}
			last = resp.Header.Revision
		case <-t.Context().Done():
			t.Fatal("interrupted")
		}
	}
	if made < callers*turns/2 || len(names) > 300 {
		t.Errorf("%d places were made under %d names, want many under less than 300", made, len(names))
	}
}
