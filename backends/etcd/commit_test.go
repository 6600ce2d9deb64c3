package etcd

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"leased/contract"
	"leased/test/proc"
)

// crowd has an etcd that was paused and transactions that gathered meanwhile.
type crowd struct {
	t      *testing.T
	server *proc.Etcd
	pool   *pool
	calls  sync.WaitGroup
	n      int
}

// newCrowd pauses etcd with all lanes in use.
func newCrowd(t *testing.T) *crowd {
	t.Helper()
	server := proc.StartEtcd(t, proc.EtcdOptions{})
	c := &crowd{t: t, server: server}
	c.pool = newPool(Config{Endpoints: server.Endpoints()}.withDefaults(), func() {})
	t.Cleanup(func() { _ = c.pool.close() })
	if c.pool.look(t.Context()) != nil {
		t.Fatal("etcd does not serve")
	}
	server.Pause(t, 0)
	for answers := true; answers; { // the signal takes a moment
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		answers = c.pool.look(ctx) == nil
		cancel()
	}
	for i := range lanes {
		c.add(20*time.Second, fmt.Sprint("lane-", i), nil, nil, func(*clientv3.TxnResponse, *failure) {})
		c.await(func() bool { return c.pool.commits.flying == i+1 })
	}
	return c
}

func (c *crowd) await(done func() bool) {
	c.t.Helper()
	g := c.pool.commits
	for began := time.Now(); ; <-time.After(time.Millisecond) {
		g.mu.Lock()
		ok := done()
		g.mu.Unlock()
		if ok {
			return
		}
		if time.Since(began) > 20*time.Second {
			c.t.Fatal("a transaction did not get to where it should wait")
		}
	}
}

// add sends a transaction about a key, and lets then look at its outcome.
func (c *crowd) add(limit time.Duration, name string, cmps []clientv3.Cmp, ops []clientv3.Op, then func(*clientv3.TxnResponse, *failure)) {
	c.t.Helper()
	key, err := contract.Key{Tenant: "t", Target: contract.Target{Type: contract.TargetName, ID: name}, Actor: "a"}.Normalize()
	if err != nil {
		c.t.Fatal(err)
	}
	c.calls.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), limit)
		defer cancel()
		then(c.pool.commit(ctx, keyRef{"test", key.ID()}, cmps, ops))
	})
	if ops == nil {
		return
	}
	c.n++
	want := c.n
	c.await(func() bool { return len(c.pool.commits.queue) == want })
}

// resume lets etcd serve what gathered.
func (c *crowd) resume() {
	c.t.Helper()
	c.server.Resume(0)
	c.calls.Wait()
}

// TestCommitter_group sends what gathered together, and gives each its own
// outcome: one that compares wrongly, one that etcd would refuse the whole for,
// and one whose time is over do nothing to the others.
func TestCommitter_group(t *testing.T) {
	c := newCrowd(t)
	var mu sync.Mutex
	revisions := map[int64]int{}
	good := func(name string) func(*clientv3.TxnResponse, *failure) {
		return func(resp *clientv3.TxnResponse, fail *failure) {
			mu.Lock()
			defer mu.Unlock()
			if fail != nil || !resp.Succeeded {
				t.Errorf("%s: %+v, failure %v", name, resp, fail)
				return
			}
			revisions[resp.Header.Revision]++
		}
	}
	fresh := func(name string) []clientv3.Cmp {
		return []clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(name), "=", 0)}
	}
	for i := range 3 {
		name := fmt.Sprint("good-", i)
		c.add(20*time.Second, name, fresh(name), []clientv3.Op{clientv3.OpPut(name, "x"), clientv3.OpGet(name)}, func(resp *clientv3.TxnResponse, fail *failure) {
			good(name)(resp, fail)
			if fail == nil && len(resp.Responses[1].GetResponseRange().GetKvs()) != 1 {
				t.Errorf("%s does not read what it wrote", name)
			}
		})
	}
	c.add(20*time.Second, "wrong", []clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision("wrong"), ">", 0)},
		[]clientv3.Op{clientv3.OpPut("wrong", "x")}, func(resp *clientv3.TxnResponse, fail *failure) {
			if fail != nil || resp.Succeeded {
				t.Errorf("a comparison that does not hold: %+v, failure %v", resp, fail)
			}
		})
	// Of one key, though they write different ones of etcd's: they would share a
	// place among the events of the revision.
	for i := range 2 {
		name := fmt.Sprint("same-", i)
		c.add(20*time.Second, "same", nil, []clientv3.Op{clientv3.OpPut(name, "x")}, good(name))
	}
	c.add(time.Second, "late", nil, []clientv3.Op{clientv3.OpPut("late", "x")}, func(_ *clientv3.TxnResponse, fail *failure) {
		if fail == nil || fail.sent {
			t.Errorf("a call whose time was over before it was sent: %+v", fail)
		}
	})
	c.await(func() bool { return len(c.pool.commits.queue) == c.n-1 })
	c.resume()
	if len(revisions) != 2 {
		t.Errorf("%v transactions by revision, want all but one of the same key's together", revisions)
	}
}

// TestCommitter_refused has etcd refuse a group because of one in it.
func TestCommitter_refused(t *testing.T) {
	c := newCrowd(t)
	for i := range 3 {
		name := fmt.Sprint("good-", i)
		c.add(20*time.Second, name, nil, []clientv3.Op{clientv3.OpPut(name, "x")}, func(resp *clientv3.TxnResponse, fail *failure) {
			if fail != nil || !resp.Succeeded {
				t.Errorf("%s: %+v, failure %v", name, resp, fail)
			}
		})
	}
	c.add(20*time.Second, "bad", nil, []clientv3.Op{clientv3.OpPut("bad", "x", clientv3.WithLease(17))}, func(_ *clientv3.TxnResponse, fail *failure) {
		if fail == nil || !fail.said || !isErr(fail.err, rpctypes.ErrLeaseNotFound) {
			t.Errorf("a put on a lease that does not exist: %+v", fail)
		}
	})
	c.resume()
}

// TestCommitter_limits keeps within what etcd takes of a transaction.
func TestCommitter_limits(t *testing.T) {
	c := newCrowd(t)
	for i := range groupMost + 3 {
		var ops []clientv3.Op
		for k := range groupRoom {
			ops = append(ops, clientv3.OpPut(fmt.Sprintf("many-%d-%d", i, k), "x"))
		}
		if i%8 == 0 {
			ops = append(ops, clientv3.OpPut(fmt.Sprint("one-more-", i), string(make([]byte, 600<<10))))
		}
		c.add(20*time.Second, fmt.Sprint("key-", i), nil, ops, func(resp *clientv3.TxnResponse, fail *failure) {
			if fail != nil || !resp.Succeeded {
				t.Errorf("transaction %d: failure %v", i, fail)
			}
		})
	}
	c.resume()
}
