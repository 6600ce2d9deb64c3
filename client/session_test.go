package client_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"leased/client"
	"leased/test/proc"
)

// TestElapsed: suspended time counts, and a wall clock that is set back does not
// make time pass slower.
func TestElapsed(t *testing.T) {
	from := time.Now()
	tests := []struct {
		name string
		to   time.Time
		want time.Duration
	}{
		{"both clocks", from.Add(5 * time.Second), 5 * time.Second},
		{"suspended for a minute", proc.AheadOnTheWall(from.Add(5*time.Second), 60), 65 * time.Second},
		{"wall clock set back", proc.AheadOnTheWall(from.Add(5*time.Second), -60), 5 * time.Second},
	}
	for _, tt := range tests {
		if got := client.Elapsed(from, tt.to); got != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}

// TestSession_suspended: after a machine was suspended for longer than the trust,
// Err says so at once and the context ends within a second, though timers went on
// where they stopped.
func TestSession_suspended(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		c := r.client()
		var slept atomic.Int64 // timers do not notice
		client.SetNow(c, func() time.Time { return time.Now().Add(time.Duration(slept.Load())) })
		s := r.hold(c)
		time.Sleep(time.Second)
		slept.Store(int64(20 * time.Second))
		if err := s.Err(); err != nil {
			t.Errorf("suspended for 20 s of 25: %v, want still held", err)
		}
		time.Sleep(5 * time.Minute)
		if err := s.Err(); err != nil {
			t.Errorf("and renewed since: %v, want still held", err)
		}
		other := r.hold(c, func(h *client.HoldRequest) { h.Key = exampleKey("b.example") })
		slept.Add(int64(28 * time.Second))
		if err := s.Err(); !errors.Is(err, client.ErrInDoubt) {
			t.Errorf("suspended for longer than the trust: %v, want lost in doubt", err)
		}
		before := time.Now()
		<-other.Context().Done()
		if took := time.Since(before); took > time.Second {
			t.Errorf("the context ended after %v, want within 1s", took)
		}
		for _, s := range []*client.Session{s, other} {
			if err := s.Release(); !errors.Is(err, client.ErrInDoubt) {
				t.Errorf("release: %v", err)
			}
		}
	})
}

// TestSession_bulk: a process renews its leases together, however they came
// about, as many with one request as a request takes.
func TestSession_bulk(t *testing.T) {
	t.Parallel()
	tests := []struct {
		leases, perInterval int
	}{{1, 1}, {100, 1}, {1001, 2}}
	for _, tt := range tests {
		t.Run(fmt.Sprint(tt.leases), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				c := r.client()
				sessions := make([]*client.Session, tt.leases)
				for i := range sessions {
					sessions[i] = r.hold(c, func(h *client.HoldRequest) { h.Key = exampleKey(fmt.Sprintf("h%d.example", i)) })
					if i%100 == 99 {
						time.Sleep(900 * time.Millisecond) // all over an interval
					}
				}
				time.Sleep(15 * time.Second) // until they are in step
				before := r.requests("renew")
				time.Sleep(30 * time.Second)
				if n := r.requests("renew") - before; n < 3*tt.perInterval || n > 4*tt.perInterval {
					t.Errorf("%d requests in three thirds of the TTL, want 3 to 4 times %d", n, tt.perInterval)
				}
				most := 0
				for _, body := range r.bodies {
					most = max(most, strings.Count(body, `"lease_id"`))
				}
				if want := min(tt.leases, 1000); most != want {
					t.Errorf("the largest request renews %d leases, want %d", most, want)
				}
				for _, s := range sessions {
					if err := s.Err(); err != nil {
						t.Fatal(err)
					}
				}
				if err := c.Shutdown(t.Context()); err != nil {
					t.Error(err)
				}
				if n := r.active(); n != 0 {
					t.Errorf("%d leases are left", n)
				}
			})
		})
	}
}

// TestSession_bulkMixed: leases of long TTLs do not go along with each request of
// those with a short one, and one that ends leaves the others alone.
func TestSession_bulkMixed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		c := r.client()
		long := r.hold(c, ttl(10*time.Minute))
		short := r.hold(c, func(h *client.HoldRequest) { h.Key, h.TTL = exampleKey("b.example"), 3*time.Second })
		gone := r.hold(c, func(h *client.HoldRequest) { h.Key, h.TTL = exampleKey("c.example"), 3*time.Second })
		if _, err := r.direct().Revoke(t.Context(), client.RevokeRequest{LeaseID: gone.LeaseID(), Reason: "test"}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Minute)
		if long.Err() != nil || short.Err() != nil || !errors.Is(gone.Err(), client.ErrRevoked) {
			t.Errorf("after ten minutes: %v, %v, %v; want the first two held and the last revoked", long.Err(), short.Err(), gone.Err())
		}
		n := 0
		for _, body := range r.bodies {
			if strings.Contains(body, long.LeaseID()) {
				n++
			}
		}
		if n < 3 || n > 4 {
			t.Errorf("the long lease was renewed %d times in three thirds of its TTL", n)
		}
		if err := errors.Join(long.Release(), short.Release()); err != nil {
			t.Error(err)
		}
		if err := gone.Release(); !errors.Is(err, client.ErrRevoked) {
			t.Error(err)
		}
	})
}

// TestSession_secondServer: with a TTL of three seconds too, a silent server
// leaves time for the next one.
func TestSession_secondServer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		s := r.hold(r.client(func(o *client.Options) { o.Servers = []string{"http://a:1", "http://b:1"} }), ttl(3*time.Second))
		dead := "a:1"
		r.fail(func(_ int, req *http.Request) fault {
			if req.URL.Host == dead {
				return swallowRequest
			}
			return pass
		})
		time.Sleep(time.Minute)
		if err := s.Err(); err != nil {
			t.Errorf("with one server silent: %v", err)
		}
		if err := s.Release(); err != nil {
			t.Error(err)
		}
	})
}

// TestRelease: it works when the work's context is dead, does it once, and stops
// the renewals first.
func TestRelease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		ctx, cancel := context.WithCancel(t.Context())
		s, err := r.client().Hold(ctx, holdRequest())
		if err != nil {
			t.Fatal(err)
		}
		cancel()
		<-s.Context().Done()
		time.Sleep(2 * time.Minute)
		if n := r.active(); n != 1 {
			t.Error("the lease went while the work could still be stopping")
		}
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				if err := s.Release(); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if n, left := r.requests("release"), r.active(); n != 1 || left != 0 {
			t.Errorf("%d requests and %d leases left, want 1 and none", n, left)
		}
		if err := s.Err(); !errors.Is(err, client.ErrSessionReleased) {
			t.Errorf("err after the release: %v", err)
		}
	})
}

// TestRelease_unreachable: what could not be released is told, within a bound.
func TestRelease_unreachable(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		s := r.hold(r.client(), ttl(time.Minute))
		r.always(swallowRequest)
		before := time.Now()
		if err := s.Release(); !errors.Is(err, client.ErrOutcomeUnknown) {
			t.Errorf("release: %v, want outcome_unknown", err)
		}
		if took := time.Since(before); took > client.DefaultTimeout {
			t.Errorf("it took %v", took)
		}
	})
}

// TestWithLease: however a job ends, its lease is released and nothing renews it.
func TestWithLease(t *testing.T) {
	t.Parallel()
	errJob := errors.New("the job's own")
	tests := []struct {
		name string
		job  func(context.Context, *client.Session) error
	}{
		{"returns", func(context.Context, *client.Session) error { return nil }},
		{"fails", func(context.Context, *client.Session) error { return errJob }},
		{"panics", func(context.Context, *client.Session) error { panic(errJob) }},
		{"exits its goroutine", func(context.Context, *client.Session) error { runtime.Goexit(); return nil }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				var err error
				var panicked any
				done := make(chan struct{})
				go func() {
					defer close(done)
					defer func() { panicked = recover() }()
					err = r.client().WithLease(t.Context(), holdRequest(), tt.job)
				}()
				<-done
				if n := r.active(); n != 0 {
					t.Error("the lease is left")
				}
				if want := tt.name == "fails"; errors.Is(err, errJob) != want {
					t.Errorf("the error is %v", err)
				}
				if want := tt.name == "panics"; (panicked != nil) != want {
					t.Errorf("the panic is %v", panicked)
				}
				before := r.requests("renew")
				time.Sleep(time.Minute)
				if n := r.requests("renew"); n != before {
					t.Error("renewals go on")
				}
			})
		})
	}
}

// TestWithLease_ignoredCancellation: a job that does not stop keeps nobody else
// from the key, and its caller learns of it.
func TestWithLease_ignoredCancellation(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		err := r.client().WithLease(t.Context(), holdRequest(ttl(3*time.Second)), func(_ context.Context, s *client.Session) error {
			if _, err := r.direct().Revoke(t.Context(), client.RevokeRequest{LeaseID: s.LeaseID(), Reason: "test"}); err != nil {
				return err
			}
			time.Sleep(time.Minute)
			if _, err := r.direct().Acquire(t.Context(), client.AcquireRequest{Key: exampleKey("a.example"), Instance: "w-2"}); err != nil {
				t.Errorf("acquire by another: %v", err)
			}
			return nil
		})
		lost, ok := errors.AsType[*client.LostError](err)
		if !ok || !errors.Is(err, client.ErrRevoked) {
			t.Fatalf("the error is %v, want lost, revoked", err)
		}
		if ago := time.Since(lost.At); ago < 58*time.Second {
			t.Errorf("lost %v ago, want when it was learned", ago)
		}
	})
}
