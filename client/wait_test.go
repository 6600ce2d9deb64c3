package client_test

import (
	"context"
	"errors"
	"math"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"leased/client"
	"leased/gateway/api"
)

// waits asks for a key with a wait.
func waits(d time.Duration) func(*client.AcquireRequest) {
	return func(r *client.AcquireRequest) { r.Wait = d }
}

// after is a step that comes after a time.
func (s step) after(d time.Duration) step { s.takes = d; return s }

// TestWait_restarts: servers that stop in order while a call waits do not end the
// wait, however short a time the client tries one that is not there.
func TestWait_restarts(t *testing.T) {
	const retryFor = 2 * time.Second
	closed, refused := problem(api.CodeClosed), step{dialError: true}
	long := step{status: granted().status, body: granted().body}
	away := make([]step, 0, 10)
	for range 6 { // for some ten seconds
		away = append(away, refused)
	}
	for _, tt := range []struct {
		name    string
		servers []string
		script  []step
	}{
		{"one after the other", []string{"http://a:1", "http://b:1", "http://c:1"},
			[]step{closed.after(10 * time.Second), closed.after(30 * time.Second), long.after(time.Minute)}},
		{"soon after the wait began", []string{"http://a:1", "http://b:1", "http://c:1"},
			[]step{closed.after(3 * time.Second), closed.after(3 * time.Second), closed.after(3 * time.Second), long}},
		{"one, for longer than a client tries", []string{"http://a:1"},
			append(append([]step{closed.after(10 * time.Second)}, away...), long)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNetwork(tt.script...)
				c := n.client(t, func(o *client.Options) { o.RetryFor, o.Servers = retryFor, tt.servers })
				if _, err := acquire(t.Context(), c, waits(5*time.Minute)); err != nil {
					t.Errorf("after %v and %d requests: %v", time.Since(n.start), len(n.requests()), err)
				}
			})
		})
	}
	t.Run("never taken on", func(t *testing.T) {
		for _, s := range []step{closed, refused, {dialHang: true}, problem(api.CodeUnavailable).after(time.Second)} {
			synctest.Test(t, func(t *testing.T) {
				n := newNetwork(s)
				c := n.client(t, func(o *client.Options) { o.RetryFor = retryFor })
				_, err := acquire(t.Context(), c, waits(5*time.Minute))
				if took := time.Since(n.start); err == nil || took > 2*client.DefaultAttemptTimeout+retryFor {
					t.Errorf("%+v: %v after %v", s, err, took)
				}
			})
		}
	})
}

// TestWait_noConnection: a machine that does not answer is left for the next one
// when the time of an attempt is over, and not that of the wait.
func TestWait_noConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(step{dialHang: true}, granted())
		c := n.client(t, func(o *client.Options) { o.Servers = []string{"http://a:1", "http://b:1"} })
		if _, err := acquire(t.Context(), c, waits(5*time.Minute)); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(n.start); took > client.DefaultAttemptTimeout+time.Second {
			t.Errorf("the next server was asked after %v", took)
		}
	})
}

// TestRelease_restart: a release outlasts a server that is away for longer than the
// client tries others: it has the time of a call.
func TestRelease_restart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		s := r.hold(r.client(func(o *client.Options) { o.RetryFor = 2 * time.Second }), ttl(10*time.Minute))
		began := time.Now()
		r.fail(func(int, *http.Request) fault {
			if time.Since(began) < 5*time.Second {
				return refuse
			}
			return pass
		})
		if err := s.Release(); err != nil {
			t.Error(err)
		}
	})
}

// TestWait_tooLong: the longest wait there is gets the server's answer.
func TestWait_tooLong(t *testing.T) {
	for _, wait := range []time.Duration{math.MaxInt64, math.MaxInt64 - time.Second} {
		for _, bound := range []time.Duration{0, time.Minute} {
			synctest.Test(t, func(t *testing.T) {
				n := newNetwork(problem(api.CodeInvalid, func(p *api.Problem) { p.Field = "wait_ms" }))
				ctx := t.Context()
				if bound > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, bound)
					defer cancel()
				}
				if _, err := acquire(ctx, n.client(t), waits(wait)); !errors.Is(err, client.ErrInvalid) {
					t.Errorf("%v within %v: %v, want what the server says", wait, bound, err)
				}
				if seen := n.requests(); len(seen) != 1 || !strings.Contains(seen[0].body, `"wait_ms":922337203`) {
					t.Errorf("the requests were %+v, want one, with the wait", seen)
				}
			})
		}
	}
}

// TestRetry_unsendable: what cannot be sent is the caller's mistake, and no server
// that is not there.
func TestRetry_unsendable(t *testing.T) {
	for _, id := range []string{"job\n17", " job", "job ", "j\x00", "j\x7f", "jöb"} {
		synctest.Test(t, func(t *testing.T) {
			n := newNetwork(granted())
			c := n.client(t)
			_, err := acquire(t.Context(), c, func(r *client.AcquireRequest) { r.RequestID = id })
			wantUnsendable(t, n, err, api.HeaderIdempotencyKey)
			_, err = loop(t.Context(), c, client.WatchRequest{After: id}, 1)
			wantUnsendable(t, n, err, api.HeaderLastEventID)
		})
	}
}

func wantUnsendable(t *testing.T, n *network, err error, field string) {
	t.Helper()
	e, ok := errors.AsType[*client.Error](err)
	if !ok || e.Problem.Code != api.CodeInvalid || e.Problem.Field != field || len(n.requests()) != 0 || time.Since(n.start) > 0 {
		t.Errorf("got %v after %v and %d requests, want at once that %s is invalid", err, time.Since(n.start), len(n.requests()), field)
	}
}

// wrapped is a transport as tracing makes one.
type wrapped struct{ http.RoundTripper }

// TestNew_wrappedTransport: a program may have put its own transport in the place of
// the default one.
func TestNew_wrappedTransport(t *testing.T) {
	made := client.TransportFrom(wrapped{http.DefaultTransport})
	if made.Protocols.HTTP2() || !made.Protocols.HTTP1() || made.MaxIdleConnsPerHost < 100 || made.Proxy == nil || made.DialContext == nil {
		t.Errorf("the transport is %+v", made)
	}
}
