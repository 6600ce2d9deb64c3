package runner_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"leased/client"
	"leased/client/runner"
	"leased/gateway/api"
)

// TestClose_stuck: nobody else gets the folder while a handler has not returned,
// since it would start the job again, with the same token.
func TestClose_stuck(t *testing.T) {
	t.Parallel()
	started, let := make(chan *runner.Task), make(chan struct{})
	g := newRig(t, serve(t).URL, deaf(started, let), func(o *runner.Options) { o.StopWithin = 50 * time.Millisecond })
	stop := g.run()
	g.submit("a")
	<-started
	if err := g.r.Close(); err == nil {
		t.Error("it is closed while it runs")
	}
	wantStuck := func(what string, err error) {
		t.Helper()
		if stuck, ok := errors.AsType[*runner.StuckError](err); !ok || !slices.Equal(stuck.Jobs, []string{"a"}) {
			t.Errorf("%s: %v, want a StuckError with a", what, err)
		}
	}
	wantStuck("Run", stop())
	wantStuck("Close", g.r.Close())
	if _, err := runner.Open(g.o); !errors.Is(err, runner.ErrInUse) {
		t.Errorf("another opens the folder: %v, want ErrInUse", err)
	}
	close(let)
	g.await(runner.JobReturned, "a")
	if err := g.r.Close(); err != nil {
		t.Fatal(err)
	}
	if err := held(t.Context(), g.c, g.o.Instance, 0); err != nil {
		t.Errorf("after Close: %v", err)
	}
	if err := g.r.Run(t.Context()); err == nil {
		t.Error("a closed runner runs")
	}
	g.open()
	if s := g.job("a"); s.State != runner.Done || s.Runs != 1 {
		t.Errorf("after it was opened again: %+v, want done, in one run", s)
	}
}

// blockWrites makes every write of a job's file fail, until it is undone.
func (g *rig) blockWrites(id string) (undo func()) {
	g.t.Helper()
	// A folder in the place of the file that is written first.
	tmp := filepath.Join(g.o.Dir, runner.FileName(id)+".tmp")
	if err := os.Mkdir(tmp, 0o700); err != nil {
		g.t.Fatal(err)
	}
	return func() {
		g.t.Helper()
		if err := os.Remove(tmp); err != nil {
			g.t.Fatal(err)
		}
	}
}

// restart closes the runner and its client, and opens the folder with another one.
func (g *rig) restart(url string) {
	g.t.Helper()
	if err := errors.Join(g.r.Close(), g.c.Shutdown(g.t.Context())); err != nil {
		g.t.Fatal(err)
	}
	g.c = connect(g.t, url)
	g.o.Client = g.c
	g.open()
}

// TestRunner_cannotWriteEnd: a job whose end could not be written down is not lost
// by that: its lease is not released, and a restart goes on with it.
func TestRunner_cannotWriteEnd(t *testing.T) {
	t.Parallel()
	url := serve(t).URL
	for _, stopped := range []bool{false, true} {
		t.Run(fmt.Sprintf("stopped=%v", stopped), func(t *testing.T) {
			t.Parallel()
			started, let := make(chan *runner.Task), make(chan struct{})
			g := newRig(t, url, func(ctx context.Context, task *runner.Task) error {
				started <- task
				select {
				case <-let:
					return nil
				case <-ctx.Done():
					return context.Cause(ctx)
				}
			}, nil)
			stop := g.run()
			g.submit("a")
			first := <-started
			unblock := g.blockWrites("a")
			end := g.ended
			if stopped {
				end = stop
			} else {
				close(let)
			}
			if err := end(); !errors.Is(err, syscall.EISDIR) {
				t.Errorf("Run ends with %v, want the error of the file", err)
			}
			g.await(runner.ReleaseFailed, "a")
			unblock()
			g.restart(url)
			g.wantHeld(1)

			// The restart cannot write that it goes on.
			unblock = g.blockWrites("a")
			g.run()
			if err := g.ended(); !errors.Is(err, syscall.EISDIR) {
				t.Errorf("Run ends with %v, want the error of the file", err)
			}
			unblock()
			g.o.Handler = func(_ context.Context, task *runner.Task) error {
				if task.Token() != first.Token() || task.Runs() != 2 {
					t.Errorf("run %d has the token %d, want run 2 with %d", task.Runs(), task.Token(), first.Token())
				}
				return nil
			}
			g.restart(url)
			g.run()
			g.wantState("a", runner.Done)
			g.wantHeld(0)
		})
	}
}

// TestRunner_ownCause: what the caller ends Run with is no error of Run.
func TestRunner_ownCause(t *testing.T) {
	t.Parallel()
	started := make(chan *runner.Task)
	g := newRig(t, serve(t).URL, untilTold(started), nil)
	ctx, cancel := context.WithCancelCause(t.Context())
	ran := make(chan error)
	go func() { ran <- g.r.Run(ctx) }()
	g.submit("a")
	<-started
	cancel(errors.New("deployed anew"))
	if err := <-ran; err != nil {
		t.Errorf("Run ends with %v", err)
	}
}

// refusing is a network on which somebody refuses the first acquires.
type refusing struct {
	status     int
	kind, body string
	left       atomic.Int32
}

func (n *refusing) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/leases") && n.left.Add(-1) >= 0 {
		header := http.Header{"Content-Type": {n.kind}}
		return &http.Response{StatusCode: n.status, Header: header, Body: io.NopCloser(strings.NewReader(n.body)), Request: r}, nil
	}
	return http.DefaultTransport.RoundTrip(r)
}

// TestRunner_refusedForNow: a job is not failed by a proxy's page, nor by what the
// server's configuration refuses until somebody mends it.
func TestRunner_refusedForNow(t *testing.T) {
	t.Parallel()
	url := serve(t).URL
	page := func(status int) *refusing { return &refusing{status: status, kind: "text/html", body: "<html>"} }
	refused := func(code api.Code) *refusing {
		text := fmt.Sprintf(`{"code":%q,"status":%d,"title":"no"}`, code, code.Status())
		return &refusing{status: code.Status(), kind: api.ProblemMediaType, body: text}
	}
	for name, network := range map[string]*refusing{
		"page_400": page(400), "page_401": page(401), "page_403": page(403), "page_404": page(404),
		"denied": refused(api.CodeDenied), "unknown_namespace": refused(api.CodeUnknownNamespace),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			network.left.Store(3)
			c, err := client.New(client.Options{Servers: []string{url}, HTTPClient: &http.Client{Transport: network}})
			if err != nil {
				t.Fatal(err)
			}
			g := newRig(t, url, func(context.Context, *runner.Task) error { return nil }, func(o *runner.Options) { o.Client = c })
			g.run()
			g.submit("a")
			g.wantState("a", runner.Done)
			if n := g.count(runner.JobFailed); n != 0 || network.left.Load() >= 0 {
				t.Errorf("it failed %d times, and %d refusals are left", n, network.left.Load())
			}
		})
	}
}
