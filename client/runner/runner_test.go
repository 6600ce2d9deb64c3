package runner_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"leased/client"
	"leased/client/runner"
)

// subject is a test and the server that it runs on.
type subject struct {
	t   *testing.T
	url string
}

func TestRunner(t *testing.T) {
	t.Parallel()
	server := serve(t)
	for _, c := range []struct {
		name string
		test func(*subject)
	}{
		{"done", testDone},
		{"handler_breaks", testHandlerBreaks},
		{"revoked", testRevoked},
		{"late_success", testLateSuccess},
		{"ignores_loss", testIgnoresLoss},
		{"ignores_stop", testIgnoresStop},
		{"interrupted", testInterrupted},
		{"held_by_another", testHeldByAnother},
		{"never_possible", testNeverPossible},
		{"foreign_leases", testForeignLeases},
		{"shut_down", testShutDown},
		{"cannot_write", testCannotWrite},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.test(&subject{t, server.URL})
		})
	}
}

func testDone(on *subject) {
	t, url := on.t, on.url
	var mu sync.Mutex
	tokens := map[string]uint64{}
	g := newRig(t, url, func(_ context.Context, task *runner.Task) error {
		mu.Lock()
		defer mu.Unlock()
		tokens[task.Job().ID] = task.Token()
		if f := task.Fence(); f.Token != task.Token() || !strings.HasPrefix(f.Key, "default/") || task.Err() != nil || task.Runs() != 1 {
			t.Errorf("the fence is %+v, the token %d, run %d, %v", f, task.Token(), task.Runs(), task.Err())
		}
		return task.Save([]byte("saved"))
	}, nil)
	ids := make([]string, 40)
	for i := range ids {
		ids[i] = fmt.Sprintf("job-%d", i)
	}
	g.submit(ids[:20]...) // before, and while it runs
	stop := g.run()
	g.submit(ids[20:]...)
	for _, id := range ids {
		g.wantState(id, runner.Done)
	}
	mu.Lock()
	defer mu.Unlock()
	for _, id := range ids {
		if s := g.job(id); s.Token == 0 || s.Token != tokens[id] || s.Runs != 1 || string(s.Payload) != "saved" || s.Reason != "" {
			t.Errorf("got %+v, want token %d", s, tokens[id])
		}
	}
	g.wantHeld(0)
	if err := stop(); err != nil {
		t.Errorf("Run ends with %v", err)
	}
	if err := g.r.Forget(ids[0]); err != nil {
		t.Error(err)
	}
	if n := len(g.r.Jobs()); n != 39 {
		t.Errorf("%d jobs are left, want 39", n)
	}
}

// testHandlerBreaks: a handler that breaks takes nothing with it.
func testHandlerBreaks(on *subject) {
	t, url := on.t, on.url
	g := newRig(t, url, func(_ context.Context, task *runner.Task) error {
		switch task.Job().ID {
		case "panic":
			panic("this is wrong")
		case "exit":
			runtime.Goexit()
		case "error":
			return errors.New("no such host")
		}
		return nil
	}, nil)
	g.run()
	g.submit("panic", "exit", "error", "fine")
	for id, want := range map[string]string{"panic": "the handler panicked: this is wrong", "exit": "the handler ended its goroutine", "error": "no such host"} {
		if got := g.wantState(id, runner.Failed).Reason; got != want {
			t.Errorf("%s: the reason is %q, want %q", id, got, want)
		}
	}
	g.wantState("fine", runner.Done)
	if stack := string(g.await(runner.JobFailed, "panic").Stack); !strings.Contains(stack, "testHandlerBreaks") {
		t.Errorf("the stack of the panic is %q", stack)
	}
	g.wantHeld(0)
}

// untilTold is a handler that says that it runs, and returns what ended it.
func untilTold(started chan<- *runner.Task) runner.Handler {
	return func(ctx context.Context, task *runner.Task) error {
		started <- task
		<-ctx.Done()
		return context.Cause(ctx)
	}
}

func (g *rig) revoke(task *runner.Task) {
	g.t.Helper()
	s := g.job(task.Job().ID)
	if _, err := g.c.Revoke(g.t.Context(), client.RevokeRequest{LeaseID: s.LeaseID, Reason: "a test"}); err != nil {
		g.t.Fatal(err)
	}
}

// testRevoked: a job whose lease is gone is told, marked, and not started again.
func testRevoked(on *subject) {
	t, url := on.t, on.url
	started := make(chan *runner.Task)
	g := newRig(t, url, untilTold(started), nil)
	stop := g.run()
	g.submit("a")
	task := <-started
	g.revoke(task)
	s := g.wantState("a", runner.Lost)
	if err := g.await(runner.JobLost, "a").Err; !errors.Is(err, client.ErrRevoked) || !strings.Contains(s.Reason, "revoked") {
		t.Errorf("it was lost with %v, for %q", err, s.Reason)
	}
	if task.Err() == nil || task.Save(nil) == nil {
		t.Error("a lost task is trusted, or saves")
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
	stop = g.run()
	g.submit("b") // its turn comes after a's, if that had one
	<-started
	if err := stop(); err != nil {
		t.Error(err)
	}
	if s := g.job("a"); s.State != runner.Lost || s.Runs != 1 {
		t.Errorf("after another Run: %+v", s)
	}
}

// testLateSuccess: a handler that calls itself done after the lease was lost is
// not believed.
func testLateSuccess(on *subject) {
	t, url := on.t, on.url
	started := make(chan *runner.Task)
	g := newRig(t, url, func(ctx context.Context, task *runner.Task) error {
		started <- task
		<-ctx.Done()
		return nil
	}, nil)
	g.run()
	g.submit("a")
	g.revoke(<-started)
	if err := g.await(runner.JobLost, "a").Err; !errors.Is(err, client.ErrRevoked) {
		t.Errorf("it was lost with %v", err)
	}
	if s := g.job("a"); s.State != runner.Lost {
		t.Errorf("got %+v, want it lost", s)
	}
}

// deaf is a handler that runs until it is let go, whatever its context says.
func deaf(started chan<- *runner.Task, let <-chan struct{}) runner.Handler {
	return func(_ context.Context, task *runner.Task) error {
		started <- task
		<-let
		return nil
	}
}

// testIgnoresLoss: a handler that works on without its lease is told of, also on
// disk, and the job is lost also when the handler calls itself done.
func testIgnoresLoss(on *subject) {
	t, url := on.t, on.url
	started, let := make(chan *runner.Task), make(chan struct{})
	g := newRig(t, url, deaf(started, let), func(o *runner.Options) { o.StopWithin = 50 * time.Millisecond })
	stop := g.run()
	g.submit("a")
	g.revoke(<-started)
	if err := g.await(runner.JobStuck, "a").Err; !errors.Is(err, client.ErrRevoked) {
		t.Errorf("it is stuck since %v", err)
	}
	if s := g.job("a"); s.State != runner.Lost || !strings.Contains(s.Reason, "the handler still runs") {
		t.Errorf("while it is stuck: %+v", s)
	}
	if err := g.r.Forget("a"); !errors.Is(err, runner.ErrBusy) {
		t.Errorf("a job that runs is forgotten: %v", err)
	}
	stuck, _ := errors.AsType[*runner.StuckError](stop())
	if stuck == nil || !slices.Equal(stuck.Jobs, []string{"a"}) {
		t.Errorf("Run ends with %v, want a StuckError with a", stuck)
	}
	close(let)
	g.await(runner.JobReturned, "a")
	if s := g.job("a"); s.State != runner.Lost || g.count(runner.JobLost) != 1 {
		t.Errorf("after it returned: %+v, told %d times", s, g.count(runner.JobLost))
	}
	if err := g.run()(); err != nil {
		t.Errorf("nothing is stuck any more, and Run ends with %v", err)
	}
}

// testIgnoresStop: a handler that does not stop with the runner keeps its lease
// until it has returned.
func testIgnoresStop(on *subject) {
	t, url := on.t, on.url
	started, let := make(chan *runner.Task), make(chan struct{})
	g := newRig(t, url, deaf(started, let), func(o *runner.Options) { o.StopWithin = 50 * time.Millisecond })
	stop := g.run()
	g.submit("a")
	<-started
	stuck, _ := errors.AsType[*runner.StuckError](stop())
	if stuck == nil || !slices.Equal(stuck.Jobs, []string{"a"}) {
		t.Errorf("Run ends with %v, want a StuckError with a", stuck)
	}
	g.wantHeld(1)
	if s := g.job("a"); s.State != runner.Running {
		t.Errorf("while it is stuck: %+v", s)
	}
	// Another Run leaves it alone.
	stop = g.run()
	g.submit("b")
	<-started
	g.wantHeld(2)
	close(let)
	g.wantState("a", runner.Done)
	g.wantState("b", runner.Done)
	g.wantHeld(0)
	if err := stop(); err != nil || g.job("a").Runs != 1 {
		t.Errorf("Run ends with %v, a ran %d times", err, g.job("a").Runs)
	}
}

// testInterrupted: what did not finish when the runner stopped is done after a
// restart, with a higher token.
func testInterrupted(on *subject) {
	t, url := on.t, on.url
	started := make(chan *runner.Task)
	g := newRig(t, url, untilTold(started), nil)
	stop := g.run()
	g.submit("a")
	first := <-started
	if err := stop(); err != nil {
		t.Errorf("Run ends with %v", err)
	}
	g.wantHeld(0)
	if s := g.job("a"); s.State != runner.Queued {
		t.Errorf("after the stop: %+v", s)
	}
	if err := g.r.Close(); err != nil {
		t.Fatal(err)
	}
	g.o.Handler = func(_ context.Context, task *runner.Task) error {
		if task.Token() <= first.Token() || task.Runs() != 2 {
			t.Errorf("run %d has the token %d, after %d", task.Runs(), task.Token(), first.Token())
		}
		return nil
	}
	g.open()
	g.run()
	g.wantState("a", runner.Done)
}

// testHeldByAnother: a job waits for its key, and others have their turns.
func testHeldByAnother(on *subject) {
	t, url := on.t, on.url
	g := newRig(t, url, func(context.Context, *runner.Task) error { return nil },
		func(o *runner.Options) { o.Parallel, o.Wait = 1, 50*time.Millisecond })
	other, err := g.c.Acquire(t.Context(), client.AcquireRequest{Key: g.key("a"), Instance: "another"})
	if err != nil {
		t.Fatal(err)
	}
	g.run()
	g.submit("a", "b")
	if err := g.await(runner.JobQueued, "a").Err; !errors.Is(err, client.ErrConflict) {
		t.Errorf("a waits because of %v", err)
	}
	g.wantState("b", runner.Done)
	if s := g.job("a"); s.State.Final() || s.Runs != 0 {
		t.Errorf("while another has the key: %+v", s)
	}
	if _, err := g.c.Release(t.Context(), client.ReleaseRequest{LeaseID: other.Lease.LeaseID, Token: other.Lease.Token, Instance: "another"}); err != nil {
		t.Fatal(err)
	}
	if s := g.wantState("a", runner.Done); s.Token <= other.Lease.Token {
		t.Errorf("got %+v, want a token above %d", s, other.Lease.Token)
	}
}

func testNeverPossible(on *subject) {
	t, url := on.t, on.url
	g := newRig(t, url, func(context.Context, *runner.Task) error { t.Error("it runs"); return nil }, nil)
	g.run()
	if err := g.r.Submit(runner.Job{ID: "a", Key: key("")}); err != nil {
		t.Fatal(err)
	}
	if s := g.wantState("a", runner.Failed); !strings.Contains(s.Reason, "key.target") {
		t.Errorf("the reason is %q", s.Reason)
	}
}

// testForeignLeases: a lease of the folder without a job is released; what the
// instance holds otherwise is not.
func testForeignLeases(on *subject) {
	t, url := on.t, on.url
	g := newRig(t, url, func(context.Context, *runner.Task) error { return nil }, nil)
	for name, folder := range map[string]string{"stray": g.r.FolderID(), "another folder's": "X", "by hand": ""} {
		r := client.AcquireRequest{Key: g.key(name), Instance: g.o.Instance, JobID: name}
		if folder != "" {
			r.Metadata = map[string]string{"leased-runner": folder}
		}
		if _, err := g.c.Acquire(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	g.run()
	g.await(runner.LeaseReleased, "")
	g.submit("a")
	g.wantState("a", runner.Done)
	g.wantHeld(2)
	if n := g.count(runner.LeaseReleased); n != 1 {
		t.Errorf("%d were released, want 1", n)
	}
}

// testShutDown: a client that is shut down takes the runner with it.
func testShutDown(on *subject) {
	t, url := on.t, on.url
	started := make(chan *runner.Task)
	g := newRig(t, url, untilTold(started), nil)
	g.run()
	g.submit("a")
	<-started
	if err := g.c.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	g.submit("b")
	if err := g.await(runner.JobQueued, "a").Err; !errors.Is(err, client.ErrShutdown) {
		t.Errorf("a stopped because of %v", err)
	}
	if err := g.ended(); !errors.Is(err, client.ErrShutdown) {
		t.Errorf("Run ends with %v, want ErrShutdown", err)
	}
	for _, id := range []string{"a", "b"} {
		if s := g.job(id); s.State.Final() {
			t.Errorf("after the shutdown: %+v, want that it is still to be done", s)
		}
	}
}

// testCannotWrite: a folder that cannot be written to stops the runner, and the
// job that it was about to start does not start.
func testCannotWrite(on *subject) {
	t, url := on.t, on.url
	g := newRig(t, url, func(context.Context, *runner.Task) error { return nil }, nil)
	g.submit("a")
	// A folder in the place of the file that is written first.
	if err := os.Mkdir(filepath.Join(g.o.Dir, runner.FileName("a")+".tmp"), 0o700); err != nil {
		t.Fatal(err)
	}
	g.run()
	if err := g.ended(); !errors.Is(err, syscall.EISDIR) {
		t.Errorf("Run ends with %v, want the error of the file", err)
	}
	if s := g.job("a"); s.State != runner.Queued || s.Runs != 0 {
		t.Errorf("got %+v", s)
	}
	g.wantHeld(0)
}
