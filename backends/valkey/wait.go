package valkey

import (
	"context"
	"errors"
	"time"

	"leased/contract"
)

const (
	// finalTimeout bounds how long a call whose wait is over waits to learn
	// whether its turn came first. It is less than contract.AnswerSlack: the answer
	// has to be brought too, and many waits may be over at once.
	finalTimeout = contract.AnswerSlack * 3 / 4
	// finalShare is the least of it that is left for the last try when another
	// one still runs.
	finalShare = contract.AnswerSlack / 4
	// tryTimeout bounds a try of a waiting call.
	tryTimeout = 5 * time.Second
	// lookAgain is how often a waiting call tries though nothing woke it.
	lookAgain = 10 * time.Second
	// beat is how often a call that must answer looks at the clock.
	beat = 5 * time.Millisecond
	// leavePause is the pause between attempts to do what an outage keeps from being
	// done.
	leavePause = 200 * time.Millisecond
)

// tried is what came of a try.
type tried struct {
	rep *reply
	err error
}

// wait is a call that waits for a held key.
type wait struct {
	s    *Store
	a    *attempt
	w    *waiter
	over *time.Timer
	// try is running when not nil.
	running chan tried
	// placed tells that a try made a place, or may have. From then on whoever frees
	// the key may grant it to this call, whatever becomes of the call's own commands.
	placed bool
}

// acquireWaiting acquires, waiting in the queue of a held key. A grant is made
// by a try of the call itself, so that nobody holds the key for a caller who is
// dead; and whatever ends the wait, the call sees its last try to the end, so
// that no grant comes after an answer that said no.
func (s *Store) acquireWaiting(ctx context.Context, a *attempt, patience time.Duration) (contract.Result, error) {
	if _, err := s.link.get(ctx); err != nil {
		return contract.Result{}, err // nothing was sent, which tries of its own could not tell
	}
	w := &wait{s: s, a: a, w: a.room.join(a.scope), over: time.NewTimer(patience)}
	defer w.over.Stop()
	again := time.NewTimer(lookAgain)
	defer again.Stop()
	w.start()
	for {
		select {
		case t := <-w.running:
			w.running = nil
			switch {
			case t.err != nil && !w.placed:
				return w.failed(t.err)
			case t.err != nil:
				again.Reset(leavePause) // the outage may end before the wait does
			case t.rep.code != "parked":
				return w.answer(ctx, t.rep)
			default:
				w.placed = true
				again.Reset(lookAgain)
			}
		case <-w.wake():
			w.start()
		case <-again.C:
			if w.running == nil {
				w.start()
			}
			again.Reset(lookAgain)
		case <-w.over.C:
			return w.end(ctx)
		case <-ctx.Done():
			return w.end(ctx)
		case <-s.handle.Closing():
			return w.close(ctx)
		case <-s.dead:
			return contract.Result{}, contract.Errorf(contract.CodeOutcomeUnknown, nil, "the store died during the call")
		}
	}
}

// wake is not listened to while a try runs: it would say nothing that the try
// does not find out by itself, unless it came later; then it is still there.
func (w *wait) wake() <-chan struct{} {
	if w.running != nil {
		return nil
	}
	return w.w.wake
}

// start tries once more, in the background and with a bound of its own: only
// the answer tells whether there is a place to leave, or a grant.
func (w *wait) start() {
	ch := make(chan tried, 1)
	args := w.a.with(modeWait, w.a.room.number(w.w))
	w.running = ch
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), tryTimeout)
		defer cancel()
		rep, err := w.s.try(ctx, w.a, args)
		ch <- tried{rep, err}
	}()
}

// failed ends a call whose first try failed.
func (w *wait) failed(err error) (contract.Result, error) {
	w.a.room.part(w.w)
	if !unapplied(err) {
		w.a.room.tidyLater()
	}
	return contract.Result{}, err
}

// unapplied tells that a command with this error certainly changed nothing.
func unapplied(err error) bool {
	code := contract.CodeOf(err)
	return code == contract.CodeUnavailable || code == contract.CodeTimeout || code == contract.CodeClosed
}

// answer ends a call with the answer of a try.
func (w *wait) answer(ctx context.Context, rep *reply) (contract.Result, error) {
	w.a.room.part(w.w)
	res, err := w.s.acquired(w.a.room, rep)
	if err != nil || res.Outcome != contract.OutcomeAcquired || res.Replayed || !isGone(ctx) {
		return res, err
	}
	return w.undo(res.Lease.ID)
}

// isGone tells that nobody waits for the answer any more. A deadline that passed
// is no such sign: whoever set it still listens.
func isGone(ctx context.Context) bool { return errors.Is(ctx.Err(), context.Canceled) }

func (w *wait) undo(id contract.LeaseID) (contract.Result, error) {
	ctx, cancel := context.WithTimeout(context.Background(), finalTimeout)
	defer cancel()
	res, err := w.s.undo(ctx, w.a, id)
	if err != nil {
		return contract.Result{}, uncertain(err)
	}
	return res, nil
}

// end ends a call whose wait is over, or whose caller has gone.
func (w *wait) end(ctx context.Context) (contract.Result, error) {
	limit := time.Now().Add(finalTimeout)
	if done, res, err := w.settle(ctx, limit); done {
		return res, err
	}
	n := w.a.room.part(w.w)
	gone := isGone(ctx)
	final := make(chan tried, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), tryTimeout)
		defer cancel()
		var t tried
		if gone {
			t.rep, t.err = w.s.leave(ctx, w.a, n)
		} else {
			t.rep, t.err = w.s.try(ctx, w.a, w.a.with(modeFinal, n))
		}
		final <- t
	}()
	t, ok := within(final, limit)
	switch {
	case !ok:
		w.after(final)
		return contract.Result{}, contract.Lost(ctx)
	case t.err == nil:
		return w.s.acquired(w.a.room, t.rep)
	case !w.placed:
		return contract.Result{}, t.err
	case !gone && unapplied(t.err):
		return w.leaveInstead(ctx, t.err, n, limit)
	}
	w.a.room.tidyLater()
	return contract.Result{}, uncertain(t.err)
}

// leaveInstead leaves the place of a call whose last try was refused, as by a
// server that has no memory for grants: only without the place is it certain that
// no grant comes, or has come.
func (w *wait) leaveInstead(ctx context.Context, refused error, n uint64, limit time.Time) (contract.Result, error) {
	ctx, cancel := context.WithDeadline(context.WithoutCancel(ctx), limit)
	defer cancel()
	rep, err := w.s.leave(ctx, w.a, n)
	if err != nil {
		w.a.room.tidyLater()
		return contract.Result{}, uncertain(refused)
	}
	res, err := w.s.acquired(w.a.room, rep)
	switch {
	case err != nil:
		return contract.Result{}, err
	case res.Lease == nil:
		return contract.Result{}, refused // the key is free, but it is not to be had
	case res.Lease.RequestID == w.a.by.requestID && res.Lease.Owner == w.a.by.principal:
		return contract.Result{}, uncertain(refused) // a copy of the call was granted it
	}
	return res, nil
}

// within waits for an answer until limit, and for as much longer as this
// process was not run meanwhile: the answer may be there and nobody to take it.
func within(ch <-chan tried, limit time.Time) (tried, bool) {
	timer := time.NewTimer(beat)
	defer timer.Stop()
	for {
		pause := min(beat, time.Until(limit))
		due := time.Now().Add(pause)
		timer.Reset(pause)
		select {
		case t := <-ch:
			return t, true
		case <-timer.C:
		}
		if late := time.Since(due); late > time.Millisecond {
			limit = limit.Add(late)
		}
		if !time.Now().Before(limit) {
			return tried{}, false
		}
	}
}

// after sees a try to its end whose caller was told that the outcome is unknown.
// Whoever asks again finds the grant, should it have come; but nobody is left to
// take one that comes later.
func (w *wait) after(running <-chan tried) {
	w.s.start(func(context.Context) {
		<-running // bounded by tryTimeout
		w.a.room.tidyLater()
	})
}

// settle sees a try that runs to its end. It reports whether that ended the
// call.
func (w *wait) settle(ctx context.Context, limit time.Time) (bool, contract.Result, error) {
	if w.running == nil {
		return false, contract.Result{}, nil
	}
	t, ok := within(w.running, limit.Add(-finalShare))
	switch {
	case !ok:
		w.a.room.part(w.w)
		w.after(w.running)
		return true, contract.Result{}, contract.Lost(ctx)
	case t.err == nil && t.rep.code != "parked":
		res, err := w.answer(ctx, t.rep)
		return true, res, err
	}
	w.placed = w.placed || t.err == nil || !unapplied(t.err)
	return false, contract.Result{}, nil
}

// close ends a call because the store closes: certainly not granted, or unknown.
func (w *wait) close(ctx context.Context) (contract.Result, error) {
	limit := time.Now().Add(finalTimeout)
	if done, res, err := w.settle(ctx, limit); done {
		return res, err
	}
	// All calls of this gateway end: it leaves for those that share the place too,
	// so that each of them can tell.
	n := w.a.room.attached(w.w)
	w.a.room.part(w.w)
	if w.placed {
		final, cancel := context.WithDeadline(context.Background(), limit)
		defer cancel()
		if _, err := w.s.leave(final, w.a, n); err != nil {
			// The place is left when the heartbeat ends; until then it can be served.
			return contract.Result{}, uncertain(err)
		}
	}
	return contract.Result{}, contract.Errorf(contract.CodeClosed, nil,
		"the store closed while this call waited; repeat it with the same request id to keep the place")
}

// leave takes the attempt's calls away from its place.
func (s *Store) leave(ctx context.Context, a *attempt, n uint64) (*reply, error) {
	return s.exec(ctx, a.room, s.scripts.leave, a.key.String(), string(a.scope[:]), s.gateway, num(n))
}

// uncertain turns the error of a command that would have undone a grant into
// the error of the call.
func uncertain(err error) error {
	return contract.Errorf(contract.CodeOutcomeUnknown, err,
		"the wait ended and it is not known whether the turn came first; repeat it with the same request id")
}
