package etcd

import (
	"context"
	"testing"
	"time"

	"leased/contract"
	"leased/test/proc"
)

// openInside opens a store on an etcd of its own.
func openInside(t *testing.T) *Store {
	t.Helper()
	return openAt(t, proc.StartEtcd(t, proc.EtcdOptions{}))
}

// waitingAttempt is a call that waits for a key.
func waitingAttempt(t *testing.T) *attempt {
	t.Helper()
	key, err := contract.Key{Tenant: "acme", Target: contract.Target{Type: contract.TargetName, ID: "key"}, Actor: "test"}.Normalize()
	if err != nil {
		t.Fatal(err)
	}
	return newAttempt(&contract.AcquireRequest{
		Namespace: "test", RequestID: "late", Owner: "alice", Instance: "alice-1", Key: key, TTL: time.Hour, MaxLifetime: 2 * time.Hour,
		Wait: time.Minute, Retention: contract.Retention{Idempotency: 10 * time.Minute, History: time.Hour, HistoryPerKey: 16},
	})
}

// committed grants a free key to an attempt, up to where its outcome is known.
func committed(t *testing.T, s *Store, a *attempt) (*state, *grantPlan) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	st, err := s.load(ctx, a.ref, a.want())
	if err != nil {
		t.Fatal(err)
	}
	g, err := s.prepare(ctx, st, a, st.queue, true)
	if err != nil {
		t.Fatal(err)
	}
	if done, err := s.commit(ctx, st, g); err != nil || !done {
		t.Fatalf("grant: done %v, error %v", done, err)
	}
	return st, g
}

// lateGrant grants a free key to a waiting attempt, as a hand-over does, up to
// where the calls at its spot are told.
func lateGrant(t *testing.T) (*line, *spot, told) {
	t.Helper()
	s, a := openInside(t), waitingAttempt(t)
	_, g := committed(t, s, a)
	res := contract.Result{Outcome: contract.OutcomeAcquired, Lease: g.record.lease(a.ref.ns, now())}
	l := &line{s: s, ref: a.ref, wake: make(chan struct{}, 1), waiting: map[contract.Scope]*spot{}}
	return l, &spot{a: a}, told{res: res, share: &share{id: g.record.id, rev: g.record.rev}}
}

func (l *line) join1(sp *spot) chan told {
	w := &waiter{ch: make(chan told, 1)}
	sp.calls = []*waiter{w}
	l.waiting[sp.a.scope], l.order = sp, []contract.Scope{sp.a.scope}
	return w.ch
}

// active tells whether somebody has the line's key.
func active(t *testing.T, l *line) bool {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	st, err := l.s.load(ctx, l.ref, want{})
	if err != nil {
		t.Fatal(err)
	}
	return st.active() != nil
}

// TestLine_grantForNobody undoes a grant whose calls were told something else
// while it was on its way, so that their spot is no longer in the line.
func TestLine_grantForNobody(t *testing.T) {
	l, sp, msg := lateGrant(t)
	l.mu.Lock()
	l.answer(sp, msg)
	l.mu.Unlock()
	for began := time.Now(); active(t, l); {
		if time.Since(began) > 20*time.Second {
			t.Fatal("the key is held, and nobody knows")
		}
	}
}

// TestLine_grantToldTwice leaves a grant alone that a call was told of, when it is
// found again.
func TestLine_grantToldTwice(t *testing.T) {
	l, sp, msg := lateGrant(t)
	l.mu.Lock()
	answer := l.join1(sp)
	l.answer(sp, msg)
	l.answer(sp, told{res: msg.res, share: &share{id: msg.share.id, rev: msg.share.rev}})
	l.mu.Unlock()
	if got := <-answer; got.res.Outcome != contract.OutcomeAcquired {
		t.Errorf("got %v", got.res.Outcome)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := l.s.Close(ctx); err != nil { // what it does in the background is over then
		t.Fatal(err)
	}
	again, err := Open(t.Context(), l.s.config)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = again.Close(ctx) }()
	l.s = again
	if !active(t, l) {
		t.Error("a grant that a call was told of was undone")
	}
}
