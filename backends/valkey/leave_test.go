package valkey_test

import (
	"context"
	"runtime"
	"sync"
	"testing"
	"time"

	"leased/backends/valkey"
	"leased/contract"
	"leased/test/proc"
)

// answer is what became of a call.
type answer struct {
	res contract.Result
	err error
}

// parked sends a waiting acquire through another gateway, and returns once it waits.
func (b *bench) parked(ctx context.Context, s *valkey.Store, r *contract.AcquireRequest) <-chan answer {
	b.Helper()
	before := b.health().Waiters
	ch := make(chan answer, 1)
	go func() { res, err := s.Acquire(ctx, r); ch <- answer{res, err} }()
	b.eventually("it waits", func() bool { return b.health().Waiters == before+1 })
	return ch
}

func (b *bench) holder(l *contract.Lease) *contract.Lease {
	b.Helper()
	k, err := b.store.GetKey(b.within(proc.Patience), &contract.GetKeyRequest{Namespace: l.Namespace, KeyID: l.KeyID})
	if err != nil {
		b.Fatalf("get key: %v", err)
	}
	return k.Lease
}

// TestLeave_handedOverUnheard ends a wait, in each way there is, after its turn came
// over a connection on which nothing of that is heard: the request holds the key, so
// nothing may be said that means it does not.
func TestLeave_handedOverUnheard(t *testing.T) {
	t.Parallel()
	const wait = 2500 * time.Millisecond // less than after which a connection is given up that is silent
	for name, c := range map[string]struct {
		outage proc.Traffic
		end    func(s *valkey.Store, cancel context.CancelFunc)
	}{
		"its wait ends, nobody listens":    {proc.Refuse, nil},
		"its wait ends, nothing passes":    {proc.SwallowRequests, nil},
		"it is cancelled, nobody listens":  {proc.Refuse, func(_ *valkey.Store, cancel context.CancelFunc) { cancel() }},
		"it is cancelled, nothing passes":  {proc.SwallowRequests, func(_ *valkey.Store, cancel context.CancelFunc) { cancel() }},
		"its store closes, nobody listens": {proc.Refuse, closeStore},
		"its store closes, nothing passes": {proc.SwallowRequests, closeStore},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			p := proc.StartProxy(t, b.server.Addr)
			s := open(t, valkey.Config{Addresses: []string{p.Address}})
			t.Cleanup(s.Kill)
			held := b.grant("key")
			r := b.acquireOf("key")
			r.Wait = proc.Patience
			if c.end == nil {
				r.Wait = wait
			}
			ctx, cancel := context.WithTimeout(t.Context(), 2*proc.Patience)
			defer cancel()
			waiter := b.parked(ctx, s, r)
			p.Set(t, proc.SwallowReplies)
			if res, err := b.store.Release(b.within(proc.Patience), releaseOf(held, b.ids.Add(1))); err != nil || res.Outcome != contract.OutcomeReleased {
				t.Fatalf("release: got %v, error %v", res.Outcome, err)
			}
			p.Set(t, c.outage)
			dead := b.believed()
			if c.outage == proc.Refuse {
				b.unreachable(s, held)
			}
			if c.end != nil {
				c.end(s, cancel)
			}
			got := <-waiter
			if contract.CodeOf(got.err) != contract.CodeOutcomeUnknown {
				t.Errorf("got %v, error %v, want outcome_unknown", got.res.Outcome, got.err)
			}
			if l := b.holder(held); l == nil || l.RequestID != r.RequestID {
				t.Errorf("the key is held by %+v, want the waiter: this test shows nothing", l)
			}
			dead()
			b.eventually("somebody undoes the grant", func() bool { return b.holder(held) == nil })
		})
	}
}

func closeStore(s *valkey.Store, _ context.CancelFunc) {
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		_ = s.Close(ctx) // nothing answers it
	}()
}

// TestLeave_refusedAtTheEnd ends waits while the server grants nothing, but takes
// goodbyes: each is told of the holder and counts no longer.
func TestLeave_refusedAtTheEnd(t *testing.T) {
	t.Parallel()
	for name, setting := range map[string][2]string{
		"out of memory": {"maxmemory", "1mb"},
		"wrong policy":  {"maxmemory-policy", "allkeys-lru"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			held := b.grant("key")
			r := b.acquireOf("key")
			r.Wait = 2 * checkEvery
			waiter := b.parked(b.within(proc.Patience), b.store, r)
			b.server.Do(t, "CONFIG", "SET", setting[0], setting[1])
			b.eventually("nothing is granted", func() bool {
				_, err := b.store.Acquire(b.within(proc.Patience), b.acquireOf("other"))
				return contract.CodeOf(err) == contract.CodeUnavailable
			})
			slowest := b.slowest()
			got := <-waiter
			if took := slowest(); contract.CodeOf(got.err) == contract.CodeOutcomeUnknown && took > contract.AnswerSlack/4 {
				// It has to answer before the goodbye is.
				t.Logf("the machine is busy: answers of the server take up to %v", took)
				b.eventually("nobody waits", func() bool { return b.health().Waiters == 0 })
				return
			}
			if got.err != nil || got.res.Outcome != contract.OutcomeConflict || got.res.Lease == nil || got.res.Lease.ID != held.ID {
				t.Errorf("got %v of %+v, error %v, want a conflict with the holder", got.res.Outcome, got.res.Lease, got.err)
			}
			if h := b.health(); h.Waiters != 0 {
				t.Errorf("%d wait, want none", h.Waiters)
			}
		})
	}
}

// checkEvery is how often a store looks at its server.
const checkEvery = 2 * time.Second

// TestLeave_costsNothingWhileTheServerHangs gives up many calls while the server
// hangs: nothing is kept for each of them, and they are away once it answers, those
// whose answers were never heard of included.
func TestLeave_costsNothingWhileTheServerHangs(t *testing.T) { // alone: it looks at all goroutines
	b := newBench(t)
	held := b.grant("key")
	before := runtime.NumGoroutine()
	stays := b.acquireOf("key")
	stays.Wait = proc.Patience
	waiter := b.parked(b.within(proc.Patience), b.store, stays)
	b.server.Pause(t)
	const rounds, each = 4, 300
	most := 0
	for range rounds {
		var all sync.WaitGroup
		for range each {
			all.Go(func() {
				r := b.acquireOf("key")
				r.Wait = 100 * time.Millisecond
				_, err := b.store.Acquire(b.within(time.Second), r)
				if contract.CodeOf(err) != contract.CodeOutcomeUnknown {
					t.Errorf("a wait that ends while the server hangs: got %v, want outcome_unknown", err)
				}
			})
		}
		all.Wait()
		most = max(most, runtime.NumGoroutine()-before)
	}
	// Each call's own try may run for seconds still. Nothing else is for a call.
	b.eventually("what was done for each call is over", func() bool { return runtime.NumGoroutine()-before < each/2 })
	t.Logf("at most %d goroutines for %d calls that had returned", most, rounds*each)
	b.server.Resume()
	b.eventually("they are away", func() bool { return b.health().Waiters == 1 })
	if res, err := b.store.Release(b.within(proc.Patience), releaseOf(held, b.ids.Add(1))); err != nil || res.Outcome != contract.OutcomeReleased {
		t.Fatalf("release: got %v, error %v", res.Outcome, err)
	}
	if got := <-waiter; got.err != nil || got.res.Outcome != contract.OutcomeAcquired {
		t.Errorf("who stayed: got %v, error %v, want acquired", got.res.Outcome, got.err)
	}
}

// TestLeave_placeOfNobody leaves a place that the server has this gateway standing at
// though it has no such call, as after a try that a connection's end left behind and
// the server ran later: it is counted as waiting no more, though its turn does not come.
func TestLeave_placeOfNobody(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.grant("key")
	stays := b.acquireOf("key")
	stays.Wait = 2 * proc.Patience
	b.parked(b.within(2*proc.Patience), b.store, stays)
	for range 3 {
		if err := b.store.Park(b.within(proc.Patience), b.acquireOf("key")); err != nil {
			t.Fatal(err)
		}
	}
	if n := b.health().Waiters; n != 4 {
		t.Fatalf("%d wait, want the call and the places of nobody", n)
	}
	b.eventually("only the call waits", func() bool { return b.health().Waiters == 1 })
}

// TestLeave_turnOfNobody serves a place that the server has this gateway standing at
// though it has no such call, as after a try that a connection's end left behind and
// the server ran later: the next is served as soon as a tick tells of it.
func TestLeave_turnOfNobody(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	held := b.grant("key")
	lost := b.acquireOf("key")
	if err := b.store.Park(b.within(proc.Patience), lost); err != nil {
		t.Fatal(err)
	}
	next := b.acquireOf("key")
	next.Wait = proc.Patience
	waiter := b.parked(b.within(proc.Patience), b.store, next)
	began := time.Now()
	if res, err := b.store.Release(b.within(proc.Patience), releaseOf(held, b.ids.Add(1))); err != nil || res.Outcome != contract.OutcomeReleased {
		t.Fatalf("release: got %v, error %v", res.Outcome, err)
	}
	got := <-waiter
	if took := time.Since(began); got.err != nil || got.res.Outcome != contract.OutcomeAcquired || took > 2*time.Second {
		t.Errorf("the next waiter: got %v, error %v, after %v, want acquired within 2 s", got.res.Outcome, got.err, took)
	}
}

// TestAcquire_noticesOwnTurn has a waiting request be the first to notice that the
// lease before it is over: the command that ends that lease grants it the key, and
// must say so, not that another has it.
func TestAcquire_noticesOwnTurn(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"its wait ends", "a copy asks without waiting"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			s := open(t, valkey.Config{Addresses: []string{b.server.Addr}})
			held := b.grant("key")
			r := b.acquireOf("key")
			r.Wait = 3 * time.Second // in which it is made to be over
			if name != "its wait ends" {
				r.Wait = proc.Patience
			}
			ctx, cancel := context.WithTimeout(t.Context(), 2*proc.Patience)
			defer cancel()
			waiter := b.parked(ctx, s, r)
			// It was over long ago, and no gateway will look before its TTL has passed.
			const script = `return redis.call('SETRANGE', KEYS[1], 74, struct.pack('>I8', 1))`
			b.server.Do(t, "EVAL", script, "1", b.store.Base("bench")+":k:"+held.KeyID.String())
			if name != "its wait ends" {
				again := *r
				again.Wait = 0
				if res, err := b.store.Acquire(ctx, &again); err != nil || res.Outcome != contract.OutcomeAcquired {
					t.Errorf("the copy: got %v, error %v, want the key", res.Outcome, err)
				}
			}
			if got := <-waiter; got.err != nil || got.res.Outcome != contract.OutcomeAcquired {
				t.Errorf("the call that waited: got %v, error %v, want the key", got.res.Outcome, got.err)
			}
		})
	}
}
