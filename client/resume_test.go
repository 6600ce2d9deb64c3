package client_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"leased/client"
)

// TestResume_nearLifetime: what is left of a lease at the end of its maximum lifetime
// can be used up to the margin, and no resume that fails gives the lease back.
func TestResume_nearLifetime(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name      string
		held      time.Duration // of a lifetime of 45 s and a TTL of 30 s
		margin    time.Duration
		want      error         // of the resume
		usedUntil time.Duration // of the lifetime
	}{
		{"margin", 25 * time.Second, 10 * time.Second, nil, 35 * time.Second},
		{"margin by default", 39 * time.Second, 0, nil, 44 * time.Second},
		{"all of it is margin", 36 * time.Second, 10 * time.Second, client.ErrLost, 0},
		{"margin too long for the TTL", 5 * time.Second, 11 * time.Second, client.ErrInvalid, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				c := r.client()
				got, err := c.Acquire(t.Context(), client.AcquireRequest{Key: exampleKey("a.example"), Instance: "w-1", TTL: 30 * time.Second, MaxLifetime: 45 * time.Second})
				if err != nil {
					t.Fatal(err)
				}
				time.Sleep(min(tt.held, 15*time.Second))
				if tt.held > 15*time.Second { // so that it lives to the lifetime's end
					if _, err := c.Renew(t.Context(), client.RenewRequest{LeaseID: got.Lease.LeaseID, Token: got.Lease.Token, Instance: "w-1"}); err != nil {
						t.Fatal(err)
					}
					time.Sleep(tt.held - 15*time.Second)
				}
				s, err := c.Resume(t.Context(), client.ResumeRequest{LeaseID: got.Lease.LeaseID, Token: got.Lease.Token, Instance: "w-1", Margin: tt.margin})
				if !errors.Is(err, tt.want) {
					t.Fatalf("resume: %v, want %v", err, tt.want)
				}
				if r.active() != 1 {
					t.Error("the resume has given the lease back")
				}
				if tt.want != nil {
					if errors.Is(tt.want, client.ErrLost) && !errors.Is(err, client.ErrMaxLifetime) {
						t.Errorf("resume: %v, want that it is the maximum lifetime", err)
					}
					return
				}
				<-s.Context().Done()
				if at := time.Since(r.began); at < tt.usedUntil-10*time.Millisecond || at > tt.usedUntil+time.Second {
					t.Errorf("the work was told to stop after %v, want %v", at, tt.usedUntil)
				}
				if cause := context.Cause(s.Context()); !errors.Is(cause, client.ErrMaxLifetime) {
					t.Errorf("the cause is %v", cause)
				}
				_ = s.Release() // it tells that it was lost
			})
		})
	}
}
