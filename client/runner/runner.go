package runner

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"leased/client"
)

// Defaults of Options.
const (
	DefaultWait       = 30 * time.Second
	DefaultParallel   = 16
	DefaultStopWithin = 10 * time.Second
)

// Handler does a job. It must return when its context ends; context.Cause tells
// why: a *client.LostError, or that the runner stops.
type Handler func(context.Context, *Task) error

// Options configure a Runner.
type Options struct {
	Client *client.Client
	// Dir is the folder of this runner alone, on a disk of its own machine. It is
	// made if it is not there. It belongs to one namespace and instance.
	Dir string
	// Namespace of the leases; empty is "default".
	Namespace string
	// Instance is the holder of the leases: the same after a restart, and no other
	// process's.
	Instance string
	// Owner, if set, is the principal that the leases belong to: looking for leases
	// without a job is then limited to its.
	Owner string
	// TTL and Margin of the leases: see client.HoldRequest. The TTL is how long a
	// restart may take; 0 takes the namespace's.
	TTL, Margin time.Duration
	// Wait is how long a job waits for a key that is held before it goes to the end
	// of the queue; 0 is DefaultWait.
	Wait time.Duration
	// Parallel is how many jobs are worked on at once, those that wait for a key
	// included; 0 is DefaultParallel.
	Parallel int
	// StopWithin is how long a handler may take to return after its context has
	// ended before it is reported as stuck; 0 is DefaultStopWithin.
	StopWithin time.Duration
	// Handler does the jobs.
	Handler Handler
	// Observe is told what happens, from several goroutines; it may be nil. It must
	// not block.
	Observe func(Event)
}

// StuckError lists the jobs whose handlers did not return when their contexts
// had ended. Their leases are kept while the process lives, unless they are lost.
type StuckError struct{ Jobs []string }

// Error names the jobs.
func (e *StuckError) Error() string {
	return fmt.Sprintf("the handlers of these jobs ignore that they should stop: %s", strings.Join(e.Jobs, ", "))
}

// ErrExists says that there is a job with the same id.
var ErrExists = errors.New("a job with this id exists")

// ErrNotFound says that there is no job with the id.
var ErrNotFound = errors.New("there is no job with this id")

// ErrBusy says that a job has not ended.
var ErrBusy = errors.New("the job has not ended")

var (
	errClosed = errors.New("runner: it is closed")
	errOver   = errors.New("the task is over")
)

// Runner works off jobs. Its methods may be used concurrently.
type Runner struct {
	o     Options
	store *store
	pause time.Duration // before something that failed is tried again

	// io is held by whoever writes to the folder, and by Close for itself.
	io     sync.RWMutex
	closed bool

	workers sync.WaitGroup // also those whose handlers are stuck

	mu      sync.Mutex
	entries map[string]*entry
	queue   []*entry
	stuck   map[string]struct{}
	running bool
	closing bool
	stop    context.CancelCauseFunc // of Run
	halted  error                   // what stopped Run first
	wake    chan struct{}
}

// entry is a job in memory.
type entry struct {
	// writing orders the writes of the job's file.
	writing sync.Mutex

	// Of what follows, Runner.mu guards the access.
	status Status
	busy   bool // somebody works on it
	gone   bool
}

// Open opens the runner's folder. It asks no server: Run does. The error names
// the file that is damaged or foreign; ErrInUse says that another process has the
// folder open. Close has to be called.
func Open(o Options) (*Runner, error) {
	o.Namespace = cmp.Or(o.Namespace, client.DefaultNamespace)
	o.Wait, o.Parallel = cmp.Or(o.Wait, DefaultWait), cmp.Or(o.Parallel, DefaultParallel)
	o.StopWithin = cmp.Or(o.StopWithin, DefaultStopWithin)
	if o.Observe == nil {
		o.Observe = func(Event) {}
	}
	switch {
	case o.Client == nil || o.Handler == nil || o.Dir == "" || o.Instance == "":
		return nil, errors.New("runner: Client, Dir, Instance and Handler are required")
	case o.Wait < 0 || o.Parallel < 0 || o.StopWithin < 0:
		return nil, errors.New("runner: Wait, Parallel and StopWithin cannot be negative")
	}
	return open(o, nil)
}

func open(o Options, step func(string)) (*Runner, error) {
	s, jobs, err := openStore(o.Dir, o.Namespace, o.Instance, step)
	if err != nil {
		return nil, fmt.Errorf("runner: %w", err)
	}
	r := &Runner{
		o: o, store: s, pause: time.Second,
		entries: make(map[string]*entry), stuck: make(map[string]struct{}), wake: make(chan struct{}, 1),
	}
	// Jobs that hold a lease come first: it does not wait for them.
	slices.SortFunc(jobs, func(a, b Status) int {
		return cmp.Or(cmp.Compare(rank(a.State), rank(b.State)), a.Submitted.Compare(b.Submitted), cmp.Compare(a.ID, b.ID))
	})
	for _, job := range jobs {
		e := &entry{status: job}
		r.entries[job.ID] = e
		if !job.State.Final() {
			r.queue = append(r.queue, e)
		}
	}
	return r, nil
}

func rank(s State) int {
	switch s {
	case Running:
		return 0
	case Acquiring:
		return 1
	default:
		return 2
	}
}

// Submit takes a job on: it is on disk when Submit returns nil. Its turn comes
// while Run runs.
func (r *Runner) Submit(job Job) error {
	if err := job.check(); err != nil {
		return err
	}
	job.Payload = append([]byte{}, job.Payload...)
	e := &entry{status: Status{Job: job, State: Queued, Submitted: time.Now().UTC()}}
	r.mu.Lock()
	if r.entries[job.ID] != nil {
		r.mu.Unlock()
		return fmt.Errorf("job %s: %w", job.ID, ErrExists)
	}
	e.busy = true // until it is on disk
	r.entries[job.ID] = e
	r.mu.Unlock()
	if err := r.update(e, func(*Status) error { return nil }); err != nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.entries, job.ID)
		return err
	}
	r.enqueue(e)
	return nil
}

// Jobs returns all jobs, in the order of their ids.
func (r *Runner) Jobs() []Status {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := make([]Status, 0, len(r.entries))
	for _, e := range r.entries {
		all = append(all, e.status)
	}
	slices.SortFunc(all, func(a, b Status) int { return cmp.Compare(a.ID, b.ID) })
	return all
}

// Forget removes a job that has ended, or whose turn has not come. It returns
// ErrNotFound or ErrBusy otherwise.
func (r *Runner) Forget(id string) error {
	r.mu.Lock()
	e := r.entries[id]
	switch {
	case e == nil:
		r.mu.Unlock()
		return fmt.Errorf("job %s: %w", id, ErrNotFound)
	case e.busy || !e.status.State.Final() && e.status.State != Queued:
		r.mu.Unlock()
		return fmt.Errorf("job %s: %w", id, ErrBusy)
	}
	e.busy, e.gone = true, true
	r.queue = slices.DeleteFunc(r.queue, func(q *entry) bool { return q == e })
	r.mu.Unlock()

	e.writing.Lock()
	defer e.writing.Unlock()
	err := r.write(func() error { return r.store.remove(id) })
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil {
		e.gone = false // and busy for good: the folder cannot be written to
		return fmt.Errorf("job %s: %w", id, err)
	}
	delete(r.entries, id)
	return nil
}

// Close lets another process open the folder. It does not, and returns an error,
// while Run runs, and while a handler has not returned, a *StuckError: another
// process would start that job again, with the same token. The folder is then let
// go with the end of this process, or by another Close.
func (r *Runner) Close() error {
	r.mu.Lock()
	err := r.stuckError()
	if r.running {
		err = errors.New("runner: Run has not returned")
	}
	if err != nil {
		r.mu.Unlock()
		return err
	}
	r.closing = true
	r.mu.Unlock()
	r.workers.Wait() // a handler that was stuck may have just returned
	r.io.Lock()
	defer r.io.Unlock()
	if r.closed {
		return nil
	}
	r.closed = true
	return r.store.close()
}

// update changes a job, on disk first.
func (r *Runner) update(e *entry, change func(*Status) error) error {
	e.writing.Lock()
	defer e.writing.Unlock()
	r.mu.Lock()
	next, gone := e.status, e.gone
	r.mu.Unlock()
	if gone {
		return fmt.Errorf("job %s: %w", next.ID, ErrNotFound)
	}
	if err := change(&next); err != nil {
		return err
	}
	if err := r.write(func() error { return r.store.put(&next) }); err != nil {
		return fmt.Errorf("job %s: %w", next.ID, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	e.status = next
	return nil
}

// write writes to the folder. When that fails the runner stops: it can promise
// nothing any more.
func (r *Runner) write(do func() error) error {
	r.io.RLock()
	defer r.io.RUnlock()
	if r.closed {
		return errClosed
	}
	err := do()
	if err != nil {
		r.halt(fmt.Errorf("runner: write to the folder: %w", err))
	}
	return err
}

// halt ends Run with an error.
func (r *Runner) halt(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stop != nil {
		r.halted = cmp.Or(r.halted, err)
		r.stop(err)
	}
}

func (r *Runner) status(e *entry) Status {
	r.mu.Lock()
	defer r.mu.Unlock()
	return e.status
}

// enqueue puts a job at the end of the queue.
func (r *Runner) enqueue(e *entry) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e.busy = false
	r.queue = append(r.queue, e)
	r.poke()
}

// poke has Run look at the queue. mu is held.
func (r *Runner) poke() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// next takes the first job from the queue, and waits for one. It returns nil when
// ctx ends.
func (r *Runner) next(ctx context.Context) *entry {
	for ctx.Err() == nil {
		r.mu.Lock()
		if len(r.queue) > 0 {
			e := r.queue[0]
			r.queue = slices.Delete(r.queue, 0, 1)
			e.busy = true
			r.mu.Unlock()
			return e
		}
		r.mu.Unlock()
		select {
		case <-r.wake:
		case <-ctx.Done():
		}
	}
	return nil
}
