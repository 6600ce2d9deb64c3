package raftkv_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"leased/contract"
)

func acquireRequest(t *testing.T, id string) *contract.AcquireRequest {
	t.Helper()
	k, err := contract.Key{
		Tenant: "acme", Target: contract.Target{Type: contract.TargetName, ID: "k"}, Actor: "crawler",
	}.Normalize()
	if err != nil {
		t.Fatal(err)
	}
	return &contract.AcquireRequest{
		Namespace: "default", RequestID: id, Owner: "svc", Instance: "w-1", Key: k, TTL: 30 * time.Second, MaxLifetime: time.Hour,
		Retention: contract.Retention{Idempotency: 10 * time.Minute, History: time.Hour, HistoryPerKey: 64},
	}
}

func mustAcquire(t *testing.T, s contract.Store, r *contract.AcquireRequest) contract.Lease {
	t.Helper()
	res, err := s.Acquire(t.Context(), r)
	if err != nil || res.Outcome != contract.OutcomeAcquired {
		t.Fatalf("acquire: %v, %v", res.Outcome, err)
	}
	return *res.Lease
}

func mustGet(t *testing.T, s contract.Store, id contract.LeaseID) contract.Lease {
	t.Helper()
	res, err := s.Get(t.Context(), &contract.GetRequest{Namespace: "default", LeaseID: id})
	if err != nil || res.Outcome != contract.OutcomeFound {
		t.Fatalf("get: %v, %v", res.Outcome, err)
	}
	return *res.Lease
}

// A wall clock that jumps decides nothing; only what is displayed follows it.
func TestEngine_WallClockJumps(t *testing.T) {
	n := newNode(t)
	s := n.handle()
	l := mustAcquire(t, s, acquireRequest(t, "r1"))
	for _, jump := range []time.Duration{time.Hour, -time.Hour} {
		n.wall.Store(int64(jump))
		if got := mustGet(t, s, l.ID); got.State != contract.StateActive || got.ExpiresIn > 30*time.Second || got.ExpiresIn < 5*time.Second {
			t.Errorf("after a jump of %v: %v with %v left, want active with at most 30 s", jump, got.State, got.ExpiresIn)
		}
	}
	n.wall.Store(0)
	n.offset.Add(int64(30 * time.Second))
	if got := mustGet(t, s, l.ID); got.State != contract.StateExpired {
		t.Errorf("after its TTL: %v, want expired", got.State)
	}
}

// A restart stretches a lease by the time that the node was away and at most by
// a tick, never by a whole TTL again.
func TestEngine_RestartStretchesLittle(t *testing.T) {
	n := newNode(t)
	s := n.handle()
	l := mustAcquire(t, s, acquireRequest(t, "r1"))
	n.offset.Add(int64(25 * time.Second))
	// The sweeper's tick writes the clock down although nothing else happens.
	waitFor(t, "a tick", func() bool { return n.fsm.Clock() >= int64(24*time.Second) })
	n.reopen(t)
	s = n.handle()
	if got := mustGet(t, s, l.ID); got.State != contract.StateActive || got.ExpiresIn > 6*time.Second {
		t.Errorf("after the restart: %v with %v left, want active with about 5 s", got.State, got.ExpiresIn)
	}
}

func waitFor(t *testing.T, what string, done func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !done() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("%s did not come within 30 s", what)
		}
	}
}

func TestEngine_ObserverHearsOfExpiryOnce(t *testing.T) {
	n := newNode(t)
	s := n.handle()
	l := mustAcquire(t, s, acquireRequest(t, "r1"))
	n.offset.Add(int64(31 * time.Second))
	heard := func() []contract.Event {
		n.mu.Lock()
		defer n.mu.Unlock()
		return n.expired
	}
	waitFor(t, "the expiry", func() bool { return len(heard()) > 0 })
	mustGet(t, s, l.ID)
	mustAcquire(t, s, acquireRequest(t, "r2"))
	got := heard()
	if len(got) != 1 || got[0].LeaseID != l.ID || got[0].Late < time.Second {
		t.Errorf("observed %+v, want one expiry of %v, 1 s late", got, l.ID)
	}
	n.reopen(t)
	mustGet(t, n.handle(), l.ID)
	if got := heard(); len(got) != 1 {
		t.Errorf("after a restart %d expiries were observed, want 1: a replayed log is no news", len(got))
	}
}

// A thousand wait for one key. Every release is one entry and serves one waiter,
// in order, whatever the length of the queue.
func TestEngine_ThousandWaiters(t *testing.T) {
	const waiters = 1000
	n := newNode(t)
	s := n.handle()
	// Nothing runs out, however long a thousand releases take.
	ask := func(id string) *contract.AcquireRequest {
		r := acquireRequest(t, id)
		r.TTL = time.Hour
		return r
	}
	held := mustAcquire(t, s, ask("holder"))
	type grant struct {
		i     int
		lease contract.Lease
	}
	granted := make(chan grant, waiters)
	var wg sync.WaitGroup
	for i := range waiters {
		wg.Go(func() {
			r := ask(fmt.Sprintf("waiter-%d", i))
			r.Wait = time.Hour
			res, err := s.Acquire(t.Context(), r)
			if err != nil || res.Outcome != contract.OutcomeAcquired {
				t.Errorf("waiter %d: %v, %v", i, res.Outcome, err)
				return
			}
			granted <- grant{i, *res.Lease}
		})
	}
	waitFor(t, "the queue", func() bool {
		k, err := s.GetKey(t.Context(), &contract.GetKeyRequest{Namespace: "default", KeyID: held.KeyID})
		return err == nil && k.Queue.Length == waiters
	})
	before := n.cluster.Status().LastIndex
	for k := range waiters {
		res, err := s.Release(t.Context(), &contract.ReleaseRequest{
			Namespace: "default", RequestID: fmt.Sprintf("release-%d", k), Owner: held.Owner, Instance: held.Instance,
			LeaseID: held.ID, Token: held.Token, Retention: acquireRequest(t, "x").Retention,
		})
		if err != nil || res.Outcome != contract.OutcomeReleased {
			t.Fatalf("release %d: %v, %v", k, res.Outcome, err)
		}
		g := <-granted
		if g.lease.Token <= held.Token {
			t.Fatalf("token %d was granted after %d", g.lease.Token, held.Token)
		}
		held = g.lease
	}
	wg.Wait()
	// Ticks and cleaning add a few entries a second; a herd would add thousands.
	if entries := n.cluster.Status().LastIndex - before; entries > 2*waiters {
		t.Errorf("%d releases with %d waiting took %d log entries", waiters, waiters, entries)
	}
}

// A wall clock that steps far ahead must not make a history look old.
func TestEngine_WallClockKeepsHistory(t *testing.T) {
	n := newNode(t)
	s := n.handle()
	l := mustAcquire(t, s, acquireRequest(t, "r1"))
	n.wall.Store(int64(48 * time.Hour))
	n.reopen(t)
	h, err := n.handle().History(t.Context(), &contract.HistoryRequest{Namespace: "default", KeyID: l.KeyID})
	if err != nil || len(h.Events) != 1 {
		t.Errorf("history after the wall clock stepped 48 h ahead: %d events, %v; want 1", len(h.Events), err)
	}
}
