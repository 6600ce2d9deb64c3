package valkey_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"leased/backends/valkey"
	"leased/contract"
	"leased/test/proc"
)

// TestObserver_once has two gateways notice the same expiries: each is told once
// among them.
func TestObserver_once(t *testing.T) {
	t.Parallel()
	v := proc.StartValkey(t)
	var mu sync.Mutex
	told := map[contract.LeaseID]int{}
	observer := func(ev contract.Event) {
		mu.Lock()
		defer mu.Unlock()
		if ev.Kind == contract.EventExpired && ev.Late >= 0 {
			told[ev.LeaseID]++
		}
	}
	cfg := valkey.Config{Addresses: []string{v.Addr}, Observer: observer}
	a, b := on(t, v, cfg), on(t, v, cfg)
	const leases = 40
	granted := map[contract.LeaseID]bool{}
	for i := range leases {
		r := a.acquireOf(fmt.Sprint("key-", i))
		r.TTL = 500 * time.Millisecond
		res, err := a.store.Acquire(a.within(5*time.Second), r)
		if err != nil || res.Outcome != contract.OutcomeAcquired {
			t.Fatalf("acquire: %v, %v", res.Outcome, err)
		}
		granted[res.Lease.ID] = true
	}
	a.eventually("every expiry is told", func() bool {
		// Reads notice expiries too, beside the sweepers of both.
		if _, err := b.store.List(b.within(proc.Patience), &contract.ListRequest{Namespace: "bench", State: contract.StateExpired}); err != nil {
			t.Fatalf("list: %v", err)
		}
		mu.Lock()
		defer mu.Unlock()
		return len(told) == leases
	})
	for _, g := range []*bench{a, b} { // after that none can come twice
		if err := g.store.Close(g.within(proc.Patience)); err != nil {
			t.Errorf("close: %v", err)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	for id, n := range told {
		if n != 1 || !granted[id] {
			t.Errorf("the expiry of a lease was told %d times", n)
		}
	}
}

// TestList_sparseFilter lists by a filter that no index serves and that matches
// little: pages are short, and nothing is missed.
func TestList_sparseFilter(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	const leases = 2300
	want := map[string]bool{}
	var all sync.WaitGroup
	for part := range 16 {
		all.Go(func() {
			for i := part; i < leases; i += 16 {
				r := b.acquireOf(fmt.Sprint("key-", i))
				if i%1000 == 0 {
					r.Instance = "rare"
				}
				if res, err := b.store.Acquire(b.within(30*time.Second), r); err != nil || res.Outcome != contract.OutcomeAcquired {
					t.Errorf("acquire: %v, %v", res.Outcome, err)
				}
			}
		})
	}
	all.Wait()
	for i := 0; i < leases; i += 1000 {
		want[fmt.Sprint("key-", i)] = true
	}
	r := &contract.ListRequest{Namespace: "bench", Instance: "rare"}
	for pages := 1; ; pages++ {
		page, err := b.store.List(b.within(proc.Patience), r)
		if err != nil || pages > 10 {
			t.Fatalf("list, page %d: %v", pages, err)
		}
		for _, l := range page.Leases {
			if !want[l.Key.Target.ID] {
				t.Errorf("%s is listed, or twice", l.Key.Target.ID)
			}
			delete(want, l.Key.Target.ID)
		}
		if r.Cursor = page.NextCursor; r.Cursor == "" {
			break
		}
	}
	if len(want) != 0 {
		t.Errorf("not listed: %v", want)
	}
}

// TestWaiter_diesAsItIsServed kills the gateway of the next in line just before
// its turn: it is not known to be dead yet.
func TestWaiter_diesAsItIsServed(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	doomed := open(t, valkey.Config{Addresses: []string{b.server.Addr}})
	held := b.grant("held")
	first, second := b.acquireOf("held"), b.acquireOf("held")
	first.Wait, second.Wait = 20*time.Second, 20*time.Second
	queued := func(n int64) {
		b.eventually(fmt.Sprint(n, " wait"), func() bool { return b.health().Waiters == n })
	}
	gone, served := make(chan struct{}), make(chan contract.Result, 1)
	go func() {
		defer close(gone)
		_, _ = doomed.Acquire(b.within(20*time.Second), first)
	}()
	queued(1)
	go func() {
		res, err := b.store.Acquire(b.within(20*time.Second), second)
		if err != nil {
			t.Errorf("the second waiter: %v", err)
		}
		served <- res
	}()
	queued(2)
	doomed.Kill()
	<-gone
	if _, err := b.store.Release(b.within(proc.Patience), releaseOf(held, b.ids.Add(1))); err != nil {
		t.Fatal(err)
	}
	turn := time.Now()
	res := <-served
	if res.Outcome != contract.OutcomeAcquired || time.Since(turn) > 2*time.Second+500*time.Millisecond { // the machine is shared
		t.Errorf("the second waiter got %v after %v", res.Outcome, time.Since(turn))
	}
	// What the dead one was given is on record as undone.
	h, err := b.store.History(b.within(proc.Patience), &contract.HistoryRequest{Namespace: "bench", KeyID: held.KeyID})
	if err != nil || len(h.Events) != 5 || h.Events[1].Kind != contract.EventReleased || h.Events[1].RequestID != first.RequestID {
		t.Errorf("history: %d events, error %v", len(h.Events), err)
	}
}
