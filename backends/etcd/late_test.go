package etcd

import (
	"context"
	"testing"
	"time"

	"leased/contract"
	"leased/test/proc"
)

// hold keeps what a store sends from etcd until it is let go.
func (g *committer) hold() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.flying++
}

// letGo waits until something is kept from etcd, and for a time, and lets it go. It
// returns when.
func (g *committer) letGo(t *testing.T, after time.Duration) time.Time {
	t.Helper()
	proc.Until(t, "something is to be sent", 10*time.Second, func() bool {
		g.mu.Lock()
		defer g.mu.Unlock()
		return len(g.queue) == 1
	})
	<-time.After(after)
	now := time.Now()
	g.land()
	return now
}

// TestStore_wholeTTL has grants and renewals take longer than their etcd lease
// lasts beyond its TTL: the TTL counts from when they are stored, and what is told
// to be left of it does.
func TestStore_wholeTTL(t *testing.T) {
	t.Parallel()
	const ttl, slow = 2 * time.Second, 2200 * time.Millisecond
	type answer struct {
		res contract.Result
		err error
	}
	ask := func(call func() (contract.Result, error)) <-chan answer {
		ch := make(chan answer, 1)
		go func() {
			res, err := call()
			ch <- answer{res, err}
		}()
		return ch
	}
	for _, c := range []struct {
		name string
		// call lets s be slow to do something, through letGo, and returns what comes of it.
		call func(t *testing.T, ctx context.Context, s, other *Store, r *contract.AcquireRequest, letGo func()) <-chan answer
	}{
		{"grant", func(_ *testing.T, ctx context.Context, s, _ *Store, r *contract.AcquireRequest, letGo func()) <-chan answer {
			s.pool.commits.hold()
			got := ask(func() (contract.Result, error) { return s.Acquire(ctx, r) })
			letGo()
			return got
		}},
		{"grant to a waiter with a release", func(t *testing.T, ctx context.Context, s, _ *Store, r *contract.AcquireRequest, letGo func()) <-chan answer {
			t.Helper()
			held := heldBy(t, ctx, s, r)
			got := ask(func() (contract.Result, error) { return s.Acquire(ctx, r) })
			s.waitedFor(t, r)
			s.pool.commits.hold()
			go func() { _, _ = release(ctx, s)(held, r.Retention) }()
			letGo()
			return got
		}},
		{"grant to a waiter", func(t *testing.T, ctx context.Context, s, other *Store, r *contract.AcquireRequest, letGo func()) <-chan answer {
			t.Helper()
			held := heldBy(t, ctx, s, r)
			got := ask(func() (contract.Result, error) { return s.Acquire(ctx, r) })
			s.waitedFor(t, r)
			s.pool.commits.hold()
			if res, err := release(ctx, other)(held, r.Retention); err != nil || res.Outcome != contract.OutcomeReleased {
				t.Fatalf("release: got %v, error %v", res.Outcome, err)
			}
			letGo()
			return got
		}},
		{"renewal", func(t *testing.T, ctx context.Context, s, _ *Store, r *contract.AcquireRequest, letGo func()) <-chan answer {
			t.Helper()
			res, err := s.Acquire(ctx, r)
			if err != nil || res.Outcome != contract.OutcomeAcquired {
				t.Fatalf("acquire: got %v, error %v", res.Outcome, err)
			}
			l := res.Lease
			s.pool.commits.hold()
			got := ask(func() (contract.Result, error) {
				return s.Renew(ctx, &contract.RenewRequest{
					Namespace: l.Namespace, RequestID: "renew", Owner: l.Owner, Instance: l.Instance, LeaseID: l.ID, Token: l.Token, Retention: r.Retention,
				})
			})
			letGo()
			return got
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := openInside(t)
			other, err := Open(t.Context(), s.config)
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			defer func() { _ = other.Close(ctx) }()
			r := waitingAttempt(t).req
			r.TTL = ttl
			var stored time.Time // at the earliest
			got := <-c.call(t, ctx, s, other, &r, func() { stored = s.pool.commits.letGo(t, slow) })
			l := got.res.Lease
			if got.err != nil || l == nil || l.State != contract.StateActive || got.res.Replayed {
				t.Fatalf("got %v, replayed %v, error %v", got.res.Outcome, got.res.Replayed, got.err)
			}
			if left := time.Since(stored) + l.ExpiresIn; left < ttl || l.ExpiresIn > ttl {
				t.Errorf("%v are said to be left, %v after it was stored", l.ExpiresIn, time.Since(stored))
			}
			for {
				st, err := s.load(ctx, keyRef{r.Namespace, r.Key.ID()}, want{})
				if err != nil {
					t.Fatal(err)
				}
				if st.active() == nil || st.head.id != l.ID {
					break
				}
			}
			if lived := time.Since(stored); lived < ttl {
				t.Errorf("the lease was over %v after it was stored, want %v at least", lived, ttl)
			}
		})
	}
}

// heldBy grants the request's key to somebody else.
func heldBy(t *testing.T, ctx context.Context, s *Store, r *contract.AcquireRequest) *contract.Lease {
	t.Helper()
	other := *r
	other.Owner, other.TTL = "bob", time.Hour
	res, err := s.Acquire(ctx, &other)
	if err != nil || res.Outcome != contract.OutcomeAcquired {
		t.Fatalf("acquire: got %v, error %v", res.Outcome, err)
	}
	return res.Lease
}

// waitedFor waits until the store knows that one waits for the request's key.
func (s *Store) waitedFor(t *testing.T, r *contract.AcquireRequest) {
	t.Helper()
	proc.Until(t, "somebody is known to wait", 10*time.Second, func() bool {
		s.linesMu.Lock()
		l := s.lines[keyRef{r.Namespace, r.Key.ID()}]
		s.linesMu.Unlock()
		if l == nil {
			return false
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.known.st != nil && len(l.known.st.queue.places) == 1
	})
}
