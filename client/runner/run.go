package runner

import (
	"context"
	"errors"
	"maps"
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
// and otherwise what stopped it, or would have, if ctx had not ended: the folder
// could not be written to, the client was shut down, or the server refused to list
// the leases. A job whose end could not be written down keeps its lease until that
// ends with its TTL, and goes on if the folder can be written to by then.
func (r *Runner) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	r.mu.Lock()
	if r.running || r.closing {
		defer r.mu.Unlock()
		if r.closing {
			return errClosed
		}
		return errors.New("runner: it runs already")
	}
	r.running, r.stop, r.halted = true, cancel, nil
	r.mu.Unlock()

	var settled sync.WaitGroup
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
			settled.Add(1) // done also when a handler is stuck: only Close looks at that goroutine
			r.workers.Go(func() {
				done := sync.OnceFunc(settled.Done)
				defer func() { <-slots }()
				defer done()
				r.work(ctx, e, done)
			})
		}
		settled.Wait()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.running, r.stop = false, nil
	return errors.Join(err, r.halted, r.stuckError())
}

// stuckError returns a *StuckError, or nil. mu is held.
func (r *Runner) stuckError() error {
	if len(r.stuck) == 0 {
		return nil
	}
	return &StuckError{Jobs: slices.Sorted(maps.Keys(r.stuck))}
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
