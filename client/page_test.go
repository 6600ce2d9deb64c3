package client_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"leased/client"
)

// pages is a network on which somebody else answers the requests of a kind, as an
// ingress does whose gateway is down.
type pages struct {
	*rig
	status int

	mu   sync.Mutex
	verb string // the last part of the path
	left int    // how many
}

// set has the next n requests of a kind answered.
func (p *pages) set(verb string, n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.verb, p.left = verb, n
}

func (p *pages) take(req *http.Request) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !strings.HasSuffix(req.URL.Path, "/"+p.verb) || p.left == 0 {
		return false
	}
	p.left--
	return true
}

func (p *pages) RoundTrip(req *http.Request) (*http.Response, error) {
	if !p.take(req) {
		return p.rig.RoundTrip(req)
	}
	header := http.Header{"Content-Type": {"text/html"}}
	return &http.Response{StatusCode: p.status, Header: header, Body: io.NopCloser(strings.NewReader("<html>")), Request: req}, nil
}

// TestSession_pages: what is not a gateway's answer says nothing of a lease. A
// resume, a renewal after a wait and a release get over it, and if it lasts, it is
// no reason to take the lease for lost, nor to give it back.
func TestSession_pages(t *testing.T) {
	t.Parallel()
	for status := 400; status < 500; status++ {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				network := &pages{rig: r, status: status}
				c := r.client(func(o *client.Options) { o.HTTPClient = &http.Client{Transport: network} })
				got, err := r.direct().Acquire(t.Context(), client.AcquireRequest{Key: exampleKey("a.example"), Instance: "w-1", TTL: 10 * time.Minute})
				if err != nil {
					t.Fatal(err)
				}
				before := client.ResumeRequest{LeaseID: got.Lease.LeaseID, Token: got.Lease.Token, Instance: "w-1"}
				network.set("renew", 1000)
				if _, err := c.Resume(t.Context(), before); err == nil || errors.Is(err, client.ErrLost) || r.active() != 1 {
					t.Errorf("resume, always refused: %v, %d leases; want an error that says nothing of the lease", err, r.active())
				}
				network.set("renew", 3)
				s, err := c.Resume(t.Context(), before)
				if err != nil {
					t.Fatal(err)
				}

				waited := make(chan *client.Session)
				go func() {
					waited <- r.hold(c, func(h *client.HoldRequest) { h.Instance, h.Wait = "w-2", 5*time.Minute })
				}()
				time.Sleep(2 * time.Minute)
				network.set("release", 3)
				if err := s.Release(); err != nil || r.requests("release") != 1 {
					t.Errorf("release: %v, %d reached the gateway, want 1", err, r.requests("release"))
				}
				s = <-waited
				network.set("release", 1000)
				if err := s.Release(); err == nil || errors.Is(err, client.ErrLost) {
					t.Errorf("release, always refused: %v, want an error that says nothing of the lease", err)
				}
			})
		})
	}
}

// TestHold_pageAfterWait: the renewal that shows that the grant is fresh is tried
// again, also when a gateway has a defect.
func TestHold_pageAfterWait(t *testing.T) {
	t.Parallel()
	for _, f := range []fault{answer404, answer500} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t)
			first := r.hold(r.client())
			r2 := &rig{t: t, backend: r.backend, gateway: r.gateway, seen: map[string]int{}}
			r2.fail(func(n int, _ *http.Request) fault {
				if n > 1 && n < 5 {
					return f
				}
				return pass
			})
			got := make(chan *client.Session)
			go func() {
				got <- r2.hold(r2.client(), func(h *client.HoldRequest) { h.Instance, h.Wait = "w-2", 5*time.Minute })
			}()
			time.Sleep(2 * time.Minute)
			if err := first.Release(); err != nil {
				t.Fatal(err)
			}
			if s := <-got; s != nil {
				if err := s.Release(); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// TestSession_pageOfOneServer: a server behind which there is no gateway is left for
// another one.
func TestSession_pageOfOneServer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		s := r.hold(r.client(func(o *client.Options) { o.Servers = []string{"http://a:1", "http://b:1"} }))
		r.fail(func(_ int, req *http.Request) fault {
			if req.URL.Host == "a:1" {
				return answer404
			}
			return pass
		})
		time.Sleep(time.Minute)
		if status, _ := s.Status(); status.State != client.Held {
			t.Errorf("it is %s: %v", status.State, status.Err)
		}
		if err := s.Release(); err != nil {
			t.Error(err)
		}
	})
}
