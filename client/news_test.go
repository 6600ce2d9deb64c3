package client_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
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

// cutter is a network that breaks streams, and makes none while it is cut.
type cutter struct {
	*rig
	mu      sync.Mutex
	cut     bool
	streams []io.Closer
}

func (c *cutter) RoundTrip(req *http.Request) (*http.Response, error) {
	if !strings.HasSuffix(req.URL.Path, "/events") {
		return c.rig.RoundTrip(req)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cut {
		return nil, errors.New("connection refused")
	}
	res, err := c.rig.RoundTrip(req)
	if err == nil {
		c.streams = append(c.streams, res.Body)
	}
	return res, err
}

func (c *cutter) set(cut bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cut = cut
	for _, stream := range c.streams {
		_ = stream.Close()
	}
	c.streams = nil
}

// TestSession_hearsOfGap: events that were lost while the stream was broken are
// asked for when it goes on.
func TestSession_hearsOfGap(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.tells = true
		network := &cutter{rig: r}
		c := r.client(func(o *client.Options) { o.HTTPClient = &http.Client{Transport: network} })
		s := r.hold(c, ttl(time.Hour))
		d := r.direct()
		noise, err := d.Acquire(t.Context(), client.AcquireRequest{Key: exampleKey("noise.example"), Instance: "w-9", TTL: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		network.set(true)
		synctest.Wait()
		if _, err := d.Revoke(t.Context(), client.RevokeRequest{LeaseID: s.LeaseID(), Reason: "incident"}); err != nil {
			t.Fatal(err)
		}
		for range 1500 { // more events than the store keeps
			if _, err := d.Renew(t.Context(), client.RenewRequest{LeaseID: noise.Lease.LeaseID, Token: noise.Lease.Token, Instance: "w-9"}); err != nil {
				t.Fatal(err)
			}
		}
		network.set(false)
		healed := time.Now()
		<-s.Context().Done()
		if took := time.Since(healed); took > 3*time.Second { // the pause before the stream is tried again, and a second
			t.Errorf("the work was told %v after the stream could go on", took)
		}
		if err := s.Release(); !errors.Is(err, client.ErrRevoked) {
			t.Errorf("release: %v", err)
		}
	})
}

// TestSession_gaps: of events that are lost again and again a client asks at most as
// often as it renews anyway; once that is over it asks at once again.
func TestSession_gaps(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		s := r.hold(r.client(), ttl(30*time.Second)) // renewed every 10 s
		renewals := func(d, lost time.Duration) int {
			before := r.requests("renew")
			for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(lost) {
				client.LostEvents(t.Context(), s)
			}
			return r.requests("renew") - before
		}
		// 60 that are due anyway, and as many questions; more at first, after 0, 1, 3 and 7 s.
		if n := renewals(10*time.Minute, 10*time.Millisecond); n < 60 || n > 130 {
			t.Errorf("%d renewals in ten minutes in which events were lost all the time, want at most 130", n)
		}
		time.Sleep(20*time.Second + time.Second)
		for range 3 {
			time.Sleep(25 * time.Second)
			synctest.Wait()
			before := r.requests("renew")
			client.LostEvents(t.Context(), s)
			time.Sleep(time.Millisecond)
			synctest.Wait()
			if n := r.requests("renew") - before; n != 1 {
				t.Errorf("%d renewals when events are lost once in a while, want one at once", n)
			}
		}
		if err := s.Release(); err != nil {
			t.Error(err)
		}
	})
}

// slowAcquire is a network that delays the answer to the second acquire.
type slowAcquire struct {
	*rig
	answered chan struct{}
	deliver  chan struct{}
}

func (s *slowAcquire) RoundTrip(req *http.Request) (*http.Response, error) {
	acquires := req.Method == http.MethodPost && strings.HasSuffix(req.URL.Path, "/leases")
	res, err := s.rig.RoundTrip(req)
	if acquires && s.requests("leases") == 2 {
		close(s.answered)
		<-s.deliver
	}
	return res, err
}

// TestSession_hearsOnItsWay: a lease whose end was told while its grant was on its way
// here is not worked under until the next renewal.
func TestSession_hearsOnItsWay(t *testing.T) {
	t.Parallel()
	for _, held := range []time.Duration{time.Millisecond, time.Minute} { // before the stream begins, and long after
		t.Run(held.String(), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				r.tells = true
				network := &slowAcquire{r, make(chan struct{}), make(chan struct{})}
				c := r.client(func(o *client.Options) { o.HTTPClient = &http.Client{Transport: network} })
				first := r.hold(c, ttl(10*time.Minute))
				time.Sleep(held)
				var second *client.Session
				began := make(chan struct{})
				go func() {
					defer close(began)
					second = r.hold(c, func(h *client.HoldRequest) { h.Key, h.TTL = exampleKey("b.example"), 10*time.Minute })
				}()
				<-network.answered
				d := r.direct()
				page, err := d.List(t.Context(), client.ListRequest{Target: exampleKey("b.example").Target})
				if err != nil || len(page.Leases) != 1 {
					t.Fatalf("the second lease: %v, %v", page, err)
				}
				if _, err := d.Revoke(t.Context(), client.RevokeRequest{LeaseID: page.Leases[0].LeaseID, Reason: "incident"}); err != nil {
					t.Fatal(err)
				}
				time.Sleep(500 * time.Millisecond) // the stream begins, or tells
				close(network.deliver)
				<-began
				delivered := time.Now()
				<-second.Context().Done()
				if took := time.Since(delivered); took > time.Second {
					t.Errorf("the work was told %v after it could begin", took)
				}
				if err := second.Release(); !errors.Is(err, client.ErrRevoked) {
					t.Errorf("release: %v", err)
				}
				if err := first.Release(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// slowRenewal is a network that delays the first bulk renewal: its answer is of
// before the delay.
type slowRenewal struct {
	*rig
	answered chan struct{}
	deliver  chan struct{}
}

func (s *slowRenewal) RoundTrip(req *http.Request) (*http.Response, error) {
	bulk := strings.HasSuffix(req.URL.Path, "/renew")
	res, err := s.rig.RoundTrip(req)
	if bulk && s.requests("renew") == 1 {
		close(s.answered)
		<-s.deliver
	}
	return res, err
}

// TestSession_asksBesideRenewal: a renewal that the server answered before the
// stream began does not stand for the question what happened until then.
func TestSession_asksBesideRenewal(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		network := &slowRenewal{r, make(chan struct{}), make(chan struct{})}
		s := r.hold(r.client(func(o *client.Options) { o.HTTPClient = &http.Client{Transport: network} }), ttl(10*time.Minute))
		<-network.answered // while nobody may watch
		if _, err := r.direct().Revoke(t.Context(), client.RevokeRequest{LeaseID: s.LeaseID(), Reason: "incident"}); err != nil {
			t.Fatal(err)
		}
		r.mu.Lock()
		r.tells = true
		r.mu.Unlock()
		time.Sleep(newsAgain + time.Second) // the stream begins
		close(network.deliver)
		delivered := time.Now()
		<-s.Context().Done()
		if took := time.Since(delivered); took > time.Second {
			t.Errorf("the work was told %v after the answer to the renewal", took)
		}
		if err := s.Release(); !errors.Is(err, client.ErrRevoked) {
			t.Errorf("release: %v", err)
		}
	})
}

// newsAgain is how often a client asks whether it may watch.
const newsAgain = time.Minute
