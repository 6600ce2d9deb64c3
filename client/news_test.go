package client_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"leased/client"
)

// TestSession_hears: where events are told, the end of a lease is known within a
// second, with what the server knows of it, and not with the next renewal.
func TestSession_hears(t *testing.T) {
	t.Parallel()
	for _, held := range []time.Duration{time.Millisecond, time.Minute} { // before the stream begins, and long after
		t.Run(held.String(), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				r.tells = true
				c := r.client()
				s := r.hold(c, ttl(10*time.Minute))
				other := r.hold(c, func(h *client.HoldRequest) { h.Key, h.TTL = exampleKey("b.example"), 10*time.Minute })
				time.Sleep(held)
				revoked := time.Now()
				if _, err := r.direct().Revoke(t.Context(), client.RevokeRequest{LeaseID: s.LeaseID(), Reason: "incident 7"}); err != nil {
					t.Fatal(err)
				}
				<-s.Context().Done()
				if took := time.Since(revoked); took > time.Second {
					t.Errorf("it took %v", took)
				}
				e, ok := errors.AsType[*client.Error](context.Cause(s.Context()))
				if !ok || !errors.Is(e, client.ErrRevoked) || e.Problem.Lease == nil || e.Problem.Lease.Reason != "incident 7" || e.Problem.Lease.EndedBy != "anonymous" {
					t.Errorf("the cause is %v, want revoked, by whom and why", context.Cause(s.Context()))
				}
				if n := r.requests("renew"); n > 1 {
					t.Errorf("%d renewals, want one as the stream begins", n)
				}
				if err := other.Err(); err != nil {
					t.Errorf("the other lease: %v", err)
				}
				if err := other.Release(); err != nil {
					t.Error(err)
				}
				if err := s.Release(); !errors.Is(err, client.ErrRevoked) {
					t.Errorf("release: %v", err)
				}
			})
		})
	}
}

// TestSession_hearsAgain: a stream that breaks is taken up again, and a client
// that may not watch asks once in a while and renews.
func TestSession_hearsAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		s := r.hold(r.client(), ttl(10*time.Minute))
		time.Sleep(10*time.Minute + time.Second)
		if n := r.requests("events"); n < 10 || n > 11 {
			t.Errorf("%d tries to watch in ten minutes without the right to, want one a minute", n)
		}
		r.mu.Lock()
		r.tells = true // the right was given
		r.mu.Unlock()
		time.Sleep(time.Minute)
		before := time.Now()
		if _, err := r.direct().Revoke(t.Context(), client.RevokeRequest{LeaseID: s.LeaseID(), Reason: "test"}); err != nil {
			t.Fatal(err)
		}
		<-s.Context().Done()
		if took := time.Since(before); took > time.Second {
			t.Errorf("it took %v", took)
		}
		if err := s.Release(); !errors.Is(err, client.ErrRevoked) {
			t.Errorf("release: %v", err)
		}
	})
}
