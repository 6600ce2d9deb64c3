package etcd

import (
	"context"
	"testing"
	"time"

	"leased/contract"
	"leased/test/proc"
)

// TestStore_turnPassed: of places whose turn came while nobody was there, as the key
// was free and nobody waited, nothing is left: their request ids are for anything, and
// who comes later is before who comes back.
func TestStore_turnPassed(t *testing.T) {
	s := openInside(t)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	ask := func(id, job string, wait time.Duration) *contract.AcquireRequest {
		r := waitingAttempt(t).req
		r.RequestID, r.JobID, r.Wait = id, job, wait
		return &r
	}
	acquire := func(r *contract.AcquireRequest, want contract.Outcome) *contract.Lease {
		t.Helper()
		res, err := s.Acquire(ctx, r)
		if err != nil || res.Outcome != want {
			t.Fatalf("%s: got %v, error %v, want %v", r.RequestID, res.Outcome, err, want)
		}
		return res.Lease
	}
	release := func(l *contract.Lease) {
		t.Helper()
		r := contract.ReleaseRequest{
			Namespace: l.Namespace, LeaseID: l.ID, Token: l.Token, Owner: l.Owner, Instance: l.Instance,
			RequestID: "release-" + l.RequestID, Retention: waitingAttempt(t).req.Retention,
		}
		if res, err := s.Release(ctx, &r); err != nil || res.Outcome != contract.OutcomeReleased {
			t.Fatalf("release: got %v, error %v", res.Outcome, err)
		}
	}
	held := acquire(ask("held", "", 0), contract.OutcomeAcquired)
	acquire(ask("first", "a job", 50*time.Millisecond), contract.OutcomeConflict)
	acquire(ask("second", "", 50*time.Millisecond), contract.OutcomeConflict)
	release(held)

	held = acquire(ask("first", "another job", 0), contract.OutcomeAcquired)
	waits := func(id string, before int) <-chan result {
		r := ask(id, "", time.Minute)
		done := begin(func() (contract.Result, error) { return s.Acquire(ctx, r) })
		proc.Until(t, id+" waits", 10*time.Second, func() bool {
			k, err := s.GetKey(ctx, &contract.GetKeyRequest{Namespace: r.Namespace, KeyID: held.KeyID})
			return err == nil && k.Queue.Length == before+1
		})
		return done
	}
	newcomer := waits("newcomer", 0)
	second := waits("second", 1)
	release(held)
	select {
	case r := <-newcomer:
		if r.err != nil || r.res.Outcome != contract.OutcomeAcquired {
			t.Fatalf("newcomer: got %v, error %v", r.res.Outcome, r.err)
		}
		release(r.res.Lease)
		if r := <-second; r.err != nil || r.res.Outcome != contract.OutcomeAcquired {
			t.Errorf("second: got %v, error %v", r.res.Outcome, r.err)
		}
	case r := <-second:
		t.Errorf("who was away when its turn came is before who came since: got %v, error %v", r.res.Outcome, r.err)
	}
}
