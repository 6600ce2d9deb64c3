package holding

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"leased/client"
	"leased/gateway/api"
	"leased/test/proc"
)

// TestRevoked: on every backend the work learns of a revocation within a second,
// however long it is until the next renewal. It runs alone: the bound is one that
// users were promised.
func TestRevoked(t *testing.T) {
	bin := proc.Build(t, "leased/cmd/leased")
	for _, b := range backends(t)[1:] {
		t.Run(b.name, func(t *testing.T) {
			server := proc.StartLeasedOn(t, bin, t.TempDir(), b.config)
			c, err := client.New(client.Options{Servers: []string{server.URL}})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			s, err := c.Hold(t.Context(), client.HoldRequest{AcquireRequest: client.AcquireRequest{
				Key: api.Key{Tenant: "acme", Target: api.Target{Type: "name", ID: "revoked"}, Actor: "a"}, Instance: "w-1", TTL: 10 * time.Minute,
			}})
			if err != nil {
				t.Fatal(err)
			}
			late := proc.WatchLateness(t)
			time.Sleep(time.Second) // a moment in which nothing is due
			before := time.Now()
			if _, err := c.Revoke(t.Context(), client.RevokeRequest{LeaseID: s.LeaseID(), Reason: fmt.Sprint("on ", b.name)}); err != nil {
				t.Fatal(err)
			}
			select {
			case <-s.Context().Done():
			case <-time.After(proc.Patience):
			}
			took := late.Took(before)
			if cause := context.Cause(s.Context()); !errors.Is(cause, client.ErrRevoked) || took > time.Second {
				t.Errorf("%v after the revocation: %v, want revoked within a second", took, cause)
			}
			t.Logf("the work learned of it %v after the revocation was sent", took)
			if err := s.Release(); !errors.Is(err, client.ErrRevoked) {
				t.Errorf("release: %v", err)
			}
		})
	}
}
