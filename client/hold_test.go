package client_test

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"leased/client"
	"leased/contract"
	"leased/gateway"
)

// TestSession_renews: a lease is kept for as long as its holder likes, with one
// request in each third of its TTL or a little less.
func TestSession_renews(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		s := r.hold(r.client())
		time.Sleep(10 * time.Minute)
		if err := s.Err(); err != nil || s.Context().Err() != nil {
			t.Fatalf("after ten minutes: %v, %v; want held", err, s.Context().Err())
		}
		if n := r.requests("renew"); n < 60 || n > 67 {
			t.Errorf("%d renewals in 60 thirds of the TTL, want 60 to 67", n)
		}
		status, _ := s.Status()
		if status.State != client.Held || status.Lease.Token != s.Token() || status.Lease.Renewals < 60 || time.Until(status.TrustedUntil) < 14*time.Second {
			t.Errorf("status is %+v, want held, renewed 60 times, trusted for more than 14 s", status)
		}
		if err := s.Release(); err != nil {
			t.Fatal(err)
		}
		if n := r.active(); n != 0 {
			t.Errorf("%d leases are left", n)
		}
		if cause := context.Cause(s.Context()); !errors.Is(cause, client.ErrSessionReleased) {
			t.Errorf("the context ended because of %v, want the release", cause)
		}
		before := r.requests("renew")
		time.Sleep(time.Minute)
		if n := r.requests("renew"); n != before {
			t.Errorf("%d renewals after the release", n-before)
		}
	})
}

// TestSession_blackHole is the promise: when nothing is heard of the server any
// more, the work is told to stop a margin before another could have the key.
func TestSession_blackHole(t *testing.T) {
	t.Parallel()
	for _, f := range []struct {
		name  string
		fault fault
	}{{"no connection", refuse}, {"request swallowed", swallowRequest}, {"unavailable", answer503}, {"defect", answer500}, {"proxy", answer404}} {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				sent := time.Now()
				s := r.hold(r.client(), ttl(3*time.Second))
				r.always(f.fault)
				for {
					status, changed := s.Status()
					if status.State == client.InDoubt {
						break
					}
					<-changed
				}
				if err := s.Err(); err != nil {
					t.Errorf("in doubt after %v: %v, want still trusted", time.Since(sent), err)
				}
				<-s.Context().Done()
				if took := time.Since(sent); took != 2500*time.Millisecond {
					t.Errorf("the context ended %v after the acquire was sent, want the TTL, 3s, without its sixth", took)
				}
				cause := context.Cause(s.Context())
				if lost, ok := errors.AsType[*client.LostError](cause); !ok || !errors.Is(cause, client.ErrInDoubt) || !errors.Is(cause, client.ErrLost) || lost.Token != s.Token() || lost.Err == nil {
					t.Errorf("the cause is %v, want lost in doubt, with what the renewal met", cause)
				}
				// The lease is over on the server 3 s after the grant and not before.
				second, err := r.direct().Acquire(t.Context(), client.AcquireRequest{Key: exampleKey("a.example"), Instance: "w-2", Wait: 5 * time.Second})
				if err != nil {
					t.Fatal(err)
				}
				if after := time.Since(sent); after < 3*time.Second {
					t.Errorf("another got the key %v after the acquire was sent", after)
				}
				if err := s.Release(); !errors.Is(err, client.ErrInDoubt) {
					t.Errorf("release: %v, want that the lease was lost in doubt", err)
				}
				if second.Lease.Token <= s.Token() {
					t.Errorf("the second token is %d after %d", second.Lease.Token, s.Token())
				}
			})
		})
	}
}

// TestSession_oneInThreeFails: that alone never ends the work.
func TestSession_oneInThreeFails(t *testing.T) {
	t.Parallel()
	for name, f := range map[string]fault{
		"no connection": refuse, "request swallowed": swallowRequest, "reply swallowed": swallowReply, "reply cut": cutReply,
		"unavailable": answer503, "defect": answer500, "proxy": answer404,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				s := r.hold(r.client(), ttl(3*time.Second))
				r.fail(func(n int, _ *http.Request) fault {
					if n%3 == 0 {
						return f
					}
					return pass
				})
				time.Sleep(time.Minute)
				if err := s.Err(); err != nil {
					t.Errorf("after a minute: %v", err)
				}
				if n := r.requests("renew"); n < 60 {
					t.Errorf("%d renewals in a minute, want 60 or more", n)
				}
				r.fail(nil)
				if err := s.Release(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// TestSession_serverEnds: what the server says of a lease's end ends the work at
// once, with that as the cause.
func TestSession_serverEnds(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		end  func(*rig, *client.Session) error
		want error
	}{
		{"revoked", func(r *rig, s *client.Session) error {
			_, err := r.direct().Revoke(context.Background(), client.RevokeRequest{LeaseID: s.LeaseID(), Reason: "incident 7"})
			return err
		}, client.ErrRevoked},
		{"released by a stranger", func(r *rig, s *client.Session) error {
			_, err := r.direct().Release(context.Background(), client.ReleaseRequest{LeaseID: s.LeaseID(), Token: s.Token(), Instance: "w-1"})
			return err
		}, client.ErrReleased},
		{"expired", func(r *rig, _ *client.Session) error { r.backend.Advance(time.Minute); return nil }, client.ErrExpired},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				s := r.hold(r.client())
				time.Sleep(time.Second)
				if err := tt.end(r, s); err != nil {
					t.Fatal(err)
				}
				<-s.Context().Done()
				if took := time.Since(r.began); took > 10*time.Second {
					t.Errorf("it took %v, want the next renewal, within 10 s", took)
				}
				cause := context.Cause(s.Context())
				if !errors.Is(cause, tt.want) || !errors.Is(cause, client.ErrLost) || errors.Is(cause, client.ErrInDoubt) {
					t.Errorf("the cause is %v, want %v and no doubt", cause, tt.want)
				}
				status, _ := s.Status()
				if status.State != client.Lost || !errors.Is(status.Err, tt.want) {
					t.Errorf("status is %+v, want lost, %v", status, tt.want)
				}
				releases := r.requests("release")
				if err := s.Release(); !errors.Is(err, tt.want) {
					t.Errorf("release: %v, want %v", err, tt.want)
				}
				if r.requests("release") != releases {
					t.Error("what the server had ended was released")
				}
			})
		})
	}
}

// TestSession_maxLifetime: a lease that no renewal can make longer ends a margin
// before, and costs no more requests than another.
func TestSession_maxLifetime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		s := r.hold(r.client(), func(h *client.HoldRequest) { h.MaxLifetime, h.Margin = 75*time.Second, 5*time.Second })
		<-s.Context().Done()
		if took := time.Since(r.began); took < 69*time.Second || took > 70*time.Second {
			t.Errorf("the work was told to stop after %v, want 5 s before the 75 s", took)
		}
		if n := r.requests("renew"); n > 10 {
			t.Errorf("%d renewals in 70 s, want about one in 10 s", n)
		}
		if err := s.Release(); !errors.Is(err, client.ErrLost) || !errors.Is(err, client.ErrMaxLifetime) {
			t.Errorf("release: %v, want lost, at the maximum lifetime", err)
		}
		if n := r.active(); n != 0 {
			t.Error("the lease is still active")
		}
	})
}

// TestHold_wait: the answer to a wait was asked for long before the grant, and
// the session is trusted all the same.
func TestHold_wait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		first := r.hold(r.client())
		got := make(chan *client.Session)
		go func() {
			got <- r.hold(r.client(), func(h *client.HoldRequest) { h.Instance, h.Wait = "w-2", 5*time.Minute })
		}()
		time.Sleep(2 * time.Minute)
		if err := first.Release(); err != nil {
			t.Fatal(err)
		}
		second := <-got
		status, _ := second.Status()
		if left := time.Until(status.TrustedUntil); left < 24*time.Second {
			t.Errorf("after the wait the lease is trusted for %v, want nearly 25 s", left)
		}
		if err := second.Release(); err != nil {
			t.Error(err)
		}
	})
}

// TestHold_waitThenSilence: a grant of which nobody can tell how old it is, is
// not worked with.
func TestHold_waitThenSilence(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		first := r.hold(r.client())
		r2 := &rig{t: t, backend: r.backend, gateway: r.gateway, seen: map[string]int{}}
		r2.fail(func(n int, _ *http.Request) fault {
			if n > 1 {
				return swallowRequest
			}
			return pass
		})
		got := make(chan error)
		go func() {
			_, err := r2.client().Hold(t.Context(), holdRequest(func(h *client.HoldRequest) { h.Instance, h.Wait = "w-2", 5*time.Minute }))
			got <- err
		}()
		time.Sleep(2 * time.Minute)
		if err := first.Release(); err != nil {
			t.Fatal(err)
		}
		if err := <-got; !errors.Is(err, client.ErrInDoubt) {
			t.Errorf("hold: %v, want in doubt", err)
		}
	})
}

// TestHold_givesBack: a lease that was granted in an answer which nobody read is
// not left to its TTL.
func TestHold_givesBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.fail(func(n int, _ *http.Request) fault {
			if n == 1 {
				return swallowReply
			}
			return pass
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := r.client().Hold(ctx, holdRequest())
		if !errors.Is(err, client.ErrOutcomeUnknown) {
			t.Errorf("hold: %v, want outcome_unknown", err)
		}
		if n := r.active(); n != 0 {
			t.Error("the lease was left to its TTL")
		}
		if took := time.Since(r.began); took > 3*time.Second {
			t.Errorf("it took %v, want at most the second and two more", took)
		}
	})
}

// TestHold_cancelledWait: whoever breaks off a wait leaves neither a place in the
// queue nor a lease.
func TestHold_cancelledWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		first := r.hold(r.client())
		ctx, cancel := context.WithCancel(t.Context())
		got := make(chan error)
		go func() {
			_, err := r.client().Hold(ctx, holdRequest(func(h *client.HoldRequest) { h.Instance, h.Wait = "w-2", 5*time.Minute }))
			got <- err
		}()
		time.Sleep(time.Minute)
		cancel()
		if err := <-got; !errors.Is(err, context.Canceled) {
			t.Errorf("hold: %v, want cancelled", err)
		}
		if err := first.Release(); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if n := r.active(); n != 0 {
			t.Errorf("%d leases are left", n)
		}
	})
}

// TestHold_refusals: what cannot be kept is refused, and nothing is left of it.
func TestHold_refusals(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(p *gateway.Policy) { p.TTL.Default = 9 * time.Second })
		c := r.client()
		first := r.hold(c)
		tests := []struct {
			name   string
			change func(*client.HoldRequest)
			want   error
		}{
			{"held", func(h *client.HoldRequest) { h.Instance = "w-2" }, client.ErrConflict},
			{"negative margin", func(h *client.HoldRequest) { h.Margin = -1 }, client.ErrInvalid},
			{"margin over a third of the TTL", func(h *client.HoldRequest) { h.Margin = 11 * time.Second }, client.ErrInvalid},
			{"margin over a third of the namespace's TTL", func(h *client.HoldRequest) {
				h.Key, h.TTL, h.Margin = exampleKey("b.example"), 0, 4*time.Second
			}, client.ErrInvalid},
		}
		for _, tt := range tests {
			if _, err := c.Hold(t.Context(), holdRequest(tt.change)); !errors.Is(err, tt.want) {
				t.Errorf("%s: %v, want %v", tt.name, err, tt.want)
			}
		}
		if n := r.active(); n != 1 {
			t.Errorf("%d leases are there, want the first", n)
		}
		if err := first.Release(); err != nil {
			t.Error(err)
		}
	})
}

// TestResume: a lease from before a restart is kept on, and what is not held any
// more is lost.
func TestResume(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		c := r.client()
		got, err := c.Acquire(t.Context(), client.AcquireRequest{Key: exampleKey("a.example"), Instance: "w-1", TTL: 30 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		resume := client.ResumeRequest{LeaseID: got.Lease.LeaseID, Token: got.Lease.Token, Instance: "w-1"}
		time.Sleep(20 * time.Second)
		s, err := c.Resume(t.Context(), resume)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if err := s.Err(); err != nil || s.Token() != got.Lease.Token {
			t.Errorf("a minute later: %v, token %d; want held, %d", err, s.Token(), got.Lease.Token)
		}
		if err := s.Release(); err != nil {
			t.Error(err)
		}
		if _, err := c.Resume(t.Context(), resume); !errors.Is(err, client.ErrLost) || !errors.Is(err, client.ErrReleased) {
			t.Errorf("resume of a released lease: %v, want lost", err)
		}
		resume.LeaseID = contract.NewLeaseID(contract.KeyID{1}, [16]byte{1}).String()
		if _, err := c.Resume(t.Context(), resume); !errors.Is(err, client.ErrLost) {
			t.Errorf("resume of what never was: %v, want lost", err)
		}
	})
}
