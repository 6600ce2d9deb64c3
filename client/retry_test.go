package client_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"leased/client"
	"leased/gateway/api"
)

func acquire(ctx context.Context, c *client.Client, change ...func(*client.AcquireRequest)) (*client.Answer, error) {
	r := client.AcquireRequest{
		Key:      api.Key{Tenant: "acme", Target: api.Target{Type: "name", ID: "x"}, Actor: "crawler"},
		Instance: "w-1", TTL: 30 * time.Second, RequestID: "req-1",
	}
	for _, f := range change {
		f(&r)
	}
	return c.Acquire(ctx, r)
}

// TestRetry_repeats: what may succeed when repeated is repeated, with the same
// request id and until it succeeds.
func TestRetry_repeats(t *testing.T) {
	tests := []struct {
		name string
		step step
	}{
		{"no connection", step{dialError: true}},
		{"connection cut", step{cut: true}},
		{"answer cut", step{status: 201, body: `{"outcome":`, cutBody: true}},
		{"answer that is not JSON", step{status: 201, body: "hello"}},
		{"unavailable", problem(api.CodeUnavailable)},
		{"closed", problem(api.CodeClosed)},
		{"timeout", problem(api.CodeTimeout)},
		{"outcome_unknown", problem(api.CodeOutcomeUnknown)},
		{"rate_limited", problem(api.CodeRateLimited)},
		{"a proxy's error", step{status: 502, body: "<html>", mediaType: "text/html"}},
		{"a proxy's page", step{status: 404, body: "<html>", mediaType: "text/html"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNetwork(tt.step, tt.step, granted())
				got, err := acquire(t.Context(), n.client(t))
				if err != nil {
					t.Fatalf("after two failures the grant must be returned, got %v", err)
				}
				if got.Lease.Token != 42 || got.RequestID != "req-1" {
					t.Errorf("got token %d under request id %q, want 42 under req-1", got.Lease.Token, got.RequestID)
				}
				seen := n.requests()
				if len(seen) != 3 {
					t.Fatalf("%d requests, want 3", len(seen))
				}
				for _, r := range seen {
					if r.id != "req-1" {
						t.Errorf("a request was sent with id %q, want the same each time", r.id)
					}
				}
				if sent := got.SentAt.Sub(n.start); sent != seen[2].at {
					t.Errorf("SentAt is %v after the start, want that of the answered request, %v", sent, seen[2].at)
				}
			})
		})
	}
}

// TestRetry_returns: every other answer is returned at once.
func TestRetry_returns(t *testing.T) {
	repeated := map[api.Code]bool{
		api.CodeUnavailable: true, api.CodeClosed: true, api.CodeTimeout: true, api.CodeOutcomeUnknown: true, api.CodeRateLimited: true,
	}
	for _, code := range api.Codes() {
		if repeated[code] {
			continue
		}
		t.Run(string(code), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNetwork(problem(code))
				_, err := acquire(t.Context(), n.client(t))
				if got := client.CodeOf(err); got != code {
					t.Errorf("got code %q, want %q", got, code)
				}
				if seen := n.requests(); len(seen) != 1 || seen[0].at != time.Since(n.start) {
					t.Errorf("%d requests and an answer after %v, want one and at once", len(seen), time.Since(n.start))
				}
			})
		})
	}
}

// TestRetry_verdict: what a call says at its end covers all of its attempts.
func TestRetry_verdict(t *testing.T) {
	tests := []struct {
		name   string
		script []step
		want   api.Code
	}{
		{"never connected", []step{{dialError: true}}, api.CodeUnavailable},
		{"always unavailable", []step{problem(api.CodeUnavailable)}, api.CodeUnavailable},
		{"cut, then nothing", []step{{cut: true}, {dialError: true}}, api.CodeOutcomeUnknown},
		{"cut, then unavailable", []step{{cut: true}, problem(api.CodeUnavailable)}, api.CodeOutcomeUnknown},
		{"unknown, then closed", []step{problem(api.CodeOutcomeUnknown), problem(api.CodeClosed)}, api.CodeOutcomeUnknown},
		{"cut, then a defect", []step{{cut: true}, problem(api.CodeInternal)}, api.CodeOutcomeUnknown},
		{"cut, then no credential", []step{{cut: true}, problem(api.CodeUnauthenticated)}, api.CodeOutcomeUnknown},
		{"cut, then an answer of the store", []step{{cut: true}, problem(api.CodeConflict)}, api.CodeConflict},
		{"cut, then a page", []step{{cut: true}, {status: 400, mediaType: "text/html"}}, api.CodeOutcomeUnknown},
		{"always a page", []step{{status: 404, mediaType: "text/html"}}, api.CodeInternal},
		{"server that swallows requests", []step{{hang: true}}, api.CodeOutcomeUnknown},
		{"server that is too slow to take it", []step{problem(api.CodeTimeout)}, api.CodeTimeout},
		{"a 503 that is not the gateway's", []step{{status: 503, mediaType: "text/html"}}, api.CodeOutcomeUnknown},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNetwork(tt.script...)
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
				defer cancel()
				_, err := acquire(ctx, n.client(t))
				var e *client.Error
				if !errors.As(err, &e) {
					t.Fatalf("got %v, want a *client.Error", err)
				}
				if e.Problem.Code != tt.want {
					t.Errorf("got %v, want code %s", err, tt.want)
				}
				if e.Problem.RequestID == "" {
					t.Errorf("got %v without a request id, which a repetition needs", err)
				}
				if after := time.Since(n.start); after > 20*time.Second {
					t.Errorf("answered after %v, want no later than the deadline", after)
				}
			})
		})
	}
}

// TestRetry_reads: a read applies nothing, so that a cut is no unknown outcome.
func TestRetry_reads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(step{cut: true})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := n.client(t).Get(ctx, "", "L"); !errors.Is(err, client.ErrUnavailable) {
			t.Errorf("got %v, want unavailable", err)
		}
	})
}

func TestRetry_cancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(step{hang: true})
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		_, err := acquire(ctx, n.client(t))
		if !errors.Is(err, context.Canceled) || !errors.Is(err, client.ErrOutcomeUnknown) {
			t.Errorf("got %v, want an unknown outcome caused by the cancellation", err)
		}
		if after := time.Since(n.start); after != time.Second {
			t.Errorf("answered after %v, want 1s", after)
		}
	})
}

func TestRetry_alreadyEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(granted())
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := acquire(ctx, n.client(t)); !errors.Is(err, client.ErrTimeout) {
			t.Errorf("got %v, want timeout: nothing was sent", err)
		}
		if seen := n.requests(); len(seen) != 0 {
			t.Errorf("%d requests were sent, want none", len(seen))
		}
	})
}

// TestRetry_for: the bound holds for what was not applied, and only for that.
func TestRetry_for(t *testing.T) {
	bounded := func(o *client.Options) { o.RetryFor = 3 * time.Second }
	tests := []struct {
		name        string
		step        step
		change      func(*client.Options)
		least, most time.Duration
	}{
		{"not applied", step{dialError: true}, bounded, time.Second, 3 * time.Second},
		{"may be applied", step{cut: true}, bounded, 17 * time.Second, 20 * time.Second},
		{"never", step{dialError: true}, func(o *client.Options) { o.RetryFor = -1 }, 0, 0},
		{"unbounded", step{dialError: true}, func(*client.Options) {}, 17 * time.Second, 20 * time.Second},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNetwork(tt.step)
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
				defer cancel()
				if _, err := acquire(ctx, n.client(t, tt.change)); err == nil {
					t.Fatal("got no error")
				}
				if after := time.Since(n.start); after < tt.least || after > tt.most {
					t.Errorf("gave up after %v, want %v to %v", after, tt.least, tt.most)
				}
			})
		})
	}
}

func TestRetry_retryAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(problem(api.CodeUnavailable, func(p *api.Problem) { p.RetryAfterMS = 1500 }), granted())
		if _, err := acquire(t.Context(), n.client(t)); err != nil {
			t.Fatal(err)
		}
		if at := n.requests()[1].at; at != 1500*time.Millisecond {
			t.Errorf("tried again after %v, want the 1.5s that the server asked for", at)
		}
	})
}

// TestRetry_servers: a server that does not serve is left, and not returned to
// while the next one serves.
func TestRetry_servers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(step{dialError: true}, granted())
		c := n.client(t, func(o *client.Options) { o.Servers = []string{"http://a:1", "http://b:2/"} })
		for range 3 {
			if _, err := acquire(t.Context(), c); err != nil {
				t.Fatal(err)
			}
		}
		var got []string
		for _, r := range n.requests() {
			got = append(got, r.server)
		}
		if diff := cmp.Diff([]string{"a:1", "b:2", "b:2", "b:2"}, got); diff != "" {
			t.Errorf("servers asked (-want +got):\n%s", diff)
		}
	})
}

// TestRetry_wait: a cut in the middle of a wait costs neither the place (the
// request id stays) nor time (the wait goes on and does not start again).
func TestRetry_wait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(step{cut: true, takes: 40 * time.Second}, granted())
		if _, err := acquire(t.Context(), n.client(t), func(r *client.AcquireRequest) { r.Wait = time.Minute }); err != nil {
			t.Fatalf("a call without a deadline has room for its wait, got %v", err)
		}
		seen := n.requests()
		if len(seen) != 2 || !strings.Contains(seen[0].body, `"wait_ms":60000`) || seen[0].id != seen[1].id {
			t.Fatalf("got %+v, want two requests of one id, the first with the whole wait", seen)
		}
		if !strings.Contains(seen[1].body, `"wait_ms":19`) {
			t.Errorf("second body is %s, want what was left of the wait, under 20 s", seen[1].body)
		}
	})
}

// TestRetry_timeoutParameter: the server is told of the deadline a little early,
// so that the end of the time is an answer.
func TestRetry_timeoutParameter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(granted())
		c := n.client(t)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := acquire(ctx, c); err != nil {
			t.Fatal(err)
		}
		if _, err := acquire(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		if _, err := acquire(t.Context(), c, func(r *client.AcquireRequest) { r.Wait = time.Minute }); err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, r := range n.requests() {
			got = append(got, r.query.Get("timeout"))
		}
		if diff := cmp.Diff([]string{"875ms", "4600ms", "64600ms"}, got); diff != "" {
			t.Errorf("timeout of each request (-want +got):\n%s", diff)
		}
	})
}

func TestRetry_ready(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(step{status: 503, body: `{"type":"urn:leased:problem:unavailable","status":503,"code":"unavailable","detail":"no",
			"request_id":"r","ready":false,"namespaces":[{"namespace":"default","ready":false,"detail":"no leader"}]}`})
		got, err := n.client(t).Ready(t.Context())
		if !errors.Is(err, client.ErrUnavailable) {
			t.Errorf("got %v, want unavailable", err)
		}
		if got == nil || len(got.Namespaces) != 1 || got.Namespaces[0].Detail != "no leader" {
			t.Errorf("got %+v, want the namespace and why", got)
		}
		if seen := n.requests(); len(seen) != 1 || len(seen[0].query) != 0 {
			t.Errorf("got %+v, want one request without parameters", seen)
		}
		n = newNetwork(step{dialError: true})
		if got, err := n.client(t).Ready(t.Context()); got != nil || !errors.Is(err, client.ErrUnavailable) {
			t.Errorf("got %+v, %v; want nothing but unavailable", got, err)
		}
	})
}

func TestError_text(t *testing.T) {
	n := newNetwork(problem(api.CodeInvalid, func(p *api.Problem) { p.Field = "ttl_ms" }))
	_, err := acquire(t.Context(), n.client(t))
	if got, want := err.Error(), "invalid: ttl_ms: as the server says (request from-server)"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(step{cut: true})
		_, err := acquire(t.Context(), n.client(t, func(o *client.Options) { o.Timeout = 60 * time.Millisecond }))
		if !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("got %v, want the cause to be found in it", err)
		}
	})
	if client.CodeOf(errors.New("other")) != "" || client.CodeOf(nil) != "" {
		t.Error("an error of another package has no code")
	}
}

func TestNew_refuses(t *testing.T) {
	server := func(s string) client.Options { return client.Options{Servers: []string{s}} }
	tests := map[string]client.Options{
		"no server":             {},
		"no URL":                server("127.0.0.1:8470"),
		"another scheme":        server("ftp://a"),
		"no host":               server("http://"),
		"password in the URL":   server("http://me:secret@a"),
		"query in the URL":      server("http://a?token=secret"),
		"negative timeout":      {Servers: []string{"http://a"}, Timeout: -1},
		"client with a timeout": {Servers: []string{"http://a"}, HTTPClient: &http.Client{Timeout: time.Second}},
		"token with a break":    {Servers: []string{"http://a"}, Token: "a\nb"},
	}
	for name, o := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := client.New(o)
			if err == nil {
				t.Fatal("got no error")
			}
			if strings.Contains(err.Error(), "secret") && name != "query in the URL" {
				t.Errorf("the error shows the password: %v", err)
			}
		})
	}
}

// TestClient_redirect: a token or a body never follows a redirect.
func TestClient_redirect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(step{status: http.StatusTemporaryRedirect, header: http.Header{"Location": {"http://elsewhere/"}}})
		c := n.client(t)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := acquire(ctx, c); !errors.Is(err, client.ErrInternal) {
			t.Errorf("got %v, want an internal error", err)
		}
		for _, r := range n.requests() {
			if r.server != "a:1" {
				t.Errorf("a request went to %s, want all to a:1", r.server)
			}
		}
	})
}

// TestRetry_silentServerShortDeadlines: calls whose own time is over before an
// attempt's is, move on from a server that swallows them too.
func TestRetry_silentServerShortDeadlines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(step{hang: true}, granted())
		c := n.client(t, func(o *client.Options) { o.Servers = []string{"http://a:1", "http://b:1"} })
		for range 2 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			_, _ = acquire(ctx, c) // the first cannot succeed
			cancel()
		}
		if seen := n.requests(); len(seen) != 2 || seen[0].server != "a:1" || seen[1].server != "b:1" {
			t.Errorf("the requests were %+v, want one to a and then one to b", seen)
		}
	})
}
