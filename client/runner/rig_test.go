package runner_test

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"leased/client"
	"leased/client/runner"
	"leased/gateway/api"
	"leased/test/proc"
)

// serve starts a server.
func serve(t *testing.T) *proc.Server {
	t.Helper()
	return proc.StartLeased(t, proc.Build(t, "leased/cmd/leased"), t.TempDir())
}

func connect(t *testing.T, url string) *client.Client {
	t.Helper()
	c, err := client.New(client.Options{Servers: []string{url}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// rig is a runner with a client, a folder and an instance of its own.
type rig struct {
	t *testing.T
	c *client.Client
	o runner.Options
	r *runner.Runner
	// ran has the error of the latest Run when that has ended.
	ran chan error

	mu      sync.Mutex
	events  []runner.Event
	changed chan struct{}
}

// newRig opens a runner; change may be nil. That a lease is over is told with its next
// renewal at the latest, and no machine is so busy that it runs out before.
func newRig(t *testing.T, url string, handler runner.Handler, change func(*runner.Options)) *rig {
	t.Helper()
	g := &rig{t: t, c: connect(t, url), changed: make(chan struct{})}
	g.o = runner.Options{
		Client: g.c, Dir: filepath.Join(t.TempDir(), "jobs"), Instance: t.Name(), TTL: 30 * time.Second,
		Handler: handler, Observe: g.observe,
	}
	if change != nil {
		change(&g.o)
	}
	g.open()
	return g
}

func (g *rig) open() {
	g.t.Helper()
	g.r = mustOpen(g.t, g.o)
	g.r.SetPause(10 * time.Millisecond)
}

func (g *rig) observe(e runner.Event) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.events = append(g.events, e)
	close(g.changed)
	g.changed = make(chan struct{})
}

// run runs the runner until the test calls what it returns, which is Run's error.
func (g *rig) run() (stop func() error) {
	ctx, cancel := context.WithCancel(g.t.Context())
	ran, r := make(chan error, 1), g.r
	g.ran = ran
	go func() { ran <- r.Run(ctx) }()
	stop = func() error {
		cancel()
		return g.ended()
	}
	g.t.Cleanup(func() {
		cancel()
		proc.Until(g.t, "Run has ended", proc.Patience, func() bool { return !r.IsRunning() })
	})
	return stop
}

// ended waits until the latest Run has ended, and returns its error.
func (g *rig) ended() error {
	g.t.Helper()
	select {
	case err := <-g.ran:
		return err
	case <-time.After(proc.Patience):
		g.t.Fatal("Run does not return")
		return nil
	}
}

// submit submits jobs, each with a key of its own.
func (g *rig) submit(ids ...string) {
	g.t.Helper()
	for _, id := range ids {
		if err := g.r.Submit(runner.Job{ID: id, Key: g.key(id)}); err != nil {
			g.t.Fatal(err)
		}
	}
}

func (g *rig) key(id string) api.Key { return key(g.t.Name() + "/" + id) }

// await waits for an event of a job, and returns it.
func (g *rig) await(kind runner.Kind, id string) runner.Event {
	g.t.Helper()
	limit := time.NewTimer(proc.Patience)
	defer limit.Stop()
	for {
		g.mu.Lock()
		at := slices.IndexFunc(g.events, func(e runner.Event) bool { return e.Kind == kind && e.Job.ID == id })
		all, changed := g.events, g.changed
		g.mu.Unlock()
		if at >= 0 {
			return all[at]
		}
		select {
		case <-changed:
		case <-limit.C:
			g.t.Fatalf("%q of job %q does not come; these did: %s", kind, id, printed(all))
		}
	}
}

func printed(events []runner.Event) string {
	var text string
	for _, e := range events {
		text += fmt.Sprintf("\n%s %s %s %v", e.Kind, e.Job.ID, e.LeaseID, e.Err)
	}
	return text
}

func (g *rig) count(kind runner.Kind) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	n := 0
	for _, e := range g.events {
		if e.Kind == kind {
			n++
		}
	}
	return n
}

// job returns what has become of a job.
func (g *rig) job(id string) runner.Status {
	g.t.Helper()
	for _, s := range g.r.Jobs() {
		if s.ID == id {
			return s
		}
	}
	g.t.Fatalf("there is no job %s", id)
	return runner.Status{}
}

// wantState waits until a job has a state, on disk too when Jobs shows it.
func (g *rig) wantState(id string, want runner.State) runner.Status {
	g.t.Helper()
	proc.Until(g.t, fmt.Sprintf("job %s is %s", id, want), proc.Patience, func() bool { return g.job(id).State == want })
	return g.job(id)
}

// wantHeld waits until the instance holds so many leases.
func (g *rig) wantHeld(want int) {
	g.t.Helper()
	proc.Succeeds(g.t, "the leases are right", proc.Patience, func() error { return held(g.t.Context(), g.c, g.o.Instance, want) })
}

func held(ctx context.Context, c *client.Client, instance string, want int) error {
	page, err := c.List(ctx, client.ListRequest{Instance: instance})
	if err == nil && len(page.Leases) != want {
		err = fmt.Errorf("%d leases are held, want %d", len(page.Leases), want)
	}
	return err
}
