package etcd

import (
	"context"
	"errors"
	"slices"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// next is the first in the queue of a key whose lease is being ended, if it
// waits at this store: it is granted the key in the same transaction.
type next struct {
	l     *line
	sp    *spot
	known *state // what the line knows of the queue and the floor
	// joiners came since the last time. They get their places with this one.
	joiners []*spot
	session string
}

// nextInLine returns who is served when the state's lease ends, or nil if that is
// not for this store to say or not known. The spot it returns is pending.
func (s *Store) nextInLine(st *state) *next {
	s.linesMu.Lock()
	l := s.lines[st.ref]
	s.linesMu.Unlock()
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.retired || l.known.st == nil || l.known.st.headMod != st.headMod || !l.known.st.tokenLeft() || s.lags(l.known.st) {
		return nil
	}
	known := *l.known.st
	known.told = l.known.told
	if known.queue.first(known.sessions) != 0 {
		return nil // nobody waits, or who is before the first may be there
	}
	p := &known.queue.places[0]
	sp := l.waiting[p.scope]
	if sp == nil || sp.pending || sp.a.req.Limits.LeasesPerOwner > 0 || !p.equalPrint(sp.a.print) || !sp.stays() {
		return nil
	}
	sp.pending = true
	n := &next{l: l, sp: sp, known: &known}
	n.take()
	return n
}

// rideMost is how many get their places with a hand-over.
const rideMost = 8

// take takes those who have no place yet: the transaction is on its way anyway,
// and one of their own would be in its way. The caller holds the line's lock.
func (n *next) take() {
	n.session, _ = n.l.s.presence.current()
	if !n.known.sessions[n.session] {
		return
	}
	at := n.known.queue.index()
	for _, scope := range n.l.order {
		sp := n.l.waiting[scope]
		limit := sp.a.req.Limits.WaitersPerKey
		if _, ok := at[scope]; ok || len(n.joiners) == rideMost ||
			sp.pending || sp.seating || sp.tried || sp.a.req.Limits.LeasesPerOwner > 0 || !n.known.toldOf(scope) ||
			limit > 0 && len(n.known.queue.places)+rideMost > limit-farFromFull ||
			len(sp.calls) == 0 || slices.ContainsFunc(sp.calls, func(w *waiter) bool { return w.leaving }) {
			continue
		}
		sp.seating = true
		n.joiners = append(n.joiners, sp)
	}
}

// seat gives those who came places in the queue.
func (n *next) seat(q *queue) []clientv3.Cmp {
	var cmps []clientv3.Cmp
	for _, sp := range n.joiners {
		p := newPlace(sp.a, n.known.queue, q)
		p.At = []string{n.session}
		q.places = append(q.places, p)
		cmps = append(cmps, n.l.s.newcomer(n.known, sp.a.scope)...)
	}
	return cmps
}

// over notes how it went.
func (n *next) over(rev int64, done, unknown bool) {
	n.l.mu.Lock()
	defer n.l.mu.Unlock()
	leaving := false
	for _, sp := range n.joiners {
		sp.seating = false
		sp.tried = !done
		if done {
			sp.placed = rev
		}
		if unknown {
			sp.doubt = time.Now().Add(doubtFor)
		}
		leaving = leaving || len(sp.calls) == 0 || slices.ContainsFunc(sp.calls, func(w *waiter) bool { return w.leaving })
	}
	switch {
	case done:
		n.l.passed = time.Now()
	case unknown:
		n.l.known.st = nil
	default:
		n.l.known.st, n.sp.pending = nil, false
	}
	if !done || leaving {
		n.l.poke()
	}
}

// passOn ends the state's lease as r and grants the key to n, in one step.
func (s *Store) passOn(ctx context.Context, st *state, c *endCall, bucket clientv3.LeaseID, r *record, n *next) (done bool, fail *failure) {
	a := n.sp.a
	after := *st
	after.guess = false // of the request that ends; the one that is granted is compared below
	after.head, after.floor, after.floorMod, after.rev = r, n.known.floor, n.known.floorMod, n.known.rev
	after.queue = n.known.queue
	rest := n.known.queue.without(a.scope, 0)
	joined := n.seat(rest)
	defer func() { n.over(r.rev, done, fail != nil && fail.unknown()) }()
	g, fail := s.prepareNext(ctx, &after, n, rest)
	if fail != nil {
		return false, fail
	}
	key := s.names.key(st.ref.ns, st.ref.id)
	if st.head.Life != 0 {
		g.ops = append(g.ops, clientv3.OpDelete(key+partLife))
	}
	g.ops = append(g.ops, clientv3.OpPut(s.names.answer(c.scope), encode(c.answer(r)), clientv3.WithLease(bucket)))
	g.cmps = append(g.cmps, s.guessed(st, s.asAlive(st))...) // the head is compared by the grant
	g.cmps = append(g.cmps, joined...)
	g.cmps = append(g.cmps, s.firstOfAll(n.known, &n.known.queue.places[0])...)
	g.cmps = append(g.cmps, clientv3.Compare(clientv3.CreateRevision(s.names.answer(a.scope)), "=", 0))
	if done, fail = s.commitPlan(ctx, st, g); !done {
		return false, fail
	}
	r.rev = g.record.rev
	s.ownEnds.add(r.rev)
	n.l.note(func(k *glance) {
		k.wrote(g.record)
		k.queued(g.changes, g.record.rev)
	})
	n.granted(ctx, s, &after, g)
	return true, nil
}

// prepareNext is prepare for a grant in the step that ends the lease before it.
func (s *Store) prepareNext(ctx context.Context, after *state, n *next, rest *queue) (*grantPlan, *failure) {
	g, err := s.prepare(ctx, after, n.sp.a, rest, true)
	if err != nil {
		if fail, ok := errors.AsType[*failure](err); ok {
			return nil, fail
		}
		return nil, newFailure(err, false)
	}
	// The end has the same revision as the grant, and the grant comes second.
	ended := *after.head
	ended.Metadata = nil // events have none
	g.record.Prev = &ended
	g.ops[0] = clientv3.OpPut(s.names.key(after.ref.ns, after.ref.id)+partHead, encode(g.record))
	return g, nil
}

// granted tells the calls at the spot, or lets their line find the grant.
func (n *next) granted(ctx context.Context, s *Store, st *state, g *grantPlan) {
	res, err := s.granted(ctx, st, g)
	if errors.Is(err, lateError{}) {
		n.l.forget()
		n.l.poke()
		return
	}
	msg := told{res: res, err: toWaiter(err)}
	if err == nil {
		msg.share = &share{id: g.record.id, rev: g.record.rev}
	}
	n.l.mu.Lock()
	defer n.l.mu.Unlock()
	n.l.answer(n.sp, msg)
}
