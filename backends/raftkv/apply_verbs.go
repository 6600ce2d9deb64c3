package raftkv

import (
	"leased/contract"
)

func (st *step) acquire(c *acquireCmd) reply {
	id := &ident{ns: c.Namespace, key: c.Key.key(), id: c.KeyID}
	ks := st.settle(id)
	if r, done := st.replayAcquire(c); done {
		return r
	}
	if st.atQuota(c) {
		return reply{outcome: contract.OutcomeQuotaExceeded, limit: "leases_per_owner"}
	}
	if ks == nil {
		ks = &keyState{ident: id}
	}
	if ks.key != id.key {
		return reply{code: contract.CodeInternal, detail: "the key id belongs to another key"}
	}
	if ks.active == nil {
		next := *ks
		r := st.grant(&next, c, 0)
		st.putKey(&next)
		return r
	}
	if !c.Wait {
		return reply{outcome: contract.OutcomeConflict, lease: ks.active, queue: contract.Queue{Length: int(ks.present)}}
	}
	if c.MaxWaiters > 0 && int64(ks.present) >= c.MaxWaiters {
		return reply{outcome: contract.OutcomeQuotaExceeded, limit: "waiters_per_key"}
	}
	next := *ks
	for c.MaxWaiters > 0 && int64(next.places) >= c.MaxWaiters {
		st.giveWay(&next) // more than once when the limit was lowered
	}
	w := &waiter{ident: ks.ident, seq: st.index, attach: st.index, cmd: c}
	st.queue.Set(w)
	st.places.Set(w)
	next.places++
	next.present++
	st.countWaiters(w.ns, 1)
	st.putKey(&next)
	return reply{attach: w.attach, lease: next.active, queue: contract.Queue{Length: int(next.present)}}
}

// giveWay removes the first place of the key whose caller is away. There is one:
// the queue has more places than callers.
func (st *step) giveWay(ks *keyState) {
	var first *waiter
	st.absent.Ascend(&waiter{ident: ks.ident}, func(w *waiter) bool { first = w; return false })
	st.removePlace(ks, first)
}

// replayAcquire answers a request id that is known: it was granted, or it waits.
func (st *step) replayAcquire(c *acquireCmd) (reply, bool) {
	if a, ok := st.answers.Get(answer{scope: c.Scope}); ok {
		if a.print != c.Print {
			return reply{outcome: contract.OutcomeRequestIDReused}, true
		}
		return st.replayGrant(a.g), true
	}
	w, ok := st.places.Get(&waiter{cmd: c})
	if !ok {
		return reply{}, false
	}
	if w.cmd.Print != c.Print {
		return reply{outcome: contract.OutcomeRequestIDReused}, true
	}
	ks := st.key(w.ident)
	if !c.Wait {
		return reply{outcome: contract.OutcomeConflict, lease: ks.active, queue: st.queueOf(ks, w)}, true
	}
	back := *w
	back.attach, back.drop, back.cmd = st.index, 0, c
	st.move(ks, w, &back)
	return reply{attach: back.attach, lease: ks.active}, true
}

func (st *step) replayGrant(g *grant) reply {
	l := st.current(g)
	if l == nil {
		panic("raftkv: a stored answer outlived its lease")
	}
	if l.end != nil {
		return reply{outcome: contract.EndedOutcome(l.end.state), lease: l, replayed: true}
	}
	if l.attach != 0 {
		// Somebody has the grant now: it must not be undone any more.
		taken := *l
		taken.attach = 0
		st.replaceActive(&taken)
		l = &taken
	}
	return reply{outcome: contract.OutcomeAcquired, lease: l, replayed: true}
}

// replaceActive puts a new version of the key's active lease in its places. The
// expiry must be unchanged, or its agenda entry moved by the caller.
func (st *step) replaceActive(l *lease) {
	next := *st.key(l.ident)
	next.active = l
	st.keys.Set(&next)
	st.held.Set(l)
}

// move replaces a place by its new version and counts who is present.
func (st *step) move(ks *keyState, from, to *waiter) {
	st.queue.Set(to)
	st.places.Set(to)
	next := *ks
	if from.attach == 0 {
		st.forgetAway(from)
	} else {
		next.present--
	}
	if to.attach == 0 {
		st.keepAway(to)
	} else {
		next.present++
	}
	st.countWaiters(to.ns, int64(next.present-ks.present))
	st.keys.Set(&next)
}

// maxPosition is how far a place in a queue is counted: were it counted to the
// end, thousands of waiters that leave together would hold up everybody.
const maxPosition = 1000

// queueOf returns the queue as w sees it. Its position is 0 beyond maxPosition.
func (s *state) queueOf(ks *keyState, w *waiter) contract.Queue {
	q := contract.Queue{Length: int(ks.present), Position: 1}
	seen := 0
	s.queue.Ascend(&waiter{ident: ks.ident}, func(x *waiter) bool {
		if x.seq >= w.seq {
			return false
		}
		if seen++; seen >= maxPosition {
			q.Position = 0
			return false
		}
		if x.attach != 0 {
			q.Position++
		}
		return true
	})
	return q
}

// awayAll ends the presence of callers at their places.
func (st *step) awayAll(c *awayCmd) []reply {
	// Those who would be undone leave before anything is settled: were one served
	// in this entry and undone in it, the next in line would be granted in it too,
	// with the same token.
	for i := range c.Items {
		if c.Items[i].Undo {
			st.depart(&c.Items[i])
		}
	}
	out := make([]reply, len(c.Items))
	for i := range c.Items {
		out[i] = st.stamped(st.away(&c.Items[i]))
	}
	return out
}

// away ends the presence of a caller at its place. When its turn came first, the
// answer is the grant, or with Undo its end.
func (st *step) away(c *awayItem) reply {
	id := &ident{ns: c.Namespace, id: c.KeyID}
	st.settle(id)
	st.depart(c)
	if w, ok := st.places.Get(&waiter{cmd: &acquireCmd{Scope: c.Scope}}); ok {
		ks := st.key(w.ident)
		return reply{outcome: contract.OutcomeConflict, lease: ks.active, queue: st.queueOf(ks, w)}
	}
	a, ok := st.answers.Get(answer{scope: c.Scope})
	if !ok {
		return st.stillHeld(id)
	}
	l := st.current(a.g)
	if !c.Undo || l.end != nil || l.attach != c.Attach {
		r := st.replayGrant(a.g)
		// Who leaves no place was not served: a copy at the place is, or was.
		r.replayed = c.Attach == 0 || l.attach != c.Attach
		return r
	}
	st.end(st.key(l.ident), ending{
		state: contract.StateReleased, by: l.owner, reason: undoneReason,
		requestID: l.requestID, traceID: l.traceID,
	}, 0)
	st.answers.Delete(a)
	st.answerDrops.Delete(due[contract.Scope]{at: st.now + l.keepAnswer, what: a.scope})
	return st.stillHeld(id)
}

// depart marks the place that c names as away, unless its caller has returned.
func (st *step) depart(c *awayItem) {
	w, ok := st.places.Get(&waiter{cmd: &acquireCmd{Scope: c.Scope}})
	if !ok || w.attach == 0 || w.attach != c.Attach {
		return
	}
	gone := *w
	gone.attach, gone.drop = 0, st.now+w.cmd.Keep.Idempotency
	st.move(st.key(w.ident), w, &gone)
}

// stillHeld is the answer to a caller that has no place and no grant.
func (st *step) stillHeld(id *ident) reply {
	r := reply{outcome: contract.OutcomeConflict}
	if ks := st.key(id); ks != nil {
		r.lease, r.queue.Length = ks.active, int(ks.present)
	}
	return r
}

func (st *step) renewAll(c *renewCmd) []reply {
	out := make([]reply, len(c.Items))
	before := st.bulksOf(c)
	together := st.newBulk(c, len(before))
	for i := range c.Items {
		out[i] = st.stamped(st.renew(c, &c.Items[i], before, together))
	}
	if together != nil {
		st.keepBulk(together)
	}
	return out
}

// renew renews one lease of a command, whose request id was used before as it says. The
// answer goes into together, unless that is nil.
func (st *step) renew(c *renewCmd, item *renewItem, before []*bulk, together *bulk) reply {
	id := &ident{ns: c.Namespace, id: item.LeaseID.KeyID()}
	ks := st.settle(id)
	if a, ok := st.renewed(before, item.Scope); ok {
		if a.print != item.Print {
			return reply{outcome: contract.OutcomeRequestIDReused}
		}
		l := st.current(a.g)
		if l.end != nil {
			return reply{outcome: contract.EndedOutcome(l.end.state), lease: l, replayed: true}
		}
		return reply{outcome: contract.OutcomeRenewed, lease: l, first: a.first, replayed: true}
	}
	l, refused := st.match(ks, item.LeaseID, c.Owner, c.Instance, item.Token)
	if l == nil {
		return refused
	}
	ttl := item.TTL
	if ttl == 0 {
		ttl = l.ttl
	}
	next := *l
	next.expires = min(st.now+ttl, l.cap)
	next.ttl = next.expires - st.now
	next.renewed, next.nominal = st.wall(), st.wall()+next.ttl
	next.renewals++
	next.attach = 0
	next.answersUntil = max(l.answersUntil, st.now+c.Keep.Idempotency)
	if next.expires != l.expires {
		st.expiries.Delete(due[*ident]{at: l.expires, what: l.ident})
		st.expiries.Set(due[*ident]{at: next.expires, what: l.ident})
	}
	st.held.Set(&next)
	nk := *ks
	nk.active, nk.perKey, nk.keep = &next, c.Keep.HistoryPerKey, c.Keep.History
	st.keys.Set(&nk)
	if together != nil {
		together.items = append(together.items, bulkItem{
			scope: item.Scope, print: item.Print, g: next.grant, ttl: next.ttl, renewals: next.renewals,
		})
	} else {
		first := next.life
		st.store(&next, answer{scope: item.Scope, print: item.Print, verb: contract.VerbRenew, first: &first}, c.Keep.Idempotency)
	}
	st.emit(contract.EventRenewed, &next, c.Owner, c.RequestID, c.TraceID)
	return reply{outcome: contract.OutcomeRenewed, lease: &next}
}

// match returns the active lease of the key that a holder presents, or nil and the
// refusal. ks is nil for a key of which nothing is known.
func (s *state) match(ks *keyState, leaseID contract.LeaseID, owner, instance string, token uint64) (*lease, reply) {
	l := s.find(ks, leaseID, token)
	switch {
	case l == nil:
		return nil, reply{outcome: contract.OutcomeNotFound}
	case l.owner != owner || l.instance != instance:
		return nil, reply{outcome: contract.OutcomeNotOwner}
	case l.token != token:
		return nil, reply{outcome: contract.OutcomeStaleToken}
	case l.end != nil:
		return nil, reply{outcome: contract.EndedOutcome(l.end.state), lease: l}
	}
	return l, reply{}
}

func (st *step) release(c *releaseCmd) reply {
	id := &ident{ns: c.Namespace, id: c.LeaseID.KeyID()}
	ks := st.settle(id)
	if r, done := st.replayEnd(c.Scope, c.Print, contract.OutcomeReleased); done {
		return r
	}
	l, refused := st.match(ks, c.LeaseID, c.Owner, c.Instance, c.Token)
	if l == nil {
		return refused
	}
	nk := *ks
	nk.perKey, nk.keep = c.Keep.HistoryPerKey, c.Keep.History
	over := st.end(&nk, ending{
		state: contract.StateReleased, by: c.Owner, requestID: c.RequestID, traceID: c.TraceID,
	}, c.Keep.Idempotency)
	st.store(over, answer{scope: c.Scope, print: c.Print, verb: contract.VerbRelease}, c.Keep.Idempotency)
	return reply{outcome: contract.OutcomeReleased, lease: over}
}

func (st *step) revoke(c *revokeCmd) reply {
	id := &ident{ns: c.Namespace, id: c.LeaseID.KeyID()}
	ks := st.settle(id)
	if r, done := st.replayEnd(c.Scope, c.Print, contract.OutcomeRevoked); done {
		return r
	}
	l := st.find(ks, c.LeaseID, 0)
	switch {
	case l == nil:
		return reply{outcome: contract.OutcomeNotFound}
	case l.end != nil:
		return reply{outcome: contract.EndedOutcome(l.end.state), lease: l}
	}
	nk := *ks
	nk.perKey, nk.keep = c.Keep.HistoryPerKey, c.Keep.History
	over := st.end(&nk, ending{
		state: contract.StateRevoked, by: c.Principal, reason: c.Reason, requestID: c.RequestID, traceID: c.TraceID,
	}, c.Keep.Idempotency)
	st.store(over, answer{scope: c.Scope, print: c.Print, verb: contract.VerbRevoke}, c.Keep.Idempotency)
	return reply{outcome: contract.OutcomeRevoked, lease: over}
}

// replayEnd answers a release or revoke whose request id is known.
func (st *step) replayEnd(scope contract.Scope, fingerprint contract.Fingerprint, outcome contract.Outcome) (reply, bool) {
	a, ok := st.answers.Get(answer{scope: scope})
	if !ok {
		return reply{}, false
	}
	if a.print != fingerprint {
		return reply{outcome: contract.OutcomeRequestIDReused}, true
	}
	return reply{outcome: outcome, lease: st.current(a.g), replayed: true}, true
}
