package etcd

import (
	"bytes"
	"context"
	"slices"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"leased/contract"
)

// place makes the queue as it is with the calls that came and without those that
// went. Those who have had their answer already, and those for whom there is no
// room, get it.
func (t *turn) place(ctx context.Context) error {
	t.q = t.st.queue.clone()
	t.spent += t.q.settle(t.st.sessions, now())
	t.leaveGhosts()
	var missing []*local
	at := t.q.index()
	for _, lo := range t.locals {
		var p *place
		if i, ok := at[lo.a.scope]; ok {
			p = &t.q.places[i]
			t.l.unanswered(lo.sp, t.asked)
		}
		switch {
		case p == nil && (lo.seating || lo.placed > t.st.rev):
			lo.leavers = nil
		case p == nil:
			missing = append(missing, lo)
		case !p.equalPrint(lo.a.print):
			t.tell(lo, told{res: contract.Result{Outcome: contract.OutcomeRequestIDReused}})
		case lo.stays && !slices.Contains(p.At, t.session):
			if t.spend(1) {
				p.At, p.Left = append(p.At, t.session), 0
			}
		case !lo.stays:
			t.detach(lo, p)
		}
	}
	// Spots that are kept only for a place that may appear yet come last.
	here := func(lo *local) bool { return lo.stays || lo.owed || len(lo.leavers) > 0 }
	slices.SortStableFunc(missing, func(a, b *local) int {
		switch {
		case here(a) == here(b):
			return 0
		case here(a):
			return -1
		}
		return 1
	})
	return t.join(ctx, missing[:min(len(missing), joinStep)])
}

// spend takes what changes of places cost from what the transaction has room
// for, if there is enough left.
func (t *turn) spend(cost int) bool {
	if t.spent+cost > stepBudget {
		t.more = true
		return false
	}
	t.spent += cost
	return true
}

// leaveGhosts takes this store away from places at which nobody waits here: what
// asked for them was given up, and etcd applied it afterwards.
func (t *turn) leaveGhosts() {
	t.l.mu.Lock()
	defer t.l.mu.Unlock()
	for i := range t.q.places {
		p := &t.q.places[i]
		if t.l.waiting[p.scope] == nil && slices.Contains(p.At, t.session) && t.spend(1) {
			p.detach(t.session)
		}
	}
}

// roomFor is whether there is room for a newcomer's place.
type roomFor uint8

const (
	roomMade roomFor = iota
	roomNone
	roomLater // more must give way than the transaction has room for
)

// room makes room for a spot's place.
func (t *turn) room(lo *local) roomFor {
	limit := lo.a.req.Limits.WaitersPerKey
	ok, dropped := t.q.room(limit, 1+stepBudget-t.spent, t.st.sessions)
	switch {
	case !ok:
		return roomNone
	case dropped > 1:
		t.spent += dropped - 1 // one is in joinCost
	}
	if limit > 0 && len(t.q.places) >= limit {
		t.more = true
		return roomLater
	}
	return roomMade
}

// detach takes this store away from a place that its calls leave, if the
// transaction has room for it.
func (t *turn) detach(lo *local, p *place) {
	if t.left >= leaveStep || !t.spend(1) {
		lo.leavers, t.more = nil, true
		return
	}
	t.left++
	p.detach(t.session)
	lo.out = true
}

func (t *turn) tell(lo *local, msg told) { t.answers = append(t.answers, answered1{lo.sp, msg}) }

// join gives places to those who have none, unless they were answered before.
func (t *turn) join(ctx context.Context, missing []*local) error {
	if len(missing) == 0 {
		return nil
	}
	s := t.l.s
	ops := make([]clientv3.Op, len(missing))
	for i, lo := range missing {
		ops[i] = clientv3.OpGet(s.names.answer(lo.a.scope))
	}
	asked := time.Now()
	resp, fail := s.pool.read(ctx, ops...)
	if fail != nil {
		return fail
	}
	for i, lo := range missing {
		if len(resp.Responses[i].GetResponseRange().GetKvs()) == 0 {
			t.l.unanswered(lo.sp, asked)
		}
		for _, kv := range resp.Responses[i].GetResponseRange().GetKvs() {
			a, err := decodeAnswer(kv)
			if err != nil {
				return err
			}
			if err := t.replay(ctx, lo, a); err != nil {
				return err
			}
		}
		if t.told(lo) || lo.out {
			continue
		}
		if (lo.stays || lo.owed) && (t.left > mixStep || !t.spend(joinCost)) {
			lo.leavers, t.more = nil, true // they are told of the place that they have then
			continue
		}
		if !lo.stays && !lo.owed {
			t.pass(lo)
			continue
		}
		switch room := t.room(lo); {
		case room == roomMade:
			t.seat(lo)
		case room == roomNone && lo.stays:
			t.tell(lo, told{res: quotaExceeded("waiters_per_key")})
		case room == roomNone:
			t.pass(lo)
		default: // roomLater
			lo.leavers = nil
		}
	}
	return nil
}

// unanswered notes for the spot's calls that a look which began then found no answer
// to their attempt.
func (l *line) unanswered(sp *spot, asked time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, w := range sp.calls {
		w.looked = w.looked || w.since.Before(asked)
	}
}

// pass leaves a spot without a place. If nobody else wants the key, a call whose
// wait has just ended may have it.
func (t *turn) pass(lo *local) {
	lo.out = true
	if lo.soft && t.late == nil {
		t.late = lo
	}
}

func (t *turn) told(lo *local) bool {
	return slices.ContainsFunc(t.answers, func(a answered1) bool { return a.sp == lo.sp })
}

// replay tells a spot what its attempt was answered before. A grant that is claimed
// for it is pending meanwhile: a call whose wait ends before it is claimed must not
// be told that it has none.
func (t *turn) replay(ctx context.Context, lo *local, a *answer) error {
	st := *t.st
	st.answer, st.want = a, lo.a.want() // the state was read for another attempt
	claims := a.Unseen && !bytes.Equal(a.Attempt, lo.a.mark)
	if claims && !t.l.setPending(lo.sp, true) {
		lo.out = true // nobody is there to claim it for
		return nil
	}
	res, ok, err := t.l.s.replayAcquire(ctx, &st, lo.a, now())
	if claims && (err == nil && !ok || err != nil && contract.CodeOf(err) != contract.CodeOutcomeUnknown) {
		t.l.setPending(lo.sp, false)
	}
	if err != nil || !ok {
		return err
	}
	msg := told{res: res}
	if !res.Replayed && res.Outcome == contract.OutcomeAcquired {
		// This line's own grant, of which the outcome was not known.
		msg.share = &share{id: res.Lease.ID, rev: a.rev}
	}
	t.tell(lo, msg)
	return nil
}

// doubt notes that places which were asked for may appear yet. Their spots stay
// until then, so that a place without calls is left.
func (t *turn) doubt() {
	t.l.mu.Lock()
	defer t.l.mu.Unlock()
	for _, lo := range t.locals {
		if lo.stays {
			lo.sp.doubt = time.Now().Add(doubtFor)
		}
	}
}
