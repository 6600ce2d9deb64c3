package etcd

import (
	"context"
	"errors"
	"slices"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"leased/contract"
)

// local is a spot as it was when a step began.
type local struct {
	sp      *spot
	a       *attempt
	stays   bool      // a call goes on waiting
	owed    bool      // none does, and it is to have a place all the same
	leavers []*waiter // calls whose wait is over
	soft    bool      // one of them would still take a grant
	limit   time.Time // by when the first of them must be answered
	pending bool      // a grant to it is on its way
	seating bool      // a place for it is
	placed  int64     // see spot
	waits   bool      // for the next hand-over, to get one with it
	out     bool      // it has no place once the transaction is through
}

// turn is what one look at the key makes of it.
type turn struct {
	l       *line
	st      *state
	asked   time.Time // before st was read; zero if it was not read for this turn
	session string
	locals  []*local
	q       *queue // as it will be
	joined  []clientv3.Cmp
	seated  []*spot // those that joined is about
	// late is a spot whose wait ended before it had a place. It gets the key if
	// nobody else wants it.
	late    *local
	spent   int  // of stepBudget
	left    int  // places that are left
	more    bool // there was no room for all that there is to do
	wrote   bool // the transaction came about
	fast    bool // the key was not read for this turn
	limited bool // nobody else may come to the queue meanwhile
	answers []answered1
}

// answered1 is an answer for a spot that needs nothing of etcd.
type answered1 struct {
	sp  *spot
	msg told
}

// hurry serves the key to the first spot if it is free, as far as is known.
func (t *turn) hurry(ctx context.Context) (look, error) {
	t.q, t.fast = t.st.queue.clone(), true
	at := t.q.index()
	for _, lo := range t.locals {
		switch i, ok := at[lo.a.scope]; {
		case lo.stays || lo.owed && !ok:
		case ok:
			t.detach(lo, &t.q.places[i])
		case lo.seating:
			lo.leavers = nil // they leave when it is there
		default:
			lo.out = true
		}
	}
	for _, lo := range t.locals {
		if _, ok := at[lo.a.scope]; ok || lo.out || lo.seating || lo.waits && t.st.active() != nil {
			continue
		}
		if t.left > mixStep || !t.spend(joinCost) {
			lo.leavers, t.more = nil, true
			continue
		}
		if t.l.setTried(lo.sp); len(t.seated) >= joinStep || !t.st.toldOf(lo.a.scope) || t.room(lo) != roomMade {
			return look{more: true, next: lo.a}, nil
		}
		t.seat(lo)
	}
	if t.st.active() == nil {
		switch first := t.firstLocal(); {
		case first == nil || first.pending:
		case len(t.q.places) == 0 || t.q.places[0].scope != first.a.scope:
			return look{more: true, next: first.a}, nil // who is before it must be read
		default:
			more, err := t.serve(ctx, first)
			return look{more: more}, err
		}
	}
	err := t.store(ctx, true)
	return look{more: t.more}, err
}

// seat gives a spot a place, provided that it was not answered meanwhile: nobody
// waits for itself. Where nobody waits any more the place is away.
func (t *turn) seat(lo *local) {
	if !t.l.setSeating(lo.sp) {
		lo.leavers = nil
		return
	}
	p := newPlace(lo.a, t.st.queue, t.q)
	if lo.stays {
		p.At = []string{t.session}
	} else {
		p.Left, lo.out = now(), true
	}
	t.q.places = append(t.q.places, p)
	t.joined = append(t.joined, t.l.s.newcomer(t.st, lo.a.scope)...)
	t.seated = append(t.seated, lo.sp)
	limit := lo.a.req.Limits.WaitersPerKey
	t.limited = t.limited || limit > 0 && len(t.q.places) > limit-farFromFull
}

// setSeating notes that a place for the spot is on its way. It reports false if
// another one is.
func (l *line) setSeating(sp *spot) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if sp.seating {
		return false
	}
	sp.seating = true
	return true
}

func (l *line) setTried(sp *spot) {
	l.mu.Lock()
	defer l.mu.Unlock()
	sp.tried = true
}

// seated notes that no places for the spots are on their way any more.
func (l *line) seated(spots []*spot) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, sp := range spots {
		sp.seating = false
	}
}

// firstLocal returns the spot whose turn it is, if it is one of this line's.
func (t *turn) firstLocal() *local {
	at := make(map[contract.Scope]*local, len(t.locals))
	for _, lo := range t.locals {
		at[lo.a.scope] = lo
	}
	for i := range t.q.places {
		p := &t.q.places[i]
		if lo := at[p.scope]; lo != nil && (lo.stays || lo.soft) && !t.told(lo) {
			return lo
		}
		if p.present(t.st.sessions) {
			return nil
		}
	}
	return t.late
}

// patience tells whether those who leave can be told a little later.
func (t *turn) patience() bool {
	soft := false
	for _, lo := range t.locals {
		if lo.soft {
			soft = true
			if time.Until(lo.limit) < leaveTimeout/4 {
				return false
			}
		}
	}
	return soft && t.q.first(t.st.sessions) >= 0
}

// serve grants the key to the spot whose turn it is.
func (t *turn) serve(ctx context.Context, lo *local) (more bool, err error) {
	s := t.l.s
	over, err := s.ownerAtLimit(ctx, t.st, lo.a)
	switch {
	case err != nil:
		return false, err
	case over:
		t.refuse(lo, told{res: quotaExceeded("leases_per_owner")})
		return true, t.store(ctx, true)
	case !t.st.tokenLeft():
		t.refuse(lo, told{err: errNoToken()})
		return true, t.store(ctx, true)
	}
	sessions := t.st.sessions
	rest := t.q.without(lo.a.scope, min(skipStep, stepBudget-t.spent-1))
	if lo == t.late {
		t.joined = append(t.joined, clientv3.Compare(clientv3.CreateRevision(s.names.answer(lo.a.scope)), "=", 0))
	}
	g, err := s.prepare(ctx, t.st, lo.a, rest, true)
	if err != nil {
		return false, err
	}
	if t.fast && t.q.places[0].create != 0 {
		g.cmps = append(g.cmps, s.firstOfAll(t.st, &t.q.places[0])...)
	}
	g.cmps = append(g.cmps, t.joined...)
	if !t.l.setPending(lo.sp, true) {
		s.discard(g)
		return true, nil
	}
	done, err := s.commit(ctx, t.st, g)
	if err != nil || !done {
		if !mayBeApplied(err) {
			t.l.setPending(lo.sp, false) // else it stays so until the calls are told
		}
		if mayBeApplied(err) {
			t.doubt()
		}
		t.l.forget()
		return err == nil, err
	}
	t.wrote = true
	t.l.note(func(k *glance) {
		k.wrote(g.record)
		k.queued(g.changes, g.record.rev)
	})
	res, err := s.granted(ctx, t.st, g)
	if errors.Is(err, lateError{}) {
		t.l.forget() // the next look finds it
		return true, nil
	}
	msg := told{res: res, err: toWaiter(err)}
	if err == nil {
		msg.share = &share{id: g.record.id, rev: g.record.rev}
	}
	t.tell(lo, msg)
	t.q = rest
	t.deliver(sessions, g.record, time.Now())
	return true, nil
}

// refuse answers a spot and takes its place away.
func (t *turn) refuse(lo *local, msg told) {
	t.q.places = slices.DeleteFunc(t.q.places, func(p place) bool { return p.scope == lo.a.scope })
	t.tell(lo, msg)
}

// since returns when the reading began of what the turn goes by, be it for an earlier
// one: it was so at some instant after that.
func (t *turn) since() time.Time {
	if !t.asked.IsZero() {
		return t.asked
	}
	t.l.mu.Lock()
	defer t.l.mu.Unlock()
	return t.l.asked
}

// store writes the queue if it has changed, and answers those it concerns.
func (t *turn) store(ctx context.Context, leave bool) error {
	s := t.l.s
	holder, at := t.st.active(), t.since()
	if changes := t.q.changes(t.st.queue); len(changes) > 0 {
		cmps, ops, fail := s.putPlaces(ctx, t.l.ref, changes)
		if fail != nil {
			return fail
		}
		if cmps = append(cmps, t.joined...); t.limited {
			cmps = append(cmps, s.nobodyCame(t.st))
		}
		leaving := slices.ContainsFunc(t.locals, func(lo *local) bool { return len(lo.leavers) > 0 })
		if leaving {
			// Who holds the key when they leave is what those who leave are told.
			ops = append(ops, clientv3.OpGet(s.names.key(t.l.ref.ns, t.l.ref.id), clientv3.WithPrefix()))
		}
		resp, fail := s.pool.commit(ctx, t.l.ref, cmps, ops)
		switch {
		case fail != nil:
			if fail.unknown() {
				t.doubt()
			}
			t.l.forget()
			if len(t.seated) > 0 {
				t.l.turnAway(fail, t.seated)
			}
			return fail
		case !resp.Succeeded:
			t.l.forget()
			t.l.poke()
			return nil
		}
		t.wrote = true
		t.l.note(func(k *glance) { k.queued(changes, resp.Header.Revision) })
		if leaving {
			then := &state{ref: t.l.ref}
			kvs := resp.Responses[len(ops)-1].GetResponseRange().GetKvs()
			if err := then.takeKey(s.names.key(t.l.ref.ns, t.l.ref.id), kvs); err != nil {
				return err
			}
			if now := then.active(); now != nil {
				holder, at = now, time.Now()
			}
		}
	}
	if !leave {
		for _, lo := range t.locals {
			lo.leavers = nil
		}
	}
	t.deliver(t.st.sessions, holder, at)
	return nil
}
