package etcd

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"leased/contract"
)

// TestStore_granted_wentBack has etcd be found to have gone back between a grant
// and its answer: the grant's token may be one that was granted before, so that
// the grant is undone, and the next one is higher than all before.
func TestStore_granted_wentBack(t *testing.T) {
	s, a := openInside(t), waitingAttempt(t)
	st, g := committed(t, s, a)
	s.wentBack()
	above := contract.Token(s.tokens.above.Load())
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if res, err := s.granted(ctx, st, g); !errors.Is(err, undoneError{}) {
		t.Fatalf("got token %v, error %v, want it undone", res.Lease, err)
	}
	after, err := s.load(ctx, a.ref, a.want())
	if err != nil {
		t.Fatal(err)
	}
	if after.active() != nil || after.answer != nil {
		t.Errorf("the key is held: %v, the request has an answer: %v, want neither", after.active() != nil, after.answer != nil)
	}
	r := a.req
	res, err := s.Acquire(ctx, &r)
	if err != nil || res.Outcome != contract.OutcomeAcquired || res.Replayed || res.Lease.Token <= above {
		t.Errorf("acquire again: got %+v, error %v, want a fresh grant with a token above %d", res, err, above)
	}
}

// TestStore_Acquire_tokensUsedUp has other writes to etcd use up the last tokens
// between what a gateway saw last and its grant.
func TestStore_Acquire_tokensUsedUp(t *testing.T) {
	s := openInside(t)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	r := waitingAttempt(t).req
	if err := s.raiseFloor(ctx, r.Namespace, contract.MaxToken-20); err != nil {
		t.Fatal(err)
	}
	res, err := s.Acquire(ctx, &r)
	if err != nil || res.Outcome != contract.OutcomeAcquired {
		t.Fatalf("acquire: got %v, error %v", res.Outcome, err)
	}
	l := res.Lease
	if res, err = s.Release(ctx, &contract.ReleaseRequest{
		Namespace: r.Namespace, RequestID: "end", Owner: l.Owner, Instance: l.Instance, LeaseID: l.ID, Token: l.Token, Retention: r.Retention,
	}); err != nil || res.Outcome != contract.OutcomeReleased {
		t.Fatalf("release: got %v, error %v", res.Outcome, err)
	}
	c, err := s.pool.eps[0].get()
	if err != nil {
		t.Fatal(err)
	}
	for i := range 40 {
		if _, err := c.Do(ctx, clientv3.OpPut("foreign", fmt.Sprint(i))); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 2 { // what was seen is old, and then it is not
		r.RequestID = fmt.Sprint("again-", i)
		if res, err := s.Acquire(ctx, &r); contract.CodeOf(err) != contract.CodeInternal {
			t.Errorf("acquire with no token left: got %+v, error %v, want internal", res.Lease, err)
		}
		st, err := s.load(ctx, keyRef{r.Namespace, r.Key.ID()}, want{})
		if err != nil {
			t.Fatal(err)
		}
		if st.active() != nil {
			t.Errorf("the key is held with token %d", st.active().token())
		}
	}
}

// TestReplayRenew_clockBehind repeats a renewal at a gateway whose clock is an
// hour behind that of the one that renewed: what is left is no more than what was
// granted, although a later renewal granted more.
func TestReplayRenew_clockBehind(t *testing.T) {
	a := waitingAttempt(t)
	here := now()
	there := here + time.Hour.Microseconds()
	rec := &record{State: contract.StateActive, Acquired: there, Renewed: there + 1000, Expires: there + 1000 + time.Hour.Microseconds(), TTL: time.Hour, MaxLife: 24 * time.Hour, Renewals: 2}
	rec.id = newLeaseID(a.ref.id, 1)
	st := &state{ref: a.ref, head: rec, aliveMod: 1, queue: &queue{}, answer: &answer{
		Attempt: newMark(), Renewed: there, Expires: there + time.Minute.Microseconds(), TTL: time.Minute, Renewals: 1,
	}}
	res := replayRenew(st, rec, newMark(), here)
	if !res.Replayed || res.Outcome != contract.OutcomeRenewed || res.Lease.ExpiresIn != time.Minute || res.Lease.TTL != time.Minute {
		t.Errorf("got %+v with %v left of %v, want the renewal replayed with a minute left", res, res.Lease.ExpiresIn, res.Lease.TTL)
	}
}
