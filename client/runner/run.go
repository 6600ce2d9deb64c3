package runner

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"leased/client"
)

// metadataKey is where a lease names the folder that it belongs to.
const metadataKey = "leased-runner"

// Run finds out what has become of the leases that the folder knows, releases
// those that have no job, and works off the jobs until ctx ends. It then ends the
// contexts of the handlers and waits for them. What they did not finish is queued
// and its lease released; a handler that does not return keeps its lease.
//
// Its error is a *StuckError for handlers that did not return within StopWithin,
// and otherwise why it stopped before ctx ended: the folder could not be written
// to, the client was shut down, or the server refused to list the leases.
func (r *Runner) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	r.mu.Lock()
	if r.running {
		r.mu.Unlock()
		return errors.New("runner: it runs already")
	}
	r.running, r.stop = true, cancel
	r.mu.Unlock()

	var settled sync.WaitGroup
	parent := ctx
	err := r.recoverLeases(ctx)
	if err == nil {
		slots := make(chan struct{}, r.o.Parallel)
		for {
			select {
			case slots <- struct{}{}:
			case <-ctx.Done():
			}
			e := r.next(ctx)
			if e == nil {
				break
			}
			settled.Add(1) // done also when a handler is stuck: nobody waits for that goroutine
			go func() {
				done := sync.OnceFunc(settled.Done)
				defer func() { <-slots }()
				defer done()
				r.work(ctx, e, done)
			}()
		}
		settled.Wait()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.running, r.stop = false, nil
	if cause := context.Cause(parent); err == nil && !isContext(cause) {
		err = cause
	}
	if len(r.stuck) > 0 {
		stuck := &StuckError{}
		for id := range r.stuck {
			stuck.Jobs = append(stuck.Jobs, id)
		}
		slices.Sort(stuck.Jobs)
		err = errors.Join(err, stuck)
	}
	return err
}

func isContext(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// recoverLeases releases the leases of this folder that no job needs.
func (r *Runner) recoverLeases(ctx context.Context) error {
	for {
		err := r.releaseStray(ctx)
		if ctx.Err() != nil {
			return nil //nolint:nilerr // Run was told to end, and so the call was
		}
		if e, ok := errors.AsType[*client.Error](err); !ok || !e.Problem.Retryable {
			return err
		}
		r.o.Observe(Event{Kind: RecoveryFailed, Err: err})
		r.rest(ctx)
	}
}

func (r *Runner) releaseStray(ctx context.Context) error {
	var stray []Event
	list := client.ListRequest{Namespace: r.o.Namespace, Owner: r.o.Owner, Instance: r.o.Instance}
	for {
		page, err := r.o.Client.List(ctx, list)
		if err != nil {
			return err
		}
		for _, l := range page.Leases {
			if l.Metadata[metadataKey] == r.store.id && !r.needs(l.JobID, l.LeaseID) {
				stray = append(stray, Event{Kind: LeaseReleased, LeaseID: l.LeaseID, Token: l.Token})
			}
		}
		if list.Cursor = page.NextCursor; list.Cursor == "" {
			break
		}
	}
	for _, event := range stray {
		_, err := r.o.Client.Release(ctx, client.ReleaseRequest{
			Namespace: r.o.Namespace, LeaseID: event.LeaseID, Token: event.Token, Instance: r.o.Instance,
		})
		if err != nil {
			event.Kind, event.Err = ReleaseFailed, err
		}
		r.o.Observe(event)
	}
	return nil
}

// needs reports whether a job goes on with a lease. A job that was acquiring has
// not learned the id: it asks for the lease again.
func (r *Runner) needs(jobID, leaseID string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.entries[jobID]
	if e == nil {
		return false
	}
	s := e.status
	return s.State == Acquiring || s.State == Running && s.LeaseID == leaseID || e.busy // stuck since the Run before
}

// rest waits before something is tried again.
func (r *Runner) rest(ctx context.Context) {
	timer := time.NewTimer(r.pause)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
