package raftkv

import (
	"context"
	"errors"
	"time"

	"leased/contract"
)

// leaveTimeout bounds how long a call whose wait is over waits to learn that it
// left the queue. It is less than contract.AnswerSlack.
const leaveTimeout = contract.AnswerSlack * 3 / 4

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
	own, cancel := context.WithTimeout(context.WithoutCancel(ctx), ownTimeout)
	if !s.engine.start(func() {
		defer cancel()
		answer, err := s.engine.propose(own, kindAcquire, c)
		proposed <- answered{answer, err}
	}) {
		cancel()
		s.engine.waiters.leave(call)
		return contract.Result{}, contract.Errorf(contract.CodeClosed, nil, "the store is closed")
	}

	select {
	case a := <-proposed:
		return s.enqueued(ctx, call, c, a, over)
	case <-ctx.Done():
	case <-s.closing:
	}
	s.abandon(call, c, proposed)
	return contract.Result{}, contract.Lost(ctx)
}

// enqueued goes on from the answer to the proposal.
func (s *Store) enqueued(ctx context.Context, call *call, c *acquireCmd, a answered, over *time.Timer) (contract.Result, error) {
	r, ok := a.answer.(reply)
	if a.err != nil || !ok || r.attach == 0 {
		if ok && r.outcome == contract.OutcomeAcquired {
			return s.taken(call, r)
		}
		s.engine.waiters.leave(call)
		return resultOf(a.answer, a.err)
	}
	s.engine.waiters.attached(call, r.attach)
	select {
	case t := <-call.ch:
		return s.turned(call, t)
	case <-over.C:
		return s.leave(ctx, call, c, false)
	case <-ctx.Done():
		return s.leave(ctx, call, c, errors.Is(ctx.Err(), context.Canceled))
	case <-s.closing:
		return s.leaveClosing(ctx, call, c)
	}
}

// turned answers a call whose turn came, or will not come.
func (s *Store) turned(call *call, t turn) (contract.Result, error) {
	if t.err != nil {
		s.engine.waiters.leave(call)
		return contract.Result{}, t.err
	}
	if t.reply.outcome == contract.OutcomeAcquired {
		return s.taken(call, t.reply)
	}
	s.engine.waiters.leave(call)
	return t.reply.result()
}

// taken answers with a grant. Of several copies of the attempt that were served
// together the first one did the work, the others repeat its answer.
func (s *Store) taken(call *call, r reply) (contract.Result, error) {
	if !s.engine.waiters.take(call) {
		r.replayed = true
	}
	return r.result()
}

// leave ends a wait. With undo nobody is there to take a grant that crosses it.
func (s *Store) leave(ctx context.Context, call *call, c *acquireCmd, undo bool) (contract.Result, error) {
	select {
	case t := <-call.ch:
		if !undo || t.err != nil || t.reply.outcome != contract.OutcomeAcquired {
			return s.turned(call, t)
		}
	default:
	}
	attach, last := s.engine.waiters.leave(call)
	if !last {
		// A copy of this attempt is still there and keeps the place.
		return s.refused(ctx, c)
	}
	left := make(chan answered, 1)
	if !s.engine.start(func() {
		own, cancel := context.WithTimeout(context.WithoutCancel(ctx), ownTimeout)
		defer cancel()
		answer, err := s.engine.propose(own, kindAway, awayOf(c, attach, undo))
		left <- answered{answer, err}
	}) {
		return contract.Result{}, contract.Lost(ctx)
	}
	patience := time.NewTimer(leaveTimeout)
	defer patience.Stop()
	select {
	case a := <-left:
		if a.err != nil {
			return contract.Result{}, uncertain(a.err)
		}
		return resultOf(a.answer, nil)
	case <-patience.C:
		return contract.Result{}, contract.Lost(ctx)
	}
}

// leaveClosing ends a wait because the store closes: certainly not granted, or
// unknown.
func (s *Store) leaveClosing(ctx context.Context, call *call, c *acquireCmd) (contract.Result, error) {
	r, err := s.leave(ctx, call, c, true)
	switch {
	case err != nil:
		return r, err
	case r.Outcome == contract.OutcomeConflict:
		return contract.Result{}, contract.Errorf(contract.CodeClosed, nil,
			"the store closed while this call waited; repeat it with the same request id to keep the place")
	}
	return r, nil
}

func awayOf(c *acquireCmd, attach uint64, undo bool) *awayCmd {
	return &awayCmd{Namespace: c.Namespace, KeyID: c.KeyID, Scope: c.Scope, Attach: attach, Undo: undo}
}

// uncertain turns the error of a command that would have ended a wait into the
// error of the wait: whether the turn came before is not known.
func uncertain(err error) error {
	return contract.Errorf(contract.CodeOutcomeUnknown, err,
		"the wait ended and it is not known whether the turn came first; repeat it with the same request id")
}

// refused answers a call that leaves while a copy of it stays in the queue.
func (s *Store) refused(ctx context.Context, c *acquireCmd) (contract.Result, error) {
	own, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveTimeout)
	defer cancel()
	out := contract.Result{Outcome: contract.OutcomeConflict}
	err := s.engine.read(own, dueKey(c.Namespace, c.KeyID), func(st *state, now int64) {
		ks := st.key(&ident{ns: c.Namespace, id: c.KeyID})
		if ks == nil || ks.active == nil {
			return
		}
		v := view(ks.active, now)
		out.Lease = &v
		out.Queue.Length = int(ks.present)
		if w, ok := st.places.Get(&waiter{cmd: c}); ok {
			out.Queue = st.queueOf(ks, w)
		}
	})
	if err != nil {
		return contract.Result{}, uncertain(err)
	}
	return out, nil
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
			e.waiters.leave(call)
			return
		}
		e.waiters.attached(call, r.attach)
		attach, last := e.waiters.leave(call)
		if !last {
			return
		}
		own, cancel := context.WithTimeout(context.Background(), ownTimeout)
		defer cancel()
		if _, err := e.propose(own, kindAway, awayOf(c, attach, true)); err != nil {
			e.log.Warn("raftkv: a waiter that had gone could not leave its queue", "err", err)
		}
	}) {
		e.waiters.leave(call)
	}
}
