package client_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"leased/client"
	"leased/gateway/api"
)

// hold5 holds five leases.
func (r *rig) hold5(c *client.Client) []*client.Session {
	r.t.Helper()
	var all []*client.Session
	for i := range 5 {
		all = append(all, r.hold(c, func(h *client.HoldRequest) { h.Key = exampleKey(fmt.Sprintf("h%d.example", i)) }))
	}
	return all
}

func resume(s *client.Session) client.ResumeRequest {
	return client.ResumeRequest{LeaseID: s.LeaseID(), Token: s.Token(), Instance: "w-1"}
}

// TestSession_severalOnOneLease: a lease with several sessions is renewed for all
// of them and costs no other lease its renewal; whoever releases it ends the others
// before anybody else could have the key.
func TestSession_severalOnOneLease(t *testing.T) {
	t.Parallel()
	for name, second := range map[string]func(*rig, *client.Client, *client.Session) (*client.Session, error){
		"resumed": func(r *rig, c *client.Client, first *client.Session) (*client.Session, error) {
			return c.Resume(r.t.Context(), resume(first))
		},
		"resumed by the namespace's name": func(r *rig, c *client.Client, first *client.Session) (*client.Session, error) {
			named := resume(first)
			named.Namespace = client.DefaultNamespace
			return c.Resume(r.t.Context(), named)
		},
		"held by the same request": func(r *rig, c *client.Client, _ *client.Session) (*client.Session, error) {
			return c.Hold(r.t.Context(), holdRequest(func(h *client.HoldRequest) { h.RequestID = "r-1" }))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				c := r.client()
				others := r.hold5(c)
				first := r.hold(c, func(h *client.HoldRequest) { h.RequestID = "r-1" })
				second, err := second(r, c, first)
				if err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Minute)
				for i, s := range append(others, first, second) {
					if status, _ := s.Status(); status.State != client.Held || status.Lease.Renewals < 6 {
						t.Errorf("session %d is %s after %d renewals, %v; want held, and 6 or more", i, status.State, status.Lease.Renewals, status.Err)
					}
				}
				ended := time.Now()
				r.fail(func(_ int, req *http.Request) fault {
					if strings.HasSuffix(req.URL.Path, "/release") && second.Context().Err() == nil {
						t.Error("the lease is released, and the other session on it is not told")
					}
					return pass
				})
				if err := first.Release(); err != nil {
					t.Error(err)
				}
				<-second.Context().Done()
				if took := time.Since(ended); took > 0 || !errors.Is(context.Cause(second.Context()), client.ErrReleased) {
					t.Errorf("the other session ended %v later with %v, want at once, released", took, context.Cause(second.Context()))
				}
				releases := r.requests("release")
				if err := second.Release(); !errors.Is(err, client.ErrReleased) || r.requests("release") != releases {
					t.Errorf("release of what was released: %v", err)
				}
				if err := c.Shutdown(t.Context()); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// picky is a network in front of a gateway that takes time for large bulk
// renewals, or refuses those that name a certain lease.
type picky struct {
	*rig
	large  int // leases
	takes  time.Duration
	refuse string // a lease's id
}

func (p *picky) RoundTrip(req *http.Request) (*http.Response, error) {
	if !strings.HasSuffix(req.URL.Path, "/renew") {
		return p.rig.RoundTrip(req)
	}
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return nil, err
	}
	req.Body = io.NopCloser(bytes.NewReader(body))
	if p.refuse != "" && bytes.Contains(body, []byte(p.refuse)) {
		s := problem(api.CodeInvalid, func(p *api.Problem) { p.Field = "leases[7].lease_id" })
		header := http.Header{"Content-Type": {api.ProblemMediaType}}
		return &http.Response{StatusCode: s.status, Header: header, Body: io.NopCloser(strings.NewReader(s.body)), Request: req}, nil
	}
	if p.takes > 0 && bytes.Count(body, []byte(`"lease_id"`)) > p.large {
		select {
		case <-time.After(p.takes):
		case <-req.Context().Done():
			return nil, req.Context().Err()
		}
	}
	return p.rig.RoundTrip(req)
}

// TestSession_bulkTooLarge: a call that takes longer than its leases have, loses
// none of them: neither a short one among long ones nor many short ones.
func TestSession_bulkTooLarge(t *testing.T) {
	t.Parallel()
	for name, ttls := range map[string]func(i int) time.Duration{
		"one short among long ones": func(i int) time.Duration {
			if i == 0 {
				return 3 * time.Second
			}
			return time.Minute
		},
		"all short": func(int) time.Duration { return 3 * time.Second },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				c := r.client(func(o *client.Options) {
					o.HTTPClient = &http.Client{Transport: &picky{rig: r, large: 100, takes: 600 * time.Millisecond}}
				})
				var all []*client.Session
				for i := range 250 {
					all = append(all, r.hold(c, func(h *client.HoldRequest) { h.Key, h.TTL = exampleKey(fmt.Sprintf("h%d.example", i)), ttls(i) }))
				}
				time.Sleep(time.Minute)
				for i, s := range all {
					if err := s.Err(); err != nil {
						t.Fatalf("lease %d: %v", i, err)
					}
				}
				if err := c.Shutdown(t.Context()); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// TestSession_bulkRefusedForOne: a lease for which the server refuses the whole
// call is the only one that is lost.
func TestSession_bulkRefusedForOne(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		network := &picky{rig: r}
		c := r.client(func(o *client.Options) { o.HTTPClient = &http.Client{Transport: network} })
		bad := r.hold(c)
		network.refuse = bad.LeaseID()
		others := r.hold5(c)
		time.Sleep(time.Minute)
		for i, s := range others {
			if status, _ := s.Status(); status.State != client.Held {
				t.Errorf("lease %d is %s: %v", i, status.State, status.Err)
			}
		}
		if err := bad.Err(); !errors.Is(err, client.ErrInDoubt) || !errors.Is(err, client.ErrInvalid) {
			t.Errorf("the lease that cannot be renewed: %v, want in doubt, invalid", err)
		}
		_ = c.Shutdown(t.Context()) // it tells of the lost one, if it is still there
	})
}
