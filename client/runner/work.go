package runner

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"leased/client"
	"leased/client/internal/abandon"
	"leased/gateway/api"
)

// work takes a job as far as it gets. settled is called when nobody needs to wait
// for it any more, at the latest by the caller when work returns.
func (r *Runner) work(ctx context.Context, e *entry, settled func()) {
	session, err := r.lease(ctx, e)
	if err == nil {
		r.execute(ctx, e, session, settled)
		return
	}
	// A write that fails stops the runner, and leaves the job as it is on disk.
	switch code := client.CodeOf(err); {
	case errors.Is(err, client.ErrShutdown):
		r.halt(err)
		r.leave(e)
	case ctx.Err() != nil || errors.Is(err, errClosed):
		r.leave(e) // as it is on disk
	case r.status(e).State == Running:
		// It was running when its process ended, and its lease is gone.
		_ = r.settle(e, Lost, err, nil)
		r.leave(e)
	case code == api.CodeInvalid:
		_ = r.settle(e, Failed, err, nil)
		r.leave(e)
	case code == api.CodeConflict:
		_ = r.settle(e, Queued, err, nil)
		r.rest(ctx)
		r.enqueue(e)
	default:
		// It may have been granted: the same request finds out. What is denied, or has
		// no namespace, has them once the server's configuration is right again.
		_ = r.settle(e, Acquiring, err, nil)
		r.rest(ctx)
		r.enqueue(e)
	}
}

// leave ends the work on a job without a change.
func (r *Runner) leave(e *entry) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e.busy = false
	if !e.status.State.Final() {
		r.queue = append(r.queue, e) // for the next Run, which may run already
		r.poke()
	}
}

// lease returns a session of the job's lease, with the job marked as running.
func (r *Runner) lease(ctx context.Context, e *entry) (*client.Session, error) {
	if s := r.status(e); s.State == Running {
		return r.resume(ctx, e, &s)
	}
	session, err := r.acquire(ctx, e)
	before := []api.Code{api.CodeExpired, api.CodeReleased, api.CodeRevoked, api.CodeRequestIDReused}
	if slices.Contains(before, client.CodeOf(err)) {
		// That is the answer to a request from before a restart. The job did not
		// start with that lease: nothing is lost.
		if err := r.update(e, func(s *Status) error { s.State = Queued; return nil }); err != nil {
			return nil, err
		}
		return r.acquire(ctx, e)
	}
	return session, err
}

// resume goes on with the lease from before a restart.
func (r *Runner) resume(ctx context.Context, e *entry, s *Status) (*client.Session, error) {
	for {
		session, err := r.o.Client.Resume(ctx, client.ResumeRequest{
			Namespace: r.o.Namespace, LeaseID: s.LeaseID, Token: s.Token, Instance: r.o.Instance, Margin: r.o.Margin,
		})
		switch {
		case err == nil:
			return r.start(e, session)
		case errors.Is(err, client.ErrLost) || errors.Is(err, client.ErrShutdown) || ctx.Err() != nil:
			return nil, err
		}
		r.o.Observe(Event{Kind: RecoveryFailed, Job: *s, LeaseID: s.LeaseID, Token: s.Token, Err: err})
		r.rest(ctx)
	}
}

func (r *Runner) acquire(ctx context.Context, e *entry) (*client.Session, error) {
	err := r.update(e, func(s *Status) error {
		if s.State != Acquiring {
			s.State, s.RequestID, s.LeaseID, s.Token = Acquiring, rand.Text(), "", 0
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	s := r.status(e)
	session, err := r.o.Client.Hold(ctx, client.HoldRequest{
		AcquireRequest: client.AcquireRequest{
			Namespace: r.o.Namespace, RequestID: s.RequestID, Key: s.Key, Instance: r.o.Instance, TTL: r.o.TTL,
			Wait: r.o.Wait, JobID: s.ID, Metadata: map[string]string{metadataKey: r.store.id},
		},
		Margin: r.o.Margin,
	})
	if err != nil {
		return nil, err
	}
	return r.start(e, session)
}

// start notes that the handler is about to run.
func (r *Runner) start(e *entry, session *client.Session) (*client.Session, error) {
	err := r.update(e, func(s *Status) error {
		s.State, s.LeaseID, s.Token = Running, session.LeaseID(), session.Token()
		s.Runs++
		return nil
	})
	if err != nil {
		// What is on disk may say that it runs.
		abandon.Session(session.Context())
		return nil, err
	}
	return session, nil
}

// result is how a handler ended.
type result struct {
	err   error
	broke bool // it panicked, or ended its goroutine
	stack []byte
}

// execute runs the handler until it returns. When its context has ended it has
// StopWithin for that.
func (r *Runner) execute(ctx context.Context, e *entry, session *client.Session, settled func()) {
	task := &Task{runner: r, entry: e, session: session, status: r.status(e)}
	r.o.Observe(Event{Kind: JobStarted, Job: task.status, LeaseID: session.LeaseID(), Token: session.Token()})
	returned := make(chan result, 1)
	go func() {
		got := result{err: errors.New("the handler ended its goroutine"), broke: true}
		defer func() {
			if p := recover(); p != nil {
				got = result{fmt.Errorf("the handler panicked: %v", p), true, debug.Stack()}
			}
			returned <- got
		}()
		got = result{err: r.o.Handler(session.Context(), task)}
	}()
	var got result
	select {
	case got = <-returned:
	case <-session.Context().Done():
		timer := time.NewTimer(r.o.StopWithin)
		select {
		case got = <-returned:
		case <-timer.C:
			got = r.awaitStuck(e, session, returned, settled)
		}
		timer.Stop()
	}
	state, err := verdict(ctx, session.Err(), &got)
	if r.status(e).State.Final() { // a stuck one is lost already
		err = nil
	} else {
		err = r.settle(e, state, err, got.stack)
	}
	r.store.at("release")
	if err == nil {
		err = session.Release()
	} else {
		// On disk it still runs. Whoever reads that goes on with the lease, and would
		// take the job for lost if it was released.
		abandon.Session(session.Context())
	}
	if err != nil && state != Lost {
		r.o.Observe(Event{Kind: ReleaseFailed, Job: r.status(e), LeaseID: session.LeaseID(), Token: session.Token(), Err: err})
	}
	r.store.at("released")
	r.leave(e)
}

// awaitStuck waits for a handler that ignores that it should stop, after it has
// told so.
func (r *Runner) awaitStuck(e *entry, session *client.Session, returned <-chan result, settled func()) result {
	cause := context.Cause(session.Context())
	if errors.Is(cause, client.ErrLost) {
		// On disk too: whoever looks there must not take it for one that holds its key.
		_ = r.settle(e, Lost, fmt.Errorf("%w; the handler still runs", cause), nil) // or when it has returned
	}
	s := r.status(e)
	r.mu.Lock()
	r.stuck[s.ID] = struct{}{}
	r.mu.Unlock()
	r.o.Observe(Event{Kind: JobStuck, Job: s, LeaseID: session.LeaseID(), Token: session.Token(), Err: cause})
	settled()
	got := <-returned
	r.mu.Lock()
	delete(r.stuck, s.ID)
	r.mu.Unlock()
	r.o.Observe(Event{Kind: JobReturned, Job: s, LeaseID: session.LeaseID(), Token: session.Token(), Err: got.err})
	return got
}

// verdict says what becomes of a job whose handler has returned. A lease that is
// lost outweighs what the handler says: its last writes may have been refused.
func verdict(ctx context.Context, lease error, got *result) (State, error) {
	switch {
	case errors.Is(lease, client.ErrLost):
		return Lost, errors.Join(lease, got.err)
	case got.err == nil:
		return Done, nil
	case got.broke:
		return Failed, got.err
	case ctx.Err() != nil || lease != nil:
		return Queued, got.err // told to stop, it did
	default:
		return Failed, got.err
	}
}

// settle notes what has become of a job, on disk and to the observer. A folder
// that cannot be written to has stopped the runner; the job is as it was there.
func (r *Runner) settle(e *entry, state State, cause error, stack []byte) error {
	err := r.update(e, func(s *Status) error {
		s.State, s.Reason = state, ""
		if cause != nil && state.Final() {
			s.Reason = shorten(cause.Error())
		}
		return nil
	})
	if err != nil {
		return err
	}
	kind, ok := map[State]Kind{Done: JobDone, Failed: JobFailed, Lost: JobLost}[state]
	if !ok {
		kind = JobQueued
	}
	s := r.status(e)
	r.o.Observe(Event{Kind: kind, Job: s, LeaseID: s.LeaseID, Token: s.Token, Err: cause, Stack: stack})
	return nil
}

// shorten bounds a text that is kept.
func shorten(text string) string {
	const most = 1000
	if len(text) > most {
		text = text[:most]
	}
	return strings.ToValidUTF8(text, "\ufffd")
}
