package valkey_test

import (
	"fmt"
	"testing"
	"time"

	"leased/contract"
	"leased/contract/contracttest"
	"leased/test/proc"
)

// found asks for a lease.
func (b *bench) found(l *contract.Lease) contract.Outcome {
	b.Helper()
	res, err := b.store.Get(b.within(proc.Patience), &contract.GetRequest{Namespace: l.Namespace, LeaseID: l.ID})
	if err != nil {
		b.Fatal(err)
	}
	return res.Outcome
}

// TestGet_beyondHistory wants a lease to be known as long as an event of it is
// among those that its key's history keeps, and no longer.
func TestGet_beyondHistory(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for keep := 3; keep <= 4; keep++ {
		var leases []*contract.Lease
		known := func() {
			t.Helper()
			events, err := b.store.History(b.within(proc.Patience), &contract.HistoryRequest{Namespace: "bench", KeyID: leases[0].KeyID})
			if err != nil {
				t.Fatal(err)
			}
			kept := map[contract.LeaseID]bool{}
			for _, ev := range events.Events {
				kept[ev.LeaseID] = true
			}
			for i, l := range leases {
				if got := b.found(l); (got == contract.OutcomeFound) != kept[l.ID] {
					t.Errorf("%d events kept, grant %d of %d: got %v, and in the history: %v", keep, i, len(leases), got, kept[l.ID])
				}
			}
		}
		for range 4 {
			r := b.acquireOf(fmt.Sprint("kept-", keep))
			r.Retention.HistoryPerKey = keep
			res, err := b.store.Acquire(b.within(proc.Patience), r)
			if err != nil || res.Outcome != contract.OutcomeAcquired {
				t.Fatalf("acquire: %v, %v", res.Outcome, err)
			}
			leases = append(leases, res.Lease)
			known()
			release := releaseOf(res.Lease, b.ids.Add(1))
			release.Retention.HistoryPerKey = keep
			if res, err := b.store.Release(b.within(proc.Patience), release); err != nil || res.Outcome != contract.OutcomeReleased {
				t.Fatalf("release: %v, %v", res.Outcome, err)
			}
			known()
		}
	}
}

// TestGet_olderThanHistory wants a lease to be unknown that ended before what the
// history keeps, although what was answered about it is still replayed.
func TestGet_olderThanHistory(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	keep := contract.Retention{Idempotency: time.Hour, History: 500 * time.Millisecond, HistoryPerKey: 64}
	r := b.acquireOf("once")
	r.Retention = keep
	res, err := b.store.Acquire(b.within(proc.Patience), r)
	if err != nil || res.Outcome != contract.OutcomeAcquired {
		t.Fatalf("acquire: %v, %v", res.Outcome, err)
	}
	release := releaseOf(res.Lease, b.ids.Add(1))
	release.Retention = keep
	if res, err := b.store.Release(b.within(proc.Patience), release); err != nil || res.Outcome != contract.OutcomeReleased {
		t.Fatalf("release: %v, %v", res.Outcome, err)
	}
	contracttest.AdvanceRealTime(t, keep.History+10*time.Millisecond)
	if got := b.found(res.Lease); got != contract.OutcomeNotFound {
		t.Errorf("get: got %v, want not_found", got)
	}
	check, err := b.store.Check(b.within(proc.Patience), &contract.CheckRequest{Namespace: r.Namespace, KeyID: res.Lease.KeyID, Token: res.Lease.Token})
	if err != nil || check.Outcome != contract.OutcomeNotFound {
		t.Errorf("check: got %v, error %v, want not_found", check.Outcome, err)
	}
	again, err := b.store.Release(b.within(proc.Patience), release)
	if err != nil || again.Outcome != contract.OutcomeReleased || !again.Replayed {
		t.Errorf("release again: got %v, error %v, want the answer replayed", again.Outcome, err)
	}
}
