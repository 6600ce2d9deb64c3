package etcd

import (
	"context"
	"fmt"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"leased/contract"
	"leased/test/proc"
)

// TestStore_queueLeftAlone has a queue that cannot be read. Who reads the key, or
// holds it, does not read its queue, however long that is.
func TestStore_queueLeftAlone(t *testing.T) {
	s := openInside(t)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	r := waitingAttempt(t).req
	res, err := s.Acquire(ctx, &r)
	if err != nil || res.Outcome != contract.OutcomeAcquired {
		t.Fatalf("acquire: got %v, error %v", res.Outcome, err)
	}
	l, ref := res.Lease, keyRef{r.Namespace, r.Key.ID()}
	if _, fail := s.pool.txn(ctx, nil, []clientv3.Op{clientv3.OpPut(s.names.place(ref, "00-0"), "garbage")}); fail != nil {
		t.Fatal(fail)
	}
	for what, call := range map[string]func() error{
		"acquire": func() error {
			other := r
			other.RequestID = "other"
			_, err := s.Acquire(ctx, &other)
			return err
		},
		"get the key": func() error {
			_, err := s.GetKey(ctx, &contract.GetKeyRequest{Namespace: r.Namespace, KeyID: l.KeyID})
			return err
		},
	} {
		if err := call(); contract.CodeOf(err) != contract.CodeInternal {
			t.Errorf("%s: got error %v, want internal: a place cannot be read", what, err)
		}
	}
	for _, forgotten := range []bool{false, true} {
		remember := func() {
			if forgotten {
				s.hints.clear()
			}
		}
		remember()
		if res, err := s.Check(ctx, &contract.CheckRequest{Namespace: r.Namespace, KeyID: l.KeyID, Token: l.Token}); err != nil || res.Outcome != contract.OutcomeCurrent {
			t.Errorf("check: got %v, error %v", res.Outcome, err)
		}
		if res, err := s.Get(ctx, &contract.GetRequest{Namespace: r.Namespace, LeaseID: l.ID}); err != nil || res.Outcome != contract.OutcomeFound {
			t.Errorf("get: got %v, error %v", res.Outcome, err)
		}
		if res, err := s.History(ctx, &contract.HistoryRequest{Namespace: r.Namespace, KeyID: l.KeyID}); err != nil || len(res.Events) != 1 {
			t.Errorf("history: got %d events, error %v, want 1", len(res.Events), err)
		}
		remember()
		if res, err := s.Renew(ctx, &contract.RenewRequest{
			Namespace: r.Namespace, RequestID: fmt.Sprint("renew-", forgotten), Owner: l.Owner, Instance: l.Instance, LeaseID: l.ID, Token: l.Token, Retention: r.Retention,
		}); err != nil || res.Outcome != contract.OutcomeRenewed {
			t.Errorf("renew: got %v, error %v", res.Outcome, err)
		}
		remember()
	}
	if res, err := s.Release(ctx, &contract.ReleaseRequest{
		Namespace: r.Namespace, RequestID: "end", Owner: l.Owner, Instance: l.Instance, LeaseID: l.ID, Token: l.Token, Retention: r.Retention,
	}); err != nil || res.Outcome != contract.OutcomeReleased {
		t.Errorf("release: got %v, error %v", res.Outcome, err)
	}
}

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

// TestStore_overMeanwhile ends a lease in etcd, as the end of its TTL or of its
// maximum lifetime does, under a gateway that remembers it as held: neither is it
// renewed, nor does its release count, also where somebody waits to be served.
func TestStore_overMeanwhile(t *testing.T) {
	s := openInside(t)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for _, c := range []struct {
		name, part string
		waits      bool
		call       func(l *contract.Lease, keep contract.Retention) (contract.Result, error)
	}{
		{"renewal after the lifetime", partLife, false, func(l *contract.Lease, keep contract.Retention) (contract.Result, error) {
			return s.Renew(ctx, &contract.RenewRequest{
				Namespace: l.Namespace, RequestID: "again", Owner: l.Owner, Instance: l.Instance, LeaseID: l.ID, Token: l.Token, Retention: keep,
			})
		}},
		{"release after the lifetime", partLife, false, release(ctx, s)},
		{"release after the TTL", partAlive, false, release(ctx, s)},
		{"release with a waiter after the TTL", partAlive, true, release(ctx, s)},
		{"release with a waiter after the lifetime", partLife, true, release(ctx, s)},
	} {
		r := waitingAttempt(t).req
		r.Key.Target.ID = c.name
		res, err := s.Acquire(ctx, &r)
		if err != nil || res.Outcome != contract.OutcomeAcquired {
			t.Fatalf("%s: acquire: got %v, error %v", c.name, res.Outcome, err)
		}
		l, ref := res.Lease, keyRef{r.Namespace, r.Key.ID()}
		if renewed, err := s.Renew(ctx, &contract.RenewRequest{
			Namespace: l.Namespace, RequestID: "renew", Owner: l.Owner, Instance: l.Instance, LeaseID: l.ID, Token: l.Token, Retention: r.Retention,
		}); err != nil || renewed.Outcome != contract.OutcomeRenewed {
			t.Fatalf("%s: renew: got %v, error %v", c.name, renewed.Outcome, err)
		}
		served := make(chan contract.Result, 1)
		if c.waits {
			other := r
			other.Owner = "bob"
			go func() {
				res, _ := s.Acquire(ctx, &other)
				served <- res
			}()
			proc.Until(t, "bob is known to wait", 10*time.Second, func() bool {
				s.linesMu.Lock()
				line := s.lines[ref]
				s.linesMu.Unlock()
				if line == nil {
					return false
				}
				line.mu.Lock()
				defer line.mu.Unlock()
				return line.known.st != nil && len(line.known.st.queue.places) == 1
			})
		}
		// It is noticed after sweepPause at the earliest.
		if _, fail := s.pool.txn(ctx, nil, []clientv3.Op{clientv3.OpDelete(s.names.key(ref.ns, ref.id) + c.part)}); fail != nil {
			t.Fatal(fail)
		}
		if res, err := c.call(l, r.Retention); err != nil || res.Outcome != contract.OutcomeEndedExpired {
			t.Errorf("%s: got %v, error %v, want expired", c.name, res.Outcome, err)
		}
		if c.waits {
			if got := <-served; got.Outcome != contract.OutcomeAcquired {
				t.Errorf("%s: the waiter got %v", c.name, got.Outcome)
			}
		}
	}
}

func release(ctx context.Context, s *Store) func(*contract.Lease, contract.Retention) (contract.Result, error) {
	return func(l *contract.Lease, keep contract.Retention) (contract.Result, error) {
		return s.Release(ctx, &contract.ReleaseRequest{
			Namespace: l.Namespace, RequestID: "end", Owner: l.Owner, Instance: l.Instance, LeaseID: l.ID, Token: l.Token, Retention: keep,
		})
	}
}
