package etcd

import (
	"context"
	"testing"
	"time"

	"leased/contract"
	"leased/test/proc"
)

// heldKey opens two stores on an etcd and has a key held there.
func heldKey(t *testing.T) (server *proc.Etcd, first, s *Store, holder *contract.Lease) {
	t.Helper()
	server = proc.StartEtcd(t, proc.EtcdOptions{})
	first, s = openAt(t, server), openAt(t, server)
	held := waitingAttempt(t).req
	held.RequestID, held.Owner, held.Wait = "held", "bob", 0
	res, err := first.Acquire(t.Context(), &held)
	if err != nil || res.Outcome != contract.OutcomeAcquired {
		t.Fatalf("got %v, error %v", res.Outcome, err)
	}
	return server, first, s, res.Lease
}

func openAt(t *testing.T, server *proc.Etcd) *Store {
	t.Helper()
	s, err := Open(t.Context(), Config{Endpoints: server.Endpoints()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_ = s.Close(ctx)
	})
	return s
}

// others counts who waits for the key.
func (s *Store) others(t *testing.T, a *attempt) int {
	t.Helper()
	st, err := s.load(t.Context(), a.ref, a.want())
	if err != nil {
		t.Fatal(err)
	}
	return len(st.queue.places)
}

type result struct {
	res contract.Result
	err error
}

func begin(call func() (contract.Result, error)) <-chan result {
	done := make(chan result, 1)
	go func() {
		res, err := call()
		done <- result{res, err}
	}()
	return done
}

// takes has another request, which has taken the attempt's id, come into the line
// after the attempt looked there, and before anybody can look at etcd for either.
func takes(t *testing.T, server *proc.Etcd, s *Store, a *attempt) *waiter {
	t.Helper()
	other := a.req
	other.JobID = "another job"
	w := &waiter{ch: make(chan told, 1), since: time.Now()}
	server.Pause(t, 0)
	if s.line(newAttempt(&other), w) == nil {
		t.Fatal("the store is closed")
	}
	return w
}

// TestStore_contested_replay: a repeated acquire is answered as the first time, though
// another request that has taken its id came into the line just before it.
func TestStore_contested_replay(t *testing.T) {
	server := proc.StartEtcd(t, proc.EtcdOptions{})
	s, a := openAt(t, server), waitingAttempt(t)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	held, err := s.Acquire(ctx, &a.req)
	if err != nil || held.Outcome != contract.OutcomeAcquired {
		t.Fatalf("got %v, error %v", held.Outcome, err)
	}
	copied := newAttempt(&a.req)
	w := takes(t, server, s, copied)
	res, err := s.wait(ctx, copied, nil)
	server.Resume(0)
	if got := <-begin(func() (contract.Result, error) { return s.contest(ctx, copied, res, err) }); got.err != nil || got.res.Outcome != contract.OutcomeAcquired || !got.res.Replayed || got.res.Lease.ID != held.Lease.ID {
		t.Errorf("the repetition: got %v, replayed %v, error %v, want the grant again", got.res.Outcome, got.res.Replayed, got.err)
	}
	if got := <-w.ch; got.err != nil || got.res.Outcome != contract.OutcomeRequestIDReused {
		t.Errorf("who took the id: got %v, error %v, want request_id_reused", got.res.Outcome, got.err)
	}
}

// TestStore_contested_place: so is one that waits already, at another gateway.
func TestStore_contested_place(t *testing.T) {
	server, first, s, holder := heldKey(t)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	a := waitingAttempt(t)
	waits := begin(func() (contract.Result, error) { return first.Acquire(ctx, &a.req) })
	proc.Until(t, "the call has its place", 10*time.Second, func() bool { return first.others(t, a) == 1 })
	copied := newAttempt(&a.req)
	seen, err := s.load(ctx, copied.ref, copied.want())
	if err != nil {
		t.Fatal(err)
	}
	w := takes(t, server, s, copied)
	res, err := s.wait(ctx, copied, seen)
	server.Resume(0)
	done := begin(func() (contract.Result, error) { return s.contest(ctx, copied, res, err) })
	if got := <-w.ch; got.err != nil || got.res.Outcome != contract.OutcomeRequestIDReused {
		t.Errorf("who took the id: got %v, error %v, want request_id_reused", got.res.Outcome, got.err)
	}
	if _, err := first.Release(ctx, &contract.ReleaseRequest{
		Namespace: "test", RequestID: "release", Owner: holder.Owner, Instance: holder.Instance, LeaseID: holder.ID, Token: holder.Token,
		Retention: a.req.Retention,
	}); err != nil {
		t.Fatal(err)
	}
	one, two := <-waits, <-done
	if one.err != nil || two.err != nil || one.res.Outcome != contract.OutcomeAcquired || two.res.Outcome != contract.OutcomeAcquired {
		t.Fatalf("got %v and %v, errors %v and %v, want the grant twice", one.res.Outcome, two.res.Outcome, one.err, two.err)
	}
	if one.res.Lease.ID != two.res.Lease.ID || one.res.Replayed == two.res.Replayed {
		t.Errorf("got %v, replayed %v, and %v, replayed %v", one.res.Lease.ID, one.res.Replayed, two.res.Lease.ID, two.res.Replayed)
	}
}
