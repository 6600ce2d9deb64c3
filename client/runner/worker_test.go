package runner_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	_ "modernc.org/sqlite" // the driver "sqlite"

	"leased/client"
	"leased/client/guard"
	"leased/client/runner"
	"leased/gateway/api"
	"leased/test/proc"
)

// workerVariable has this test binary be a worker: its value is a worker in JSON.
const workerVariable = "LEASED_TEST_RUNNER"

func TestMain(m *testing.M) {
	if text := os.Getenv(workerVariable); text != "" {
		if err := work(text); err != nil {
			_, _ = fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// lastStep is the last one of a job.
const lastStep = 2

// worker is a process that does one job, whose steps are rows of a database
// behind a fence, and ends when the job has ended. It is killed on its way.
type worker struct {
	Server   string
	Dir      string // of the runner
	Database string
	Instance string
	Key      api.Key
	TTL      time.Duration
	// KillAt is before which step of its life the process kills itself; 0 never.
	KillAt int
	// Hang has the handler print "hanging" in the middle of the job, and go on when
	// there is something to read from the standard input.
	Hang bool
	// Idle submits nothing, and ends with the first event.
	Idle bool

	mu sync.Mutex
	n  int
}

// step is called between any two things that others can see.
func (w *worker) step(string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.n++; w.n == w.KillAt {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {} // it takes a moment
	}
}

// RoundTrip has a step before a request leaves and before its answer is read.
func (w *worker) RoundTrip(r *http.Request) (*http.Response, error) {
	w.step("request")
	res, err := http.DefaultTransport.RoundTrip(r)
	w.step("answer")
	return res, err
}

func work(text string) error {
	w := new(worker)
	if err := json.Unmarshal([]byte(text), w); err != nil {
		return err
	}
	c, err := client.New(client.Options{Servers: []string{w.Server}, HTTPClient: &http.Client{Transport: w}})
	if err != nil {
		return err
	}
	db, err := openEffects(w.Database)
	if err != nil {
		return err
	}
	fence, err := effectsFence(nil)
	if err != nil {
		return err
	}
	ctx, stop := context.WithTimeout(context.Background(), proc.Patience)
	defer stop()
	r, err := runner.OpenAt(runner.Options{
		Client: c, Dir: w.Dir, Namespace: "default", Instance: w.Instance, TTL: w.TTL, Wait: 10 * time.Second,
		Handler: func(ctx context.Context, t *runner.Task) error { return w.handle(ctx, t, db, fence) },
		Observe: func(e runner.Event) {
			if e.Job.State.Final() || w.Idle {
				stop()
			}
		},
	}, w.step)
	if err != nil {
		return err
	}
	if !w.Idle {
		err = r.Submit(runner.Job{ID: "job", Key: w.Key, Payload: []byte("1")})
		switch {
		case errors.Is(err, runner.ErrExists):
			if r.Jobs()[0].State.Final() {
				// It ended before the process did, and its lease may be left.
				go func() {
					defer stop()
					for held(ctx, c, w.Instance, 0) != nil && ctx.Err() == nil {
					}
				}()
			}
		case err != nil:
			return err
		}
	}
	return errors.Join(r.Run(ctx), r.Close(), db.Close())
}

// handle does the steps that are left, each in a transaction behind the fence.
func (w *worker) handle(ctx context.Context, t *runner.Task, db *sql.DB, fence *guard.SQL) error {
	next, err := strconv.Atoi(string(t.Job().Payload))
	if err != nil {
		return err
	}
	for ; next <= lastStep; next++ {
		w.step("begin")
		if err := effect(ctx, db, fence, t.Fence(), w.Key.Target.ID, next, func() { w.step("commit") }); err != nil {
			return err
		}
		w.step("save")
		if err := t.Save([]byte(strconv.Itoa(next + 1))); err != nil {
			return err
		}
		if w.Hang {
			w.Hang = false
			if _, err := fmt.Fprintln(os.Stdout, "hanging"); err != nil {
				return err
			}
			if _, err := os.Stdin.Read(make([]byte, 1)); err != nil {
				return err
			}
			// As one who does not look at its context.
			err := effect(context.WithoutCancel(ctx), db, fence, t.Fence(), w.Key.Target.ID, 1000, func() {})
			_, printed := fmt.Fprintf(os.Stdout, "stale %v\n", errors.Is(err, guard.ErrStale))
			return errors.Join(err, printed)
		}
	}
	return nil
}

// openEffects opens the database that jobs write to.
func openEffects(path string) (*sql.DB, error) {
	return sql.Open("sqlite", "file:"+path+"?_pragma=busy_timeout(20000)&_pragma=journal_mode(WAL)&_pragma=synchronous(OFF)")
}

func effectsFence(stale guard.Counter) (*guard.SQL, error) {
	return guard.NewSQL(guard.SQLOptions{Dialect: guard.SQLite, Stale: stale})
}

// effect does one step of a job, once: its row has the token it was done with.
func effect(ctx context.Context, db *sql.DB, fence *guard.SQL, f guard.Fence, job string, step int, beforeCommit func()) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	if err := fence.Accept(ctx, tx, f); err != nil {
		return err
	}
	_, err = tx.ExecContext(ctx, "INSERT INTO effects (job, step, token) VALUES (?, ?, ?) ON CONFLICT DO NOTHING", job, step, int64(f.Token))
	if err != nil {
		return err
	}
	beforeCommit()
	return tx.Commit()
}
