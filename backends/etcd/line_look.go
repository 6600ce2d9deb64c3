package etcd

import (
	"context"
	"time"
)

// looks is how many times in a row a line looks at its key without writing
// anything before it pauses. Two are enough to see whose turn it is, and each more
// means that somebody else wrote meanwhile: a line that goes on and on about what
// nobody changes must not ask for it as fast as etcd answers.
const looks = 8

// look is what came of a look at the key.
type look struct {
	again time.Duration // when to look again even if nothing happens; 0 for no time in particular
	more  bool          // there is more to do now
	wrote bool          // something was written
	// next is the attempt that the next look is to be about: a closer one, which
	// reads the key, and with it what the attempt's quota needs.
	next *attempt
}

// step does what there is to do for the line's calls now. again is when to look
// again even if nothing happens; 0 for no time in particular.
func (l *line) step(ctx context.Context) (again time.Duration, err error) { return steps(ctx, l.once) }

func steps(ctx context.Context, once func(context.Context, *attempt) (look, error)) (again time.Duration, err error) {
	var next *attempt
	for idle := 0; idle < looks; idle++ {
		k, err := once(ctx, next)
		switch {
		case err != nil:
			return retryPause, err
		case !k.more:
			return k.again, nil
		case k.wrote:
			idle = -1
		}
		next = k.next
	}
	return looksPause, nil
}

// looksPause is the pause after looks.
const looksPause = 20 * time.Millisecond

// once looks at the key and writes at most one transaction. guess is the attempt
// whose turn it seems to be, if that is to be looked at closely.
func (l *line) once(ctx context.Context, guess *attempt) (k look, err error) {
	ctx, cancel := context.WithTimeout(ctx, lineTimeout)
	defer cancel()
	t := &turn{l: l}
	if t.session, err = l.s.presence.ensure(ctx); err != nil {
		l.turnAway(err, nil) // without a session nobody here has a place
		return look{}, err
	}
	if t.locals = l.snapshot(); len(t.locals) == 0 {
		return look{}, nil
	}
	defer func() {
		l.seated(t.seated)
		k.wrote = t.wrote
	}()
	if guess == nil { // else the look before this one was not close enough
		if t.st = l.glance(t.locals, t.session); t.st != nil {
			return t.hurry(ctx)
		}
		guess = t.locals[0].a
	}
	t.asked = time.Now()
	if t.st, err = l.s.load(ctx, l.ref, guess.want()); err != nil {
		return look{}, err
	}
	l.see(t.st, t.asked)
	switch {
	case !t.st.sessions[t.session]:
		l.s.presence.lost(t.session)
		return look{more: true}, nil
	case t.st.due():
		return look{more: true, next: guess}, l.s.settle(ctx, t.st)
	}
	if err := t.place(ctx); err != nil {
		return look{}, err
	}
	if t.st.active() == nil && t.left <= mixStep {
		if first := t.firstLocal(); first != nil {
			if first.a.want().owner != t.st.want.owner {
				return look{more: true, next: first.a}, nil
			}
			more, err := t.serve(ctx, first)
			return look{more: more}, err
		}
		if t.patience() {
			// The key is another's in a moment, and the leavers can be told whose.
			return look{again: 5 * time.Millisecond}, t.store(ctx, false)
		}
	}
	err = t.store(ctx, true)
	return look{more: t.more || len(t.seated) >= joinStep}, err
}

// see notes what was read, by a look that began at an instant.
func (l *line) see(st *state, asked time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.holder, l.asked = st.active(), asked
	l.known.read(st)
}

// snapshot returns the line's spots.
func (l *line) snapshot() []*local {
	l.mu.Lock()
	defer l.mu.Unlock()
	var locals []*local
	for _, scope := range l.order {
		sp := l.waiting[scope]
		lo := &local{sp: sp, a: sp.a, pending: sp.pending, seating: sp.seating, placed: sp.placed}
		for _, w := range sp.calls {
			if !w.leaving {
				lo.stays = true
				continue
			}
			lo.leavers = append(lo.leavers, w)
			lo.soft = lo.soft || !w.gone
			if lo.limit.IsZero() || w.limit.Before(lo.limit) {
				lo.limit = w.limit
			}
		}
		lo.owed = !lo.stays && sp.isOwed()
		lo.waits = l.gathering && len(lo.leavers) == 0
		locals = append(locals, lo)
	}
	return locals
}
