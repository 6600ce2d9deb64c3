package client_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"leased/client"
)

// TestShutdown_deadBackend: the leases of a namespace that answers are released
// though another's do not, all within the bound, and each failure is told.
func TestShutdown_deadBackend(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		c := r.client()
		var dead []*client.Session
		for i := range 100 {
			r.hold(c, func(h *client.HoldRequest) { h.Key = exampleKey(fmt.Sprintf("h%d.example", i)) })
			dead = append(dead, r.hold(c, func(h *client.HoldRequest) {
				h.Key, h.Namespace = exampleKey(fmt.Sprintf("h%d.example", i)), "other"
			}))
		}
		r.fail(func(_ int, req *http.Request) fault {
			if strings.Contains(req.URL.Path, "/other/") {
				return swallowRequest
			}
			return pass
		})
		// One that waits is ended.
		waiting := make(chan error)
		go func() {
			_, err := c.Hold(t.Context(), holdRequest(func(h *client.HoldRequest) { h.Key, h.Instance, h.Wait = exampleKey("h0.example"), "w-2", time.Minute }))
			waiting <- err
		}()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		before := time.Now()
		go func() {
			if err := <-waiting; !errors.Is(err, client.ErrShutdown) {
				t.Errorf("the wait ended with %v, want the shutdown", err)
			}
		}()
		err := c.Shutdown(ctx)
		if took := time.Since(before); took > 5*time.Second {
			t.Errorf("it took %v", took)
		}
		for _, s := range dead {
			if err == nil || !strings.Contains(err.Error(), s.LeaseID()) {
				t.Fatalf("the error does not name %s", s.LeaseID())
			}
			if cause := context.Cause(s.Context()); !errors.Is(cause, client.ErrShutdown) {
				t.Errorf("a context ended because of %v", cause)
			}
		}
		if n := strings.Count(err.Error(), "release "); n != len(dead) {
			t.Errorf("the error names %d leases, want %d", n, len(dead))
		}
		if n := r.active(); n != 0 {
			t.Errorf("%d leases of the live backend are left", n)
		}
		if _, err := c.Hold(t.Context(), holdRequest()); !errors.Is(err, client.ErrShutdown) {
			t.Errorf("hold after the shutdown: %v", err)
		}
	})
}

// TestShutdown_endsAtOnce: also the work of leases that cannot be released is told
// at once, nothing renews them, and the end comes though nobody bounds it.
func TestShutdown_endsAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		c := r.client()
		var all []*client.Session
		for i := range 200 {
			all = append(all, r.hold(c, func(h *client.HoldRequest) { h.Key, h.TTL = exampleKey(fmt.Sprintf("h%d.example", i)), 10*time.Minute }))
		}
		r.always(swallowRequest)
		before := time.Now()
		ended := make(chan error)
		go func() { ended <- c.Shutdown(context.Background()) }()
		synctest.Wait()
		for i, s := range all {
			if cause := context.Cause(s.Context()); time.Since(before) > 0 || !errors.Is(cause, client.ErrShutdown) {
				t.Fatalf("%v after the shutdown began the context of lease %d has ended with %v", time.Since(before), i, cause)
			}
		}
		renewals := r.requests("renew")
		err := <-ended
		if took := time.Since(before); took > client.DefaultTimeout {
			t.Errorf("it took %v, want no more than the timeout of a call", took)
		}
		if n := strings.Count(err.Error(), "release "); n != len(all) {
			t.Errorf("the error names %d leases, want %d", n, len(all))
		}
		if n := r.requests("renew"); n != renewals {
			t.Errorf("%d renewals after the shutdown began", n-renewals)
		}
	})
}

// slowRelease is a network over which each release takes a while.
type slowRelease struct{ *rig }

func (s slowRelease) RoundTrip(req *http.Request) (*http.Response, error) {
	if strings.HasSuffix(req.URL.Path, "/release") {
		time.Sleep(3 * time.Second)
	}
	return s.rig.RoundTrip(req)
}

// TestShutdown_slow: a backend that is slow and not dead is waited for.
func TestShutdown_slow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		c := r.client(func(o *client.Options) { o.HTTPClient = &http.Client{Transport: slowRelease{r}} })
		for i := range 100 { // 16 at a time: 21 s
			r.hold(c, func(h *client.HoldRequest) { h.Key, h.TTL = exampleKey(fmt.Sprintf("h%d.example", i)), 10*time.Minute })
		}
		if err := c.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
		if n := r.active(); n != 0 {
			t.Errorf("%d leases are left", n)
		}
	})
}
