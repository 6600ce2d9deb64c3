package raftkv

import (
	"context"
	"errors"
	"time"

	"leased/contract"
	"leased/contract/lifecycle"
)

// leaveTimeout bounds how long a call whose wait is over waits to learn that it
// was in the queue, and that it left: half of it for either. It is less than
// contract.AnswerSlack.
const leaveTimeout = contract.AnswerSlack * 9 / 10

// leaveBatch bounds how many calls leave in one entry.
const leaveBatch = 256

// answered is what came of a proposal.
type answered struct {
	answer any
	err    error
}

// acquireWaiting acquires, waiting in the queue of a held key. Whatever ends the
// wait, the call leaves its place through the log, so that no grant comes after
// an answer that said no.
func (s *Store) acquireWaiting(ctx context.Context, r *contract.AcquireRequest, c *acquireCmd) (contract.Result, error) {
	if ctx.Err() != nil {
		return contract.Result{}, contract.NotSubmitted(ctx)
	}
	over := time.NewTimer(r.Wait)
	defer over.Stop()
	call := s.engine.waiters.join(c.Scope)

	// The proposal must be seen to its end even when the caller leaves before:
	// only its answer tells whether there is a place to leave.
	proposed := make(chan answered, 1)
	// It has no deadline of its own: the log answers in the end, and a place whose
	// making nobody saw would be served with nobody there.
	if !s.engine.start(func() {
		answer, err := s.engine.propose(context.WithoutCancel(ctx), kindAcquire, c)
		proposed <- answered{answer, err}
	}) {
		s.exit(call, c)
		return contract.Result{}, lifecycle.Closed()
	}

	select {
	case a := <-proposed:
		return s.enqueued(ctx, call, c, a, over, time.Time{})
	case <-over.C:
		over.Reset(0) // enqueued looks at it again
	case <-ctx.Done():
	case <-s.handle.Closing():
	}
	// The answer is most likely on its way, and says more than "unknown".
	limit := time.Now().Add(leaveTimeout)
	patience := time.NewTimer(leaveTimeout / 2)
	defer patience.Stop()
	select {
	case a := <-proposed:
		return s.enqueued(ctx, call, c, a, over, limit)
	case <-patience.C:
	}
	s.abandon(call, c, proposed)
	return contract.Result{}, contract.Lost(ctx)
}

// enqueued goes on from the answer to the proposal. limit is by when the call
// must answer if its wait is over already, and zero if it is not.
func (s *Store) enqueued(
	ctx context.Context, call *call, c *acquireCmd, a answered, over *time.Timer, limit time.Time,
) (contract.Result, error) {
	r, ok := a.answer.(reply)
	if a.err != nil || !ok || r.attach == 0 {
		if ok && r.outcome == contract.OutcomeAcquired {
			// The log has said whether this is a replay.
			s.engine.waiters.take(call)
		} else {
			s.exit(call, c)
		}
		return resultOf(a.answer, a.err)
	}
	s.engine.waiters.attached(call, r.attach)
	within := func() time.Time {
		if limit.IsZero() {
			limit = time.Now().Add(leaveTimeout)
		}
		return limit
	}
	select {
	case t := <-call.ch:
		return s.turned(ctx, call, c, t)
	case <-over.C:
		return s.leave(ctx, call, c, false, within())
	case <-ctx.Done():
		return s.leave(ctx, call, c, isGone(ctx), within())
	case <-s.handle.Closing():
		return s.leaveClosing(ctx, call, c, within())
	}
}

// errWaitOver is the cause for which a call ends whose wait is over where it came
// from.
var errWaitOver error = constError("the wait is over")

// isGone tells that nobody waits for the answer any more. A deadline that passed
// is no such sign, nor is the end of a forwarded wait: whoever set them still
// listens.
func isGone(ctx context.Context) bool {
	return errors.Is(ctx.Err(), context.Canceled) && !errors.Is(context.Cause(ctx), errWaitOver)
}

// turned answers a call whose turn came, or will not come. A turn that meets the
// end of the call finds nobody to take it, and is given back.
func (s *Store) turned(ctx context.Context, call *call, c *acquireCmd, t turn) (contract.Result, error) {
	switch {
	case t.err != nil:
		s.exit(call, c)
		return contract.Result{}, t.err
	case t.reply.outcome != contract.OutcomeAcquired:
		s.exit(call, c)
	case isGone(ctx):
		return s.depart(ctx, call, c, true, time.Now().Add(leaveTimeout))
	default:
		t.reply.replayed = !s.engine.waiters.takeTurn(call)
	}
	return t.reply.result()
}

// exit ends a call that has its answer. When it was the last one at a place that
// another copy had made, the place is left with it.
func (s *Store) exit(call *call, c *acquireCmd) {
	if attach, last := s.engine.waiters.leave(call); last && attach != 0 {
		s.engine.leave(awayOf(c, attach, true))
	}
}

// leave ends a wait by limit. With undo nobody is there to take a grant that
// crosses it.
func (s *Store) leave(ctx context.Context, call *call, c *acquireCmd, undo bool, limit time.Time) (contract.Result, error) {
	select {
	case t := <-call.ch:
		if !undo || t.err != nil || t.reply.outcome != contract.OutcomeAcquired {
			return s.turned(ctx, call, c, t)
		}
	default:
	}
	return s.depart(ctx, call, c, undo, limit)
}

func (s *Store) depart(ctx context.Context, call *call, c *acquireCmd, undo bool, limit time.Time) (contract.Result, error) {
	attach, last := s.engine.waiters.leave(call)
	if !last {
		// A copy of this attempt is still there and keeps the place, or has taken
		// the grant: only ask how it stands.
		attach, undo = 0, false
	}
	left := s.engine.leave(awayOf(c, attach, undo))
	patience := time.NewTimer(time.Until(limit))
	defer patience.Stop()
	select {
	case a := <-left:
		if a.err != nil {
			return contract.Result{}, uncertain(a.err)
		}
		return resultOf(a.answer, nil)
	case <-patience.C:
		return contract.Result{}, uncertain(context.Cause(ctx))
	}
}

// leaveClosing ends a wait because the store closes: certainly not granted, or
// unknown.
func (s *Store) leaveClosing(ctx context.Context, call *call, c *acquireCmd, limit time.Time) (contract.Result, error) {
	r, err := s.leave(ctx, call, c, true, limit)
	switch {
	case err != nil:
		return r, err
	case r.Outcome == contract.OutcomeConflict:
		return contract.Result{}, contract.Errorf(contract.CodeClosed, nil,
			"the store closed while this call waited; repeat it with the same request id to keep the place")
	}
	return r, nil
}

func awayOf(c *acquireCmd, attach uint64, undo bool) awayItem {
	return awayItem{Namespace: c.Namespace, KeyID: c.KeyID, Scope: c.Scope, Attach: attach, Undo: undo}
}

// uncertain turns the error of a command that would have ended a wait into the
// error of the wait: whether the turn came before is not known.
func uncertain(err error) error {
	return contract.Errorf(contract.CodeOutcomeUnknown, err,
		"the wait ended and it is not known whether the turn came first; repeat it with the same request id")
}

// abandon sees a proposal to its end whose caller has gone, and gives back the
// place it made. A grant that came at once stays: the caller was told that the
// outcome is unknown, and finds it under its request id.
func (s *Store) abandon(call *call, c *acquireCmd, proposed <-chan answered) {
	e := s.engine
	if !e.start(func() {
		a := <-proposed
		r, ok := a.answer.(reply)
		if a.err != nil || !ok || r.attach == 0 {
			s.exit(call, c)
			return
		}
		e.waiters.attached(call, r.attach)
		attach, last := e.waiters.leave(call)
		if !last {
			return
		}
		if a := <-e.leave(awayOf(c, attach, true)); a.err != nil {
			e.log.Warn("raftkv: a waiter that had gone could not leave its queue", "err", a.err)
		}
	}) {
		s.exit(call, c)
	}
}
