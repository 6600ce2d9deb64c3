package raftkv_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"leased/contract"
	"leased/test/proc"
)

// losing is a transport that loses answers: the calls arrive.
type losing struct {
	http.RoundTripper

	lose  atomic.Int64 // so many of the next answers
	asked atomic.Int64
}

var errLostByTest = errors.New("lost by the test")

func (l *losing) RoundTrip(r *http.Request) (*http.Response, error) {
	l.asked.Add(1)
	res, err := l.RoundTripper.RoundTrip(r)
	if err == nil && l.lose.Add(-1) >= 0 {
		// The answers are behind the head: the call has not been carried out before.
		_, err = io.Copy(io.Discard, res.Body)
		return nil, errors.Join(errLostByTest, err, res.Body.Close())
	}
	return res, err
}

func newLosingPair(t *testing.T) (*pair, *losing) {
	t.Helper()
	p := newPair(t)
	l := &losing{RoundTripper: p.transport}
	p.peers.transport = l
	return p, l
}

// The answer of a write that was lost is unknown, and the request id finds it.
func TestForwarder_lostAnswer(t *testing.T) {
	p, l := newLosingPair(t)
	f := p.forwarder(t)
	l.lose.Store(1)
	r := ask("default", "r1", "key")
	if _, err := f.Acquire(t.Context(), r); contract.CodeOf(err) != contract.CodeOutcomeUnknown || !errors.Is(err, errLostByTest) {
		t.Fatalf("got error %v, want outcome_unknown", err)
	}
	if n := l.asked.Load(); n != 1 {
		t.Errorf("the leader was asked %d times, want once", n)
	}
	res, err := f.Acquire(t.Context(), r)
	if err != nil || res.Outcome != contract.OutcomeAcquired || !res.Replayed {
		t.Fatalf("the same request id: got %+v, error %v, want the grant, replayed", res, err)
	}

	// A read changes nothing and is asked again.
	l.lose.Store(2)
	got, err := f.Get(t.Context(), &contract.GetRequest{Namespace: "default", LeaseID: res.Lease.ID})
	if err != nil || got.Outcome != contract.OutcomeFound {
		t.Errorf("get: got %v, error %v", got.Outcome, err)
	}
	// So is an acquire that waits: it finds its place, or its grant.
	l.lose.Store(2)
	free := ask("default", "r2", "other")
	free.Wait = time.Minute
	if res, err := f.Acquire(t.Context(), free); err != nil || res.Outcome != contract.OutcomeAcquired {
		t.Errorf("waiting acquire: got %v, error %v", res.Outcome, err)
	}
}

// A wait survives that its leader is gone, with its place.
func TestForwarder_waitSurvivesLeader(t *testing.T) {
	p := newPair(t)
	f := p.forwarder(t)
	held := acquired(t, f, ask("default", "r1", "key"))
	wait := func(id string) <-chan contract.Result {
		r := ask("default", id, "key")
		r.Owner, r.Wait = id, time.Minute
		out := make(chan contract.Result, 1)
		go func() {
			res, err := f.Acquire(t.Context(), r)
			if err != nil {
				t.Errorf("%s: got error %v", id, err)
			}
			out <- res
		}()
		return out
	}
	first := wait("first")
	p.waitQueue(t, f, held.KeyID, 1)
	second := wait("second")
	p.waitQueue(t, f, held.KeyID, 2)

	p.peers.elect("")
	// While nobody leads, the calls that the leader held are given up there.
	leader := p.engines[0].Store()
	for length := 2; length > 0; {
		res, err := leader.GetKey(t.Context(), &contract.GetKeyRequest{Namespace: "default", KeyID: held.KeyID})
		if err != nil {
			t.Fatal(err)
		}
		length = res.Queue.Length
	}
	p.peers.elect("n1")
	p.waitQueue(t, f, held.KeyID, 2)
	for _, next := range []<-chan contract.Result{first, second} {
		if _, err := f.Release(t.Context(), &contract.ReleaseRequest{
			Namespace: "default", RequestID: held.RequestID, Owner: held.Owner, Instance: "i", LeaseID: held.ID, Token: held.Token,
			Retention: ask("", "", "key").Retention,
		}); err != nil {
			t.Fatal(err)
		}
		res := <-next
		if res.Outcome != contract.OutcomeAcquired {
			t.Fatalf("got %+v, want the grant, in the old order", res)
		}
		held = res.Lease
	}
	if err := leader.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

func (p *pair) waitQueue(t *testing.T, s contract.Store, key contract.KeyID, want int) {
	t.Helper()
	for length := -1; length != want; {
		res, err := s.GetKey(t.Context(), &contract.GetKeyRequest{Namespace: "default", KeyID: key})
		if err != nil {
			t.Fatal(err)
		}
		length = res.Queue.Length
	}
}

// Without a leader every call is answered in time, with what is certain, and
// leaves nothing behind.
func TestForwarder_noLeader(t *testing.T) {
	p := newPair(t)
	f := p.forwarder(t)
	acquired(t, f, ask("default", "r0", "before")) // all connections are there
	p.peers.elect("")
	for ready := true; ready; {
		ready = p.health(t, f, 10*time.Millisecond).Ready
	}
	late := proc.WatchLateness(t)
	before := runtime.NumGoroutine()
	const calls = 50
	type answer struct {
		err  error
		took time.Duration
	}
	answers := make(chan answer, calls)
	for range calls {
		go func() {
			ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			defer cancel()
			start := time.Now()
			_, err := f.Acquire(ctx, ask("default", "r1", "key"))
			answers <- answer{err, late.Took(start)}
		}()
	}
	for range calls {
		a := <-answers
		if e := new(contract.Error); !errors.As(a.err, &e) || e.Code != contract.CodeUnavailable || e.RetryAfter == 0 {
			t.Errorf("got error %v, want unavailable with advice", a.err)
		}
		if a.took > 300*time.Millisecond+contract.AnswerSlack {
			t.Errorf("answered after %v", a.took)
		}
	}
	proc.Until(t, "the goroutines of the calls have ended", proc.Patience, func() bool { return runtime.NumGoroutine() <= before })
	start := time.Now()
	if h := p.health(t, f, time.Minute); h.Ready || h.Detail == "" || time.Since(start) > 5*time.Second {
		t.Errorf("health: got %+v after %v, want not ready, soon", h, time.Since(start))
	}
	p.peers.elect("n1")
	res, err := f.Acquire(t.Context(), ask("default", "r1", "key"))
	if err != nil || res.Outcome != contract.OutcomeAcquired || res.Replayed {
		t.Errorf("once there is a leader: got %+v, error %v, want a fresh grant", res, err)
	}
	if h := p.health(t, f, time.Minute); !h.Ready || h.Leader != "n1" || h.Lag != 0 {
		t.Errorf("health: got %+v, want ready, led by n1", h)
	}
}

func (p *pair) health(t *testing.T, s contract.Store, timeout time.Duration) contract.Health {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	h, err := s.Health(ctx, &contract.HealthRequest{Namespace: "default"})
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// A node that is said to lead and does not answers so, and never forwards.
func TestPeerHandler_oneHop(t *testing.T) {
	p, l := newLosingPair(t)
	f := p.forwarder(t)
	// The follower takes n1 for the leader; n1 itself knows of another one.
	p.own.elect("n2")
	const timeout = time.Second
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	if _, err := f.Acquire(ctx, ask("default", "r1", "key")); contract.CodeOf(err) != contract.CodeUnavailable {
		t.Errorf("got error %v, want unavailable", err)
	}
	if n := l.asked.Load(); n < 2 || n > int64(timeout/(10*time.Millisecond)) {
		t.Errorf("the leader was asked %d times, want again and with pauses", n)
	}
}
