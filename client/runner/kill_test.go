package runner_test

import (
	"bufio"
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"leased/client"
	"leased/client/guard"
	"leased/client/runner"
	"leased/test/proc"
)

// bench is what workers are killed at: a server and a database.
type bench struct {
	t        *testing.T
	url      string
	c        *client.Client
	database string
	db       *sql.DB
}

func newBench(t *testing.T) *bench {
	t.Helper()
	b := &bench{t: t, url: serve(t).URL, database: filepath.Join(t.TempDir(), "effects.db")}
	b.c = connect(t, b.url)
	fence, err := effectsFence(nil)
	if err != nil {
		t.Fatal(err)
	}
	if b.db, err = openEffects(b.database); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.db.Close() })
	_, err = b.db.ExecContext(t.Context(), "CREATE TABLE effects (n INTEGER PRIMARY KEY AUTOINCREMENT, job TEXT, step INTEGER, token INTEGER, UNIQUE (job, step))")
	if err := errors.Join(err, fence.CreateTable(t.Context(), b.db)); err != nil {
		t.Fatal(err)
	}
	return b
}

// worker is one with a folder, a key and an instance of its own.
func (b *bench) worker(t *testing.T, ttl time.Duration) *worker {
	t.Helper()
	return &worker{Server: b.url, Dir: filepath.Join(t.TempDir(), "jobs"), Database: b.database, Instance: t.Name(), Key: key(t.Name()), TTL: ttl}
}

// command is the worker's process.
func (w *worker) command(t *testing.T) *exec.Cmd {
	t.Helper()
	text, err := json.Marshal(w)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), workerVariable+"="+string(text))
	return cmd
}

// lives runs the process to its end, and reports whether it was killed.
func (w *worker) lives(t *testing.T, killAt int) (killed bool) {
	t.Helper()
	w.KillAt = killAt
	cmd := w.command(t)
	out, err := cmd.CombinedOutput()
	if err == nil {
		return false
	}
	if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || status.Signal() != syscall.SIGKILL || killAt == 0 {
		t.Fatalf("the worker ended with %v:\n%s", err, out)
	}
	return true
}

// opened returns the jobs of a worker that does not run.
func (w *worker) opened(t *testing.T, c *client.Client) runner.Status {
	t.Helper()
	r := mustOpen(t, runner.Options{
		Client: c, Dir: w.Dir, Instance: w.Instance, Handler: func(context.Context, *runner.Task) error { return nil },
	})
	jobs := r.Jobs()
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	if len(jobs) != 1 {
		t.Fatalf("the worker has %d jobs, want 1: %+v", len(jobs), jobs)
	}
	return jobs[0]
}

// effects returns the steps that were done for a worker, and their tokens.
func (b *bench) effects(t *testing.T, w *worker) (steps []int, tokens []uint64) {
	t.Helper()
	rows, err := b.db.QueryContext(t.Context(), "SELECT step, token FROM effects WHERE job = ? ORDER BY n", w.Key.Target.ID)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var step int
		var token uint64
		if err := rows.Scan(&step, &token); err != nil {
			t.Fatal(err)
		}
		steps, tokens = append(steps, step), append(tokens, token)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return steps, tokens
}

// TestKilled kills a worker before each step of its life in turn, and the one
// that takes its place somewhere else on its way. Whatever was on its way, the
// third does the rest: no step is missing or done twice, the job is done and not
// lost, and no lease is left.
func TestKilled(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	const most = 200 // steps of a life
	var (
		mu    sync.Mutex
		ended = most // the first at which nobody was left to kill
		next  int
		all   sync.WaitGroup
	)
	take := func() int {
		mu.Lock()
		defer mu.Unlock()
		next++
		return next
	}
	for range 4 {
		all.Go(func() {
			for at := take(); ; at = take() {
				mu.Lock()
				over := at >= ended || t.Failed()
				mu.Unlock()
				if over {
					return
				}
				t.Run(fmt.Sprint("at_", at), func(t *testing.T) {
					if !b.killedAt(t, at) {
						mu.Lock()
						defer mu.Unlock()
						ended = min(ended, at)
					}
				})
			}
		})
	}
	all.Wait()
	t.Logf("a worker's life has %d steps", ended-1)
	if ended < 40 || ended == most {
		t.Errorf("workers were killed at %d steps, which cannot be all", ended-1)
	}
}

// killedAt reports whether there was a step to kill a worker at.
func (b *bench) killedAt(t *testing.T, at int) bool {
	t.Helper()
	w := b.worker(t, time.Minute) // longer than restarts take, on any machine
	killed := w.lives(t, at)
	if killed {
		w.lives(t, 1+at*7%23)
		w.lives(t, 0)
	}
	s := w.opened(t, b.c)
	steps, tokens := b.effects(t, w)
	if s.State != runner.Done || !slices.Equal(steps, []int{1, 2}) || !slices.IsSorted(tokens) || s.Token < tokens[len(tokens)-1] {
		t.Errorf("killed at %d: the job is %+v, its steps %v with tokens %v", at, s, steps, tokens)
	}
	if err := held(t.Context(), b.c, w.Instance, 0); err != nil {
		t.Errorf("killed at %d: %v", at, err)
	}
	return killed
}

// process is a worker that hangs in the middle of its job.
type process struct {
	cmd   *exec.Cmd
	lines *bufio.Reader
	in    io.Writer
}

func (w *worker) hang(t *testing.T) *process {
	t.Helper()
	w.Hang = true
	cmd := w.command(t)
	w.Hang = false
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p := &process{cmd: cmd, lines: bufio.NewReader(out), in: in}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	p.expect(t, "hanging\n")
	return p
}

func (p *process) expect(t *testing.T, want string) {
	t.Helper()
	if got, err := p.lines.ReadString('\n'); err != nil || got != want {
		t.Fatalf("the worker says %q, %v, want %q", got, err, want)
	}
}

func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
}

// take has another holder take a key as soon as it is free, and write.
func (b *bench) take(t *testing.T, w *worker) *client.Session {
	t.Helper()
	s, err := b.c.Hold(t.Context(), client.HoldRequest{AcquireRequest: client.AcquireRequest{
		Key: w.Key, Instance: "another", TTL: 20 * time.Second, Wait: proc.Patience,
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Release() })
	fence, err := effectsFence(nil)
	if err != nil {
		t.Fatal(err)
	}
	status, _ := s.Status()
	if err := effect(t.Context(), b.db, fence, guard.Of(status.Lease), w.Key.Target.ID, 500, func() {}); err != nil {
		t.Fatal(err)
	}
	return s
}

// TestAway has workers that are dead or stopped for longer than their leases.
func TestAway(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for name, test := range map[string]func(*bench){
		"dead": testDead, "paused": testPaused, "job_gone": testJobGone, "folder_gone": testFolderGone,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			own := *b
			own.t = t
			test(&own)
		})
	}
}

// brief is the TTL of a lease that is waited for, and which a busy machine still
// renews in time.
const brief = 8 * time.Second

// testDead: another had the key meanwhile. The job is lost, and does nothing more.
func testDead(b *bench) {
	t := b.t
	w := b.worker(t, brief)
	w.hang(t).kill()
	s := b.take(t, w)
	w.lives(t, 0)
	job := w.opened(t, b.c)
	if steps, tokens := b.effects(t, w); !slices.Equal(steps, []int{1, 500}) || tokens[0] != job.Token || tokens[1] != s.Token() {
		t.Errorf("the steps are %v with tokens %v, want those of before the kill and another's", steps, tokens)
	}
	if job.State != runner.Lost || job.Runs != 1 || job.Token >= s.Token() || job.Reason == "" {
		t.Errorf("the job is %+v, want it lost", job)
	}
}

// testPaused: a worker that did not run while another took over writes late, and
// is refused.
func testPaused(b *bench) {
	t := b.t
	w := b.worker(t, brief)
	p := w.hang(t)
	proc.Pause(t, p.cmd.Process)
	b.take(t, w)
	proc.Resume(t, p.cmd.Process)
	if _, err := io.WriteString(p.in, "x"); err != nil {
		t.Fatal(err)
	}
	p.expect(t, "stale true\n")
	if err := p.cmd.Wait(); err != nil {
		t.Errorf("the worker ended with %v", err)
	}
	if steps, _ := b.effects(t, w); !slices.Equal(steps, []int{1, 500}) {
		t.Errorf("the steps are %v, want none after another's", steps)
	}
	if s := w.opened(t, b.c); s.State != runner.Lost {
		t.Errorf("the job is %+v, want it lost", s)
	}
}

// testJobGone: the lease of a job whose file is gone is released long before it
// would end.
func testJobGone(b *bench) {
	t := b.t
	w := b.worker(t, 10*time.Minute)
	w.hang(t).kill()
	if err := held(t.Context(), b.c, w.Instance, 1); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(w.Dir, runner.FileName("job"))); err != nil {
		t.Fatal(err)
	}
	w.Idle = true
	w.lives(t, 0)
	if err := held(t.Context(), b.c, w.Instance, 0); err != nil {
		t.Error(err)
	}
}

// testFolderGone: without the folder nobody knows of the lease, and it ends by
// itself.
func testFolderGone(b *bench) {
	t := b.t
	w := b.worker(t, brief)
	w.hang(t).kill()
	if err := os.RemoveAll(w.Dir); err != nil {
		t.Fatal(err)
	}
	w.lives(t, 0) // the same job again, which waits for the key
	if s := w.opened(t, b.c); s.State != runner.Done || s.Runs != 1 {
		t.Errorf("the job is %+v, want it done", s)
	}
	if err := held(t.Context(), b.c, w.Instance, 0); err != nil {
		t.Error(err)
	}
}
