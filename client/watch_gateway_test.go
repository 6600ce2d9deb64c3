package client_test

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"leased/client"
	"leased/contract/memstore"
	"leased/gateway"
	"leased/gateway/api"
)

// newGateways returns n real gateways over one backend and a client that knows
// them all.
func newGateways(t *testing.T, n int, o memstore.Options) (*client.Client, []*httptest.Server) {
	t.Helper()
	b := memstore.New(o)
	var servers []*httptest.Server
	var urls []string
	for range n {
		store := b.Open()
		g, err := gateway.New(gateway.Options{
			Namespaces: []gateway.Namespace{{Name: "default", Backend: "memory", Store: store, Policy: gateway.DefaultPolicy()}},
			Auth:       gateway.AuthNone(),
		})
		if err != nil {
			t.Fatal(err)
		}
		server := httptest.NewServer(g.Handler())
		servers, urls = append(servers, server), append(urls, server.URL)
		t.Cleanup(func() {
			if err := g.Close(context.Background()); err != nil {
				t.Error(err)
			}
			server.Close()
			if err := store.Close(context.Background()); err != nil {
				t.Error(err)
			}
		})
	}
	c, err := client.New(client.Options{Servers: urls})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c, servers
}

// TestWatch_gateways cuts every connection again and again while events come,
// and is told each of them once and in order.
func TestWatch_gateways(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	t.Run("cuts", func(t *testing.T) {
		c, servers := newGateways(t, 2, memstore.Options{})
		got, err := c.Acquire(t.Context(), client.AcquireRequest{Key: exampleKey("example.com"), Instance: "w"})
		if err != nil {
			t.Fatal(err)
		}
		const renewals = 200
		failed := make(chan error, 1)
		ahead := make(chan struct{}, 5) // more would be read before a cut is noticed
		renew := func() {
			for i := range renewals {
				select {
				case ahead <- struct{}{}:
				case <-t.Context().Done():
					return
				}
				_, err := c.Renew(context.Background(), client.RenewRequest{
					LeaseID: got.Lease.LeaseID, Token: got.Lease.Token, Instance: "w", RequestID: fmt.Sprint("renew-", i),
				})
				if err != nil {
					failed <- err
					return
				}
			}
			failed <- nil
		}
		began, breaks, n := false, 0, 0
		r := client.WatchRequest{
			LeaseID: got.Lease.LeaseID,
			OnBegin: func(string) {
				if !began {
					began = true
					go renew()
				}
			},
			OnBreak: func(error) { breaks++ },
		}
		for ev, err := range c.Watch(t.Context(), r) {
			if err != nil {
				t.Fatal(err)
			}
			if want := fmt.Sprint("renew-", n); ev.Event != "renewed" || ev.RequestID != want {
				t.Fatalf("event %d: got %s of %s, want renewed of %s", n, ev.Event, ev.RequestID, want)
			}
			<-ahead
			if n++; n == renewals {
				break
			}
			if n%20 == 0 {
				for _, s := range servers {
					s.CloseClientConnections()
				}
			}
		}
		if err := <-failed; err != nil {
			t.Error(err)
		}
		if breaks < 5 {
			t.Errorf("%d breaks, want the loop to have been cut about ten times", breaks)
		}
	})
}

// TestWatch_revoked: a revocation is told within a second.
func TestWatch_revoked(t *testing.T) {
	c, _ := newGateways(t, 1, memstore.Options{})
	got, err := c.Acquire(t.Context(), client.AcquireRequest{Key: exampleKey("example.com"), Instance: "w"})
	if err != nil {
		t.Fatal(err)
	}
	var sent time.Time
	r := client.WatchRequest{Owner: "anonymous", Instance: "w", OnBegin: func(string) {
		sent = time.Now()
		if _, err := c.Revoke(t.Context(), client.RevokeRequest{LeaseID: got.Lease.LeaseID, Reason: "incident"}); err != nil {
			t.Error(err)
		}
	}}
	for ev, err := range c.Watch(t.Context(), r) {
		if err != nil {
			t.Fatal(err)
		}
		if took := time.Since(sent); ev.Event != "revoked" || ev.LeaseID != got.Lease.LeaseID || ev.Reason != "incident" || took > time.Second {
			t.Errorf("got %+v after %v, want the lease revoked within 1 s", ev, took)
		}
		break
	}
}

// TestWatch_forgotten comes back for events that the store has dropped.
func TestWatch_forgotten(t *testing.T) {
	c, _ := newGateways(t, 1, memstore.Options{Ring: 4})
	got, err := c.Acquire(t.Context(), client.AcquireRequest{Key: exampleKey("example.com"), Instance: "w"})
	if err != nil {
		t.Fatal(err)
	}
	history, err := c.History(t.Context(), client.HistoryRequest{KeyID: got.Lease.KeyID})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 8 {
		r := client.RenewRequest{LeaseID: got.Lease.LeaseID, Token: got.Lease.Token, Instance: "w", RequestID: fmt.Sprint("renew-", i)}
		if _, err := c.Renew(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var told []string
	for ev, err := range c.Watch(ctx, client.WatchRequest{After: history.Events[0].ID}) {
		if err != nil {
			t.Fatal(err)
		}
		if ev.Event == api.EventGap {
			ev.RequestID = ev.Namespace
		}
		if told = append(told, ev.Event+" "+ev.RequestID); len(told) == 5 {
			cancel() // ends the loop, without an error
		}
	}
	want := []string{"gap default", "renewed renew-4", "renewed renew-5", "renewed renew-6", "renewed renew-7"}
	if diff := cmp.Diff(want, told); diff != "" {
		t.Errorf("told (-want +got):\n%s", diff)
	}
	for _, err := range c.Watch(t.Context(), client.WatchRequest{After: "nonsense"}) {
		if !errors.Is(err, client.ErrInvalid) {
			t.Errorf("after nonsense: %v, want invalid", err)
		}
	}
}
