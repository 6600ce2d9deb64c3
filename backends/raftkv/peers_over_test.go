package raftkv_test

import (
	"sync"
	"testing"
	"time"

	"leased/contract"
)

// A forwarded call whose wait ended before the leader came to it has a deadline that
// has not passed: it is told whether it has the key, and keeps its place if not.
func TestPeerHandler_overBeforeBegun(t *testing.T) {
	p := newPair(t)
	f := p.forwarder(t)
	held := acquired(t, f, ask("default", "r1", "held")) // the one that leads is ready
	r := ask("default", "r2", "free")
	r.Wait = time.Millisecond
	res, err := p.handler.AcquireOver(t.Context(), r)
	if err != nil || res.Outcome != contract.OutcomeAcquired {
		t.Errorf("a free key: got %+v, error %v, want it acquired", res, err)
	}
	early := ask("default", "r3", "held")
	early.Owner, early.Wait = "bob", time.Millisecond
	res, err = p.handler.AcquireOver(t.Context(), early)
	if err != nil || res.Outcome != contract.OutcomeConflict || res.Lease == nil || res.Lease.ID != held.ID {
		t.Errorf("a held key: got %+v, error %v, want a conflict with its holder", res, err)
	}
	// It comes before who asks later.
	turns := make(chan string, 2)
	var waiting sync.WaitGroup
	defer waiting.Wait()
	wait := func(r *contract.AcquireRequest) {
		r.Wait = time.Minute
		res, err := f.Acquire(t.Context(), r)
		if err != nil || res.Outcome != contract.OutcomeAcquired {
			t.Errorf("%s: got %+v, error %v, want the key in its turn", r.RequestID, res, err)
		}
		turns <- r.RequestID
		if _, err := f.Release(t.Context(), releaseOf(res)); err != nil {
			t.Error(err)
		}
	}
	later := ask("default", "r4", "held")
	later.Owner = "carol"
	waiting.Go(func() { wait(later) })
	p.waitQueue(t, f, held.KeyID, 1)
	waiting.Go(func() { wait(early) })
	p.waitQueue(t, f, held.KeyID, 2)
	if _, err := f.Release(t.Context(), releaseOf(contract.Result{Lease: held})); err != nil {
		t.Fatal(err)
	}
	if first := <-turns; first != early.RequestID {
		t.Errorf("%s was served first, want %s", first, early.RequestID)
	}
}

func releaseOf(res contract.Result) *contract.ReleaseRequest {
	l := res.Lease
	if l == nil {
		l = new(contract.Lease) // which says what is wrong
	}
	return &contract.ReleaseRequest{
		Namespace: "default", RequestID: "end-" + l.RequestID, Owner: l.Owner, Instance: l.Instance, LeaseID: l.ID, Token: l.Token,
		Retention: contract.Retention{Idempotency: 10 * time.Minute, History: time.Hour, HistoryPerKey: 16},
	}
}
