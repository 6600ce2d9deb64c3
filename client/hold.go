package client

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"leased/client/internal/abandon"
	"leased/gateway/api"
)

const (
	// undoTimeout bounds how long Hold takes, after its context has ended, to give
	// a lease back that it may have been granted.
	undoTimeout = 2 * time.Second
	// lateRelease is how long after the end of a lease in doubt its release may
	// still be tried.
	lateRelease = time.Second
	// releasers is how many leases of a group Shutdown releases at a time.
	releasers = 16
)

// HoldRequest asks for a lease that is kept until it is released.
type HoldRequest struct {
	AcquireRequest
	// Margin is how long before the lease could pass to another the work is told
	// to stop: as long as it takes to stop, and at most a third of the TTL. 0 is a
	// sixth of the TTL that was granted.
	Margin time.Duration
}

// Hold acquires the key and keeps the lease until Session.Release, which has to
// be called. Its errors are those of Acquire, and ErrShutdown.
//
// ctx bounds the acquisition and is the parent of the session's context. A lease
// that may have been granted when ctx ended is given back before Hold returns,
// which takes at most two seconds.
func (c *Client) Hold(ctx context.Context, r HoldRequest) (*Session, error) {
	if err := checkMargin(r.Margin, r.TTL); err != nil {
		return nil, err
	}
	held, pending, err := c.keeper.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer c.keeper.leave(pending)
	r.RequestID = orNew(r.RequestID)
	got, err := c.Acquire(held, r.AcquireRequest)
	if err != nil {
		if errors.Is(err, ErrOutcomeUnknown) {
			c.undo(ctx, r.AcquireRequest)
		}
		return nil, shutdownOr(held, err)
	}
	by := heldBy{r.Namespace, r.Instance, got.Lease.LeaseID, got.Lease.Token}
	s, err := c.begin(ctx, held, pending, by, got, r.Margin)
	if err != nil {
		giving, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
		defer cancel()
		// What cannot be released ends with its TTL; err is what the caller asked for.
		_ = c.giveBack(giving, by)
	}
	return s, shutdownOr(held, err)
}

// ResumeRequest names a lease that the caller holds already, such as one from
// before a restart.
type ResumeRequest struct {
	Namespace string
	LeaseID   string
	Token     uint64
	Instance  string
	Margin    time.Duration // as HoldRequest.Margin
}

// Resume renews a lease and keeps it as Hold does. An error that matches ErrLost
// means that the caller does not hold it.
func (c *Client) Resume(ctx context.Context, r ResumeRequest) (*Session, error) {
	if err := checkMargin(r.Margin, 0); err != nil {
		return nil, err
	}
	held, pending, err := c.keeper.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer c.keeper.leave(pending)
	by := heldBy{r.Namespace, r.Instance, r.LeaseID, r.Token}
	got, err := c.Renew(held, RenewRequest{Namespace: r.Namespace, LeaseID: r.LeaseID, Token: r.Token, Instance: r.Instance})
	if err != nil {
		if over(CodeOf(err)) {
			err = &LostError{Namespace: r.Namespace, LeaseID: r.LeaseID, Token: r.Token, At: c.now(), Err: err}
		}
		return nil, shutdownOr(held, err)
	}
	// The lease was the caller's before this call, and stays so when that fails.
	s, err := c.begin(ctx, held, pending, by, got, r.Margin)
	return s, shutdownOr(held, err)
}

// WithLease holds the key for as long as job runs, in the caller's goroutine. job
// must return when its context ends; until it has returned the lease is renewed,
// unless it is lost. The lease is released also when job panics.
//
// The error joins job's own and that of the release: a *LostError when the lease
// was lost, in which case what job did last may have been refused by a fence.
func (c *Client) WithLease(ctx context.Context, r HoldRequest, job func(context.Context, *Session) error) (err error) {
	s, err := c.Hold(ctx, r)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Release()) }()
	return job(s.Context(), s)
}

func checkMargin(margin, ttl time.Duration) error {
	if margin < 0 {
		return newError(api.CodeInvalid, "", nil, "the margin is negative")
	}
	if ttl > 0 && margin > ttl/renewPart {
		return newError(api.CodeInvalid, "", nil, fmt.Sprintf("the margin, %s, is more than a third of the TTL, %s", margin, ttl))
	}
	return nil
}

// shutdownOr returns ErrShutdown for the error of a call that the shutdown ended.
func shutdownOr(held context.Context, err error) error {
	if err != nil && errors.Is(context.Cause(held), ErrShutdown) {
		return ErrShutdown
	}
	return err
}

// begin makes a session of a grant.
func (c *Client) begin(ctx, held context.Context, pending *pendingHold, by heldBy, got *Answer, margin time.Duration) (*Session, error) {
	s := &Session{client: c, request: by, margin: margin, state: Held}
	s.ctx, s.cancel = context.WithCancelCause(context.WithValue(ctx, abandon.Key{}, s.abandon))
	ttl := wireDuration(got.Lease.TTLMS)
	if s.margin == 0 {
		s.margin = ttl / marginPart
	}
	s.interval = time.Duration(float64(ttl/renewPart) * c.spread)
	s.renewed(got.Lease, got.SentAt)
	var err error
	if !atLifetime(got.Lease) {
		// At the end of its lifetime a renewal is granted what is left of the TTL that
		// the margin is a part of.
		err = checkMargin(s.margin, ttl)
	}
	if err == nil {
		// The answer to a wait was sent for long ago: a lease is trusted from before
		// the request on, and may be by now for no time at all.
		err = s.refresh(held)
	}
	if err == nil {
		err = c.keeper.add(s, pending)
	}
	if err != nil {
		s.cancel(err)
		return nil, err
	}
	return s, nil
}

// refresh renews a lease if much of its trust is used up.
func (s *Session) refresh(ctx context.Context) error {
	c := s.client
	if s.due.left(c.now()) > 0 {
		return s.Err()
	}
	call, cancel := context.WithTimeout(ctx, s.interval)
	defer cancel()
	for {
		got, err := c.Renew(call, RenewRequest{
			Namespace: s.request.namespace, LeaseID: s.request.leaseID, Token: s.request.token, Instance: s.request.instance,
		})
		now := c.now()
		switch {
		case err == nil:
			s.renewed(got.Lease, got.SentAt)
			return s.Err()
		case over(CodeOf(err)):
			s.lose(now, false, err)
			return s.Err()
		case ctx.Err() != nil:
			return err
		}
		s.failed(err, now, 0)
		// Whoever waited long for the key has no trust yet, and is not to lose it by
		// one answer that says nothing of the lease.
		if s.look(now).trust > 0 || !sleep(call, shortestPause+s.interval/16) {
			return s.Err()
		}
	}
}

// undo gives back what an acquire may have been granted whose outcome is not
// known: the same request again answers with the grant, if there was one.
func (c *Client) undo(ctx context.Context, r AcquireRequest) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
	defer cancel()
	r.Wait = 0
	if got, err := c.Acquire(ctx, r); err == nil {
		// What cannot be released ends with its TTL.
		_ = c.giveBack(ctx, heldBy{r.Namespace, r.Instance, got.Lease.LeaseID, got.Lease.Token})
	}
}

// giveBack releases a lease. Other sessions on it are lost, and told before another
// could have the key.
func (c *Client) giveBack(ctx context.Context, by heldBy) error {
	for _, s := range c.keeper.on(c.group(by), by.leaseID) {
		s.lose(c.now(), false, newError(api.CodeReleased, "", nil, "another session on the lease released it"))
		s.group.poke()
	}
	_, err := c.release(ctx, ReleaseRequest{Namespace: by.namespace, LeaseID: by.leaseID, Token: by.token, Instance: by.instance}, true)
	return err
}

// Release stops the renewals, ends the session's context, and gives the lease
// back. It has a context of its own, bounded by Options.Timeout, because that of
// the work has often ended by then. The first call does it and all return the
// same.
//
// The error is a *LostError if the lease was lost before, and otherwise that of
// the release: the lease then ends by itself, at Status().Lease.ExpiresAt.
func (s *Session) Release() error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.ctx), s.client.timeout)
	defer cancel()
	return s.releaseWithin(ctx, ErrSessionReleased)
}

func (s *Session) releaseWithin(ctx context.Context, cause error) error {
	s.release.Do(func() { s.releaseErr = s.end(ctx, cause) })
	return s.releaseErr
}

// stop ends the session's context and its renewals, once, and reports whether its
// group stops too.
func (s *Session) stop(cause error) (stopped bool) {
	s.expire(s.client.now())
	if s.finish(Released, nil) {
		s.cancel(cause)
	}
	return s.client.keeper.remove(s)
}

// abandon ends the session and leaves the lease as it is.
func (s *Session) abandon() {
	s.release.Do(func() {
		if s.stop(ErrSessionReleased) {
			<-s.group.done
		}
	})
}

// end stops the renewals before it releases: nothing that is sent afterwards can
// have been meant to keep the lease.
func (s *Session) end(ctx context.Context, cause error) error {
	if s.stop(cause) {
		defer func() { <-s.group.done }()
	}
	status, _ := s.Status()
	lost, isLost := status.Err.(*LostError) //nolint:errorlint // lose made it
	if isLost && !lost.Doubt {
		return lost // there is nothing to give back
	}
	if isLost {
		// In doubt means next to its end. Later there is nothing to give back, but
		// on a backend that is late.
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, s.margin+lateRelease)
		defer cancel()
	}
	err := s.client.giveBack(ctx, s.request)
	switch {
	case isLost:
		return lost // released too if the server could be reached
	case err != nil && over(CodeOf(err)):
		return &LostError{Namespace: s.request.namespace, LeaseID: s.request.leaseID, Token: s.request.token, At: s.client.now(), Err: err}
	default:
		return err
	}
}

// Shutdown ends all sessions: their contexts end at once, with ErrShutdown as the
// cause, and their leases are released, those of a dead backend as well as may be
// until ctx ends. Where ctx has no deadline it gives up when no lease was released
// for Options.Timeout. Holds that wait are ended, and new ones refused. The work
// should have stopped before. Calls still work afterwards.
//
// The error joins those of all leases that were not released.
func (c *Client) Shutdown(ctx context.Context) error {
	groups, idle := c.keeper.shut()
	for _, leases := range groups {
		for _, same := range leases {
			for _, s := range same {
				s.stop(ErrShutdown)
			}
		}
	}
	progress := func() {}
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithCancel(ctx)
		defer cancel()
		stuck := time.AfterFunc(c.timeout, cancel)
		defer stuck.Stop()
		progress = func() { stuck.Reset(c.timeout) }
	}
	var (
		running sync.WaitGroup
		mu      sync.Mutex
		errs    []error
	)
	for _, leases := range groups {
		queue := make(chan []*Session, len(leases))
		for _, same := range leases {
			queue <- same
		}
		close(queue)
		// By group, so that leases of a dead backend do not keep those of another
		// one waiting.
		for range min(releasers, len(leases)) {
			running.Go(func() {
				for same := range queue {
					if err := releaseOnce(ctx, same); err != nil {
						mu.Lock()
						errs = append(errs, fmt.Errorf("release %s: %w", same[0].request.leaseID, err))
						mu.Unlock()
						continue
					}
					progress()
				}
			})
		}
	}
	running.Wait()
	select {
	case <-idle:
	case <-ctx.Done():
		errs = append(errs, fmt.Errorf("an acquire is still being given up: %w", context.Cause(ctx)))
	}
	return errors.Join(errs...)
}

// releaseOnce releases the lease of several sessions.
func releaseOnce(ctx context.Context, same []*Session) error {
	err := same[0].releaseWithin(ctx, ErrShutdown)
	for _, s := range same[1:] {
		s.release.Do(func() { s.releaseErr = err })
	}
	return err
}
