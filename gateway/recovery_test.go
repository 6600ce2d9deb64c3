package gateway

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"leased/contract"
)

// TestService_recover: what a namespace has is said once, when its store serves and
// has come to the end of what was overdue.
func TestService_recover(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		r := newRig(t, func(o *Options) { o.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
		var ready atomic.Bool
		r.store.health = func(context.Context, *contract.HealthRequest) (contract.Health, error) {
			return contract.Health{Ready: ready.Load(), ActiveLeases: 7, Waiters: 2}, nil
		}
		ctx, stop := context.WithCancel(t.Context())
		over := make(chan struct{})
		go func() { r.service.recover(ctx); close(over) }()
		defer func() { stop(); <-over }()
		after := func(d time.Duration, want string) {
			t.Helper()
			time.Sleep(d)
			synctest.Wait()
			if got := log.String(); want == "" && got != "" || !strings.Contains(got, want) {
				t.Errorf("after %v: got the log %q, want %q", d, got, want)
			}
		}
		expire := func(late time.Duration) { r.service.observe(contract.Event{Namespace: "default", Late: late}) }

		after(time.Minute, "")
		expire(time.Hour) // while the store serves nobody yet
		ready.Store(true)
		after(recoveryPause/2, "")
		for range 5 {
			after(recoveryPause, "")
			expire(2 * time.Hour)
		}
		expire(time.Second) // it ended while the gateway ran
		after(2*recoveryPause, `msg="namespace recovered" namespace=default active=7 waiting=2 expired_meanwhile=6`)
		<-over
		if n := strings.Count(log.String(), "\n"); n != 1 {
			t.Errorf("got %d lines, want one", n)
		}
	})
}

// TestService_recover_stopped: a server that stops does not wait for stores that
// serve nobody.
func TestService_recover_stopped(t *testing.T) {
	r := newRig(t)
	r.store.health = func(context.Context, *contract.HealthRequest) (contract.Health, error) { return contract.Health{}, nil }
	v := serveRig(t, r, ServerOptions{})
	v.stop()
	if err := v.ended(t); err != nil {
		t.Error(err)
	}
}
