package holding

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"leased/client"
	"leased/gateway/api"
	"leased/test/proc"
)

// TestMany: ten thousand leases that come and go leave no goroutine and no lease;
// and a client that is shut down while a backend is dead releases what it can,
// and tells of each lease that it could not.
func TestMany(t *testing.T) {
	t.Parallel()
	bin, valkey := proc.Build(t, "leased/cmd/leased"), proc.StartValkey(t)
	server := proc.StartLeasedOn(t, bin, t.TempDir(), fmt.Sprintf(
		"backends: {a: {type: raftkv}, b: {type: valkey, addresses: [%q]}}\nnamespaces: {default: {backend: a}, other: {backend: b}}\n", valkey.Addr))
	c, err := client.New(client.Options{Servers: []string{server.URL}})
	if err != nil {
		t.Fatal(err)
	}
	request := func(namespace, id string) client.HoldRequest {
		return client.HoldRequest{AcquireRequest: client.AcquireRequest{
			Namespace: namespace, Instance: "w-1", TTL: time.Minute,
			Key: api.Key{Tenant: "acme", Target: api.Target{Type: "name", ID: id}, Actor: "many"},
		}}
	}
	each(t, 100, 100, func(worker, i int) error {
		s, err := c.Hold(t.Context(), request([]string{"", "other"}[worker%2], fmt.Sprint(worker, " ", i%3)))
		if err != nil {
			return err
		}
		return errors.Join(s.Err(), s.Release())
	})
	for _, namespace := range []string{"default", "other"} {
		if page, err := c.List(t.Context(), client.ListRequest{Namespace: namespace}); err != nil || len(page.Leases) > 0 {
			t.Errorf("leases are left in %s: %v, %v", namespace, page, err)
		}
	}

	var (
		mu   sync.Mutex
		dead []string
	)
	each(t, 50, 4, func(worker, i int) error {
		if _, err := c.Hold(t.Context(), request("", fmt.Sprint(worker, " ", i))); err != nil {
			return err
		}
		s, err := c.Hold(t.Context(), request("other", fmt.Sprint(worker, " ", i)))
		if err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		dead = append(dead, s.LeaseID())
		return nil
	})
	valkey.Kill()
	// Longer than the live backend needs on a machine that does much at once.
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	err = c.Shutdown(ctx)
	for _, id := range dead {
		if err == nil || strings.Count(err.Error(), "release "+id) != 1 {
			t.Fatalf("the shutdown does not tell of lease %s:\n%v", id, err)
		}
	}
	if page, err := c.List(t.Context(), client.ListRequest{}); err != nil || len(page.Leases) > 0 {
		t.Errorf("leases are left on the live backend: %v, %v", page, err)
	}
	c.Close()
	stacks := make([]byte, 64<<20)
	// The holders of the tests beside this one are processes of their own. What the
	// client does not wait for, as calls that a dead backend answers late, ends soon.
	proc.Succeeds(t, "the goroutines of the client have ended", proc.Patience, func() error {
		if left := stacks[:runtime.Stack(stacks, true)]; bytes.Contains(left, []byte("leased/client.")) {
			return fmt.Errorf("these run:\n%s", left)
		}
		return nil
	})
}

// each calls f so many times by so many workers at once.
func each(t *testing.T, workers, times int, f func(worker, i int) error) {
	t.Helper()
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for i := range times {
				if err := f(w, i); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
}
