package etcd

import (
	"context"
	"errors"
	"slices"
	"time"

	"leased/contract"
)

// wait acquires a key that others hold or have a right to. Whatever ends the
// wait, the line is told and answers: a call that is not told a grant has none.
// seen is the state in which there was nothing to be had, nil for a call that has
// looked at nothing yet.
func (s *Store) wait(ctx context.Context, a *attempt, seen *state) (contract.Result, error) {
	if ctx.Err() != nil {
		return contract.Result{}, contract.NotSubmitted(ctx)
	}
	w := &waiter{ch: make(chan told, 1), since: a.began}
	if seen != nil {
		w.saw, w.looked = seen.active(), true
	}
	l := s.line(a, w)
	if l == nil {
		return contract.Result{}, errClosed()
	}
	if a.until.IsZero() {
		a.until = time.Now().Add(a.req.Wait)
	}
	over := time.NewTimer(time.Until(a.until))
	defer over.Stop()
	closing := false
	select {
	case m := <-w.ch:
		return s.take(ctx, a, m, isGone(ctx), time.Now().Add(leaveTimeout))
	case <-over.C:
	case <-ctx.Done():
	case <-s.handle.Closing():
		closing = true
	}
	limit := time.Now().Add(leaveTimeout)
	gone := closing || isGone(ctx)
	l.leave(a, w, gone, limit)
	patience := time.NewTimer(time.Until(limit))
	defer patience.Stop()
	select {
	case m := <-w.ch:
		res, err := s.take(ctx, a, m, gone, limit)
		if closing && err == nil && res.Outcome == contract.OutcomeConflict {
			return contract.Result{}, errClosed()
		}
		return res, err
	case <-patience.C:
		return s.abandon(ctx, l, a, w, closing)
	}
}

// abandon answers a call whose leaving etcd did not confirm in time. If no grant
// is on its way to it none will be: the line knows it no longer.
func (s *Store) abandon(ctx context.Context, l *line, a *attempt, w *waiter, closing bool) (contract.Result, error) {
	l.mu.Lock()
	sp := l.waiting[a.scope]
	mine := sp != nil && slices.Contains(sp.calls, w)
	if mine && !sp.pending {
		sp.calls = slices.DeleteFunc(sp.calls, func(c *waiter) bool { return c == w })
		holder, looked, t := l.seenBy(w), w.looked, now()
		l.mu.Unlock()
		switch {
		case closing:
			return contract.Result{}, errClosed()
		case holder == nil || holder.isOf(a) || !looked:
			// Its attempt may have been granted the key long ago.
			return contract.Result{}, contract.Lost(ctx)
		}
		return contract.Result{Outcome: contract.OutcomeConflict, Lease: holder.lease(l.ref.ns, t)}, nil
	}
	l.mu.Unlock()
	select {
	case m := <-w.ch: // the answer came with the last moment
		res, err := s.take(ctx, a, m, closing || isGone(ctx), time.Now())
		if closing && err == nil && res.Outcome == contract.OutcomeConflict {
			return contract.Result{}, errClosed()
		}
		return res, err
	default:
	}
	// The line sees to it that a grant which comes yet is given back.
	s.start(func() {
		select {
		case m := <-w.ch:
			_, _ = s.take(context.WithoutCancel(ctx), a, m, true, time.Now())
		case <-s.life.Done(): // the lines have ended too, and give nothing back any more
		}
	})
	return contract.Result{}, contract.Lost(ctx)
}

// seenBy returns who was seen to hold the key since the call began. What was read
// before says nothing to it: an earlier call under its request id may have been
// granted the key since, and not know. The caller holds the lock.
func (l *line) seenBy(w *waiter) *record {
	if l.asked.Before(w.since) {
		return w.saw
	}
	return l.holder
}

// isGone tells that nobody waits for the answer any more. A deadline that passed
// is no such sign: whoever set it still listens.
func isGone(ctx context.Context) bool { return errors.Is(ctx.Err(), context.Canceled) }

// take answers a call with what it was told. A grant that nobody is there to
// take is given back, and how that went is waited for until then.
func (s *Store) take(ctx context.Context, a *attempt, m told, gone bool, until time.Time) (contract.Result, error) {
	if m.share == nil {
		return m.res, m.err
	}
	last := m.share.take(gone)
	switch {
	case !gone:
		return m.res, m.err
	case !last:
		return contract.Result{}, contract.Lost(ctx) // a copy may take it
	}
	undo, cancel := context.WithTimeout(s.life, lineTimeout)
	type undone struct {
		ok  bool
		err error
	}
	done := make(chan undone, 1)
	if !s.start(func() {
		defer cancel()
		ok, err := s.undo(undo, a, m.share)
		done <- undone{ok, err}
		if err != nil {
			s.giveBack(a, m.share)
		}
	}) {
		cancel()
		return contract.Result{}, contract.Lost(ctx)
	}
	patience := time.NewTimer(time.Until(until))
	defer patience.Stop()
	select {
	case u := <-done:
		switch {
		case u.err != nil:
			return contract.Result{}, writeError(ctx, u.err, true)
		case !u.ok:
			return contract.Result{}, contract.Lost(ctx) // somebody asked again, and has it
		}
		return contract.Result{Outcome: contract.OutcomeConflict}, nil
	case <-patience.C:
		return contract.Result{}, contract.Lost(ctx)
	}
}

// setPending notes that a grant for the spot is on its way, or no longer. It
// reports whether anybody is there to take one.
func (l *line) setPending(sp *spot, pending bool) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	sp.pending = pending && len(sp.calls) > 0
	return sp.pending
}

// deliver answers the spots that have an answer, with all of their calls, and
// the calls that leave, with a conflict: with holder, as of an instant at or after at.
// To a call that began later that says nothing, as to seenBy. The key can have been
// released before it came, which who looks for the whole line learns late.
func (t *turn) deliver(sessions map[string]bool, holder *record, at time.Time) {
	l := t.l
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, a := range t.answers {
		l.answer(a.sp, a.msg)
	}
	for _, lo := range t.locals {
		if l.waiting[lo.a.scope] != lo.sp {
			continue
		}
		var res contract.Result
		if len(lo.leavers) > 0 {
			res = contract.Result{Outcome: contract.OutcomeConflict, Queue: t.q.seenBy(lo.a.scope, sessions)}
		}
		for _, w := range lo.leavers {
			msg, holds := told{res: res}, holder
			if at.Before(w.since) {
				holds = w.saw
			}
			switch {
			case holds != nil:
				msg.res.Lease = holds.lease(l.ref.ns, now())
			case !w.gone:
				// The key goes from one to the next, and who that is was not seen in time.
				msg = told{err: contract.Errorf(contract.CodeOutcomeUnknown, nil,
					"the wait ended while the key was passed on; repeat it with the same request id")}
			}
			w.ch <- msg
		}
		lo.sp.calls = slices.DeleteFunc(lo.sp.calls, func(w *waiter) bool { return slices.Contains(lo.leavers, w) })
		switch {
		case len(lo.sp.calls) > 0:
		case !lo.out:
			l.poke() // all have gone meanwhile; the place is left next
		case time.Now().Before(lo.sp.doubt):
			// Its place may appear yet, and is left then.
		default:
			// A grant of which the outcome is not known cannot come any more: the
			// queue that it compared has changed.
			l.drop(lo.sp)
		}
	}
}

// answer tells all calls at a spot, of which one did the work. The caller holds
// the lock.
func (l *line) answer(sp *spot, msg told) {
	if msg.share != nil && sp.granted == msg.share.id {
		return // as it was found in etcd, before whoever wrote it could tell
	}
	there := l.waiting[sp.a.scope] == sp
	if msg.share != nil {
		sp.granted = msg.share.id
		msg.share.calls = len(sp.calls)
		if !there || len(sp.calls) == 0 {
			// All were told something else, while the grant was on its way.
			l.s.start(func() { l.s.giveBack(sp.a, msg.share) })
		}
	}
	if !there {
		return
	}
	l.drop(sp)
	for i, w := range sp.calls {
		msg := msg
		if msg.share != nil {
			msg.res.Replayed = i > 0
		}
		if msg.res.Lease != nil {
			lease := msg.res.Lease.Clone()
			msg.res.Lease = &lease
		}
		w.ch <- msg
	}
}

// giveBack undoes a grant that nobody took. Until it is undone nobody else can
// have the key, so it is tried until the grant has had its time.
func (s *Store) giveBack(a *attempt, g *share) {
	ctx, cancel := context.WithTimeout(s.life, a.req.TTL)
	defer cancel()
	for pause := retryPause; ctx.Err() == nil; pause = min(2*pause, lineTimeout) {
		try, stop := context.WithTimeout(ctx, lineTimeout)
		_, err := s.undo(try, a, g)
		stop()
		if err == nil {
			return
		}
		if pause == retryPause { // once: etcd may refuse it for as long as the grant lasts
			s.config.Logger.Warn("a grant that nobody took is not undone yet", "error", err)
		}
		sleep(ctx, pause)
	}
}

// turnAway answers spots that etcd refuses a place, all of the line's if none
// are named: one that is full or permits nothing will not have changed its mind
// by the end of a wait.
func (l *line) turnAway(err error, spots []*spot) {
	fail, ok := errors.AsType[*failure](err)
	if !ok || fail.unknown() || fail.elsewhere() {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, scope := range slices.Clone(l.order) {
		if sp := l.waiting[scope]; !sp.pending && (spots == nil || slices.Contains(spots, sp)) {
			l.answer(sp, told{err: refusal(fail)})
		}
	}
}

// drop takes a spot out of the line. The caller holds the lock.
func (l *line) drop(sp *spot) {
	delete(l.waiting, sp.a.scope)
	l.order = slices.DeleteFunc(l.order, func(s contract.Scope) bool { return s == sp.a.scope })
}
