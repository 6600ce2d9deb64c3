package valkey_test

import (
	"fmt"
	"testing"
	"time"

	"leased/contract"
	"leased/contract/contracttest"
	"leased/test/proc"
)

// TestReplay_shortRetention repeats requests while their answers are kept longer
// than the history of their lease, and when a renewal made the lease shorter.
func TestReplay_shortRetention(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	r := b.acquireOf("key")
	r.TTL, r.Retention = 30*time.Second, contract.Retention{Idempotency: time.Second, History: time.Second, HistoryPerKey: 64}
	res, err := b.store.Acquire(b.within(proc.Patience), r)
	if err != nil || res.Outcome != contract.OutcomeAcquired {
		t.Fatalf("acquire: %v, %v", res.Outcome, err)
	}
	renewal := b.renewOf(res.Lease)
	renewal.Retention = r.Retention
	if res, err := b.store.Renew(b.within(proc.Patience), renewal); err != nil || res.Outcome != contract.OutcomeRenewed {
		t.Fatalf("renew: %v, %v", res.Outcome, err)
	}
	end := releaseOf(res.Lease, b.ids.Add(1))
	end.Retention = r.Retention
	if res, err := b.store.Release(b.within(proc.Patience), end); err != nil || res.Outcome != contract.OutcomeReleased {
		t.Fatalf("release: %v, %v", res.Outcome, err)
	}
	base, kid := b.store.Base("bench"), res.Lease.KeyID.String()
	unended := b.acquireOf("unended")
	unended.TTL, unended.Retention = r.TTL, r.Retention
	if res, err := b.store.Acquire(b.within(proc.Patience), unended); err != nil || res.Outcome != contract.OutcomeAcquired {
		t.Fatalf("acquire: %v, %v", res.Outcome, err)
	}
	contracttest.AdvanceRealTime(t, 3*time.Second) // beyond both retentions
	if res, err := b.store.Acquire(b.within(proc.Patience), unended); err != nil || res.Outcome != contract.OutcomeAcquired || !res.Replayed {
		t.Errorf("the acquire of a lease that is held, again: got %v, error %v, want it replayed", res.Outcome, err)
	}
	got, err := b.store.Acquire(b.within(proc.Patience), r)
	if err != nil || got.Outcome != contract.OutcomeEndedReleased || got.Lease == nil {
		t.Errorf("the acquire again: got %v, error %v, want released with the lease", got.Outcome, err)
	}
	got, err = b.store.Renew(b.within(proc.Patience), renewal)
	if err != nil || got.Outcome != contract.OutcomeEndedReleased {
		t.Errorf("the renewal again: got %v, error %v, want released", got.Outcome, err)
	}
	// An answer whose lease is forgotten is forgotten too.
	b.server.Do(t, "DEL", base+":k:"+kid)
	got, err = b.store.Renew(b.within(proc.Patience), renewal)
	if err != nil || got.Outcome != contract.OutcomeNotFound {
		t.Errorf("the renewal of a forgotten lease: got %v, error %v, want not_found", got.Outcome, err)
	}
	got, err = b.store.Acquire(b.within(proc.Patience), r)
	if err != nil || got.Outcome != contract.OutcomeAcquired || got.Replayed {
		t.Errorf("the acquire of a forgotten lease: got %v, error %v, want a fresh grant", got.Outcome, err)
	}
	// What is corrupt is said to be so, by a renewal too.
	b.server.Do(t, "SETRANGE", base+":k:"+kid, "0", "x")
	_, err = b.store.Renew(b.within(proc.Patience), b.renewOf(got.Lease))
	if want := "internal: a stored record is corrupt"; contract.CodeOf(err) != contract.CodeInternal || fmt.Sprint(err)[:len(want)] != want {
		t.Errorf("renewal of a corrupt record: got %v, want %q", err, want)
	}
}
