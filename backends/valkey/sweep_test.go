package valkey_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"leased/contract"
)

// TestSweep_manyWithWaiters ends many leases at once, each with a waiter whose
// owner is at its quota: counting the quota ends the next lease.
func TestSweep_manyWithWaiters(t *testing.T) { // alone: it is much work for the machine
	b := newBench(t)
	const leases, ttl = 600, 8 * time.Second
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	grant := func(key, owner string, ttl time.Duration) {
		r := b.acquireOf(key)
		r.Owner, r.TTL = owner, ttl
		if res, err := b.store.Acquire(ctx, r); err != nil || res.Outcome != contract.OutcomeAcquired {
			t.Errorf("acquire %s: %v, %v", key, res.Outcome, err)
		}
	}
	grant("own", "busy", 10*time.Minute)
	// At once: between the ends of the first and the last nobody is heard of.
	var all sync.WaitGroup
	first := time.Now()
	for part := range 16 {
		all.Go(func() {
			for i := part; i < leases; i += 16 {
				grant(fmt.Sprint("key-", i), "other", ttl)
			}
		})
	}
	all.Wait()
	last := time.Now()
	var mu sync.Mutex
	answers := map[string]int{}
	for i := range leases {
		all.Go(func() {
			r := b.acquireOf(fmt.Sprint("key-", i))
			r.Owner, r.Wait, r.Limits.LeasesPerOwner = "busy", 30*time.Second, 2
			res, err := b.store.Acquire(ctx, r)
			mu.Lock()
			defer mu.Unlock()
			answers[fmt.Sprint(res.Outcome, " ", res.Limit, " ", err)]++
		})
	}
	b.eventually("all wait", func() bool { return b.health().Waiters == leases })
	grant("own-too", "busy", 10*time.Minute) // its quota is full from here on
	// The pause is shorter than the time that the waiters are believed to live.
	b.eventually("the leases are about to end", func() bool { return time.Since(first) > ttl-100*time.Millisecond })
	b.server.Pause(t)
	b.eventually("all leases are over", func() bool { return time.Since(last) > ttl+100*time.Millisecond })
	b.server.Resume()
	resumed := time.Now()
	answered := make(chan struct{})
	go func() { defer close(answered); all.Wait() }()
	for waits := true; waits; {
		select {
		case <-answered:
			waits = false
		default:
		}
		// None of the leases is corrupt, for which alone an end is put off.
		from, to := time.Now().Add(20*time.Second).UnixMicro(), time.Now().Add(90*time.Second).UnixMicro()
		if n := b.server.Do(t, "ZCOUNT", b.store.Base("bench")+":x", fmt.Sprint(from), fmt.Sprint(to)); n != "0" {
			t.Errorf("the end of %s leases is put off", n)
			break
		}
	}
	<-answered
	if took := time.Since(resumed); took > 10*time.Second { // the machine is shared
		t.Errorf("the last waiter was answered %v after the server went on", took)
	}
	if want := fmt.Sprint(contract.OutcomeQuotaExceeded, " leases_per_owner <nil>"); answers[want] != leases {
		t.Errorf("answers: %v, want %d times %q", answers, leases, want)
	}
	if h := b.health(); h.ActiveLeases != 2 || h.Waiters != 0 {
		t.Errorf("%d leases and %d waiters at the end", h.ActiveLeases, h.Waiters)
	}
}
