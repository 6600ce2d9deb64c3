package etcd

import (
	"context"
	"testing"
	"time"

	"leased/contract"
)

// TestStore_revisionsComeAgain has a gateway remember a key as it was at a revision
// that etcd, put back to a backup, has given to something else since: the key is
// held by another. Neither is the key granted again, nor is the other's lease ended
// or renewed.
func TestStore_revisionsComeAgain(t *testing.T) {
	s := openInside(t)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	r := waitingAttempt(t).req
	r.Wait = 0
	res, err := s.Acquire(ctx, &r)
	if err != nil || res.Outcome != contract.OutcomeAcquired {
		t.Fatalf("acquire: got %v, error %v", res.Outcome, err)
	}
	held := res.Lease
	ref := keyRef{r.Namespace, r.Key.ID()}
	stored, err := s.load(ctx, ref, want{})
	if err != nil {
		t.Fatal(err)
	}
	// remember gives the gateway a hint of that revision.
	remember := func(state contract.State) *contract.Lease {
		was := *stored.head
		was.State, was.aliveRev = state, stored.aliveMod
		was.id = newLeaseID(ref.id, was.Ordinal+7)
		was.LeaseID = was.id.String()
		s.hints.forget(ref)
		s.hints.wrote(ref, &was)
		return was.lease(ref.ns, now())
	}

	remember(contract.StateReleased)
	other := r
	other.RequestID, other.Owner = "other", "bob"
	if res, err := s.Acquire(ctx, &other); err != nil || res.Outcome != contract.OutcomeConflict {
		t.Errorf("acquire of a key remembered as free: got %v, error %v, want conflict", res.Outcome, err)
	}
	mine := remember(contract.StateActive)
	if res, err := s.Release(ctx, &contract.ReleaseRequest{
		Namespace: r.Namespace, RequestID: "end", Owner: mine.Owner, Instance: mine.Instance, LeaseID: mine.ID, Token: mine.Token, Retention: r.Retention,
	}); err != nil || res.Outcome != contract.OutcomeNotFound {
		t.Errorf("release of a lease that is gone: got %v, error %v, want not_found", res.Outcome, err)
	}
	mine = remember(contract.StateActive)
	if res, err := s.Renew(ctx, &contract.RenewRequest{
		Namespace: r.Namespace, RequestID: "renew", Owner: mine.Owner, Instance: mine.Instance, LeaseID: mine.ID, Token: mine.Token, Retention: r.Retention,
	}); err != nil || res.Outcome != contract.OutcomeNotFound {
		t.Errorf("renewal of a lease that is gone: got %v, error %v, want not_found", res.Outcome, err)
	}
	after, err := s.load(ctx, ref, want{})
	if err != nil || after.active() == nil || after.head.id != held.ID || after.headMod != stored.headMod {
		t.Errorf("the holder's lease has changed, error %v", err)
	}
}
