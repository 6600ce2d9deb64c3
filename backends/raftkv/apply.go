package raftkv

import (
	"fmt"

	"leased/contract"
)

// undoneReason is the reason in the record of a grant that nobody took.
const undoneReason = "undone: the waiter had gone"

// reply is what Apply answers to whoever proposed the entry. Its pointers lead
// to immutable records.
type reply struct {
	outcome  contract.Outcome // 0 when waiting or when code is set
	lease    *lease
	first    *life // shown in place of the lease's own: a replayed renewal
	replayed bool
	queue    contract.Queue
	limit    string
	attach   uint64 // the call waits; this names its place
	code     contract.Code
	detail   string
	now      int64
}

// served tells that a waiter's turn came.
type served struct {
	scope  contract.Scope
	attach uint64
	reply  reply
}

// event is a transition as the ring keeps it: what cannot be read off the lease.
type event struct {
	pos
	kind      contract.EventKind
	when      int64 // on the state's clock
	wall      int64
	lease     *lease // as it was after the event
	principal string
	requestID string
	traceID   string
}

// step is one entry being applied: the state, and what came of it.
type step struct {
	*state
	events []event
	served []served
}

// apply carries out one entry. It is a pure function of the state, the entry
// and its place in the log.
func (st *step) apply(index, term uint64, h header, body any) any {
	st.reach(index, term, h)
	switch c := body.(type) {
	case *acquireCmd:
		return st.stamped(st.acquire(c))
	case *renewCmd:
		return st.renewAll(c)
	case *releaseCmd:
		return st.stamped(st.release(c))
	case *revokeCmd:
		return st.stamped(st.revoke(c))
	case *awayCmd:
		return st.awayAll(c)
	case *sweepCmd:
		return st.sweep(c)
	case *takeoverCmd:
		st.takeover(c)
		return nil
	case *floorCmd:
		st.raiseFloor(c)
		return nil
	}
	panic(fmt.Sprintf("raftkv: no transition for %T", body))
}

func (st *step) stamped(r reply) reply {
	r.now = st.now
	return r
}

// nextPos returns the place of the next event of this entry.
func (st *step) nextPos() pos {
	return pos{index: st.index, n: uint32(len(st.events))}
}

// settle returns the key as it is at this instant: a lease that is due is ended
// first, whether or not the sweeper came by.
func (st *step) settle(id *ident) *keyState {
	ks := st.key(id)
	if ks != nil && ks.active != nil && ks.active.expires <= st.now {
		st.expire(ks)
		ks = st.key(id)
	}
	return ks
}

func (st *step) expire(ks *keyState) {
	st.end(ks, ending{state: contract.StateExpired, late: st.now - ks.active.expires}, 0)
}

// end ends the key's active lease and hands the key over. keepAnswer is how long
// the answer of the call that ended it is kept; 0 when nobody called.
func (st *step) end(ks *keyState, e ending, keepAnswer int64) *lease {
	l := ks.active
	e.at, e.when, e.wall = st.nextPos(), st.now, st.wall()
	over := *l
	over.attach = 0
	over.answersUntil = max(l.answersUntil, st.now+l.keepAnswer, st.now+keepAnswer)
	over.end = &e

	st.expiries.Delete(due[*ident]{at: l.expires, what: l.ident})
	st.held.Delete(l)
	st.countActive(l.ns, l.owner, -1)
	// The acquire's answer, which its lease kept until now.
	st.answerDrops.Set(due[contract.Scope]{at: st.now + l.keepAnswer, what: l.scope})

	next := *ks
	next.active, next.last = nil, &over
	st.remember(&next, &over)
	st.emit(contract.EndedEvent(e.state), &over, e.by, e.requestID, e.traceID)
	st.handOver(&next)
	st.putKey(&next)
	return &over
}

// remember puts an ended lease into the history of its key and hides what the
// key's limit no longer shows. The row is looked at again once no answer refers
// to it any more, see retire: most are hidden by then, and never get a second
// entry on the agenda.
func (st *step) remember(ks *keyState, over *lease) {
	row := newEnded(over, over.answersUntil)
	st.ended.Set(row)
	st.endedDrops.Set(due[*grant]{at: row.drop, what: over.grant})
	if ks.visible == 0 {
		ks.oldest = over.token
	}
	ks.visible++
	// A history of n events reaches back over at most n/2+1 ended leases.
	for ks.visible > ks.perKey/2+1 {
		ks.visible--
		st.findOldest(ks, ks.oldest+1)
	}
}

// retire forgets a row whose time has come, or keeps it for as long as its key's
// history shows it.
func (st *step) retire(row endedLease) {
	ks := st.key(row.ident)
	if ks != nil && ks.shows(row.token) && row.end.when+ks.keep > st.now {
		row.drop = row.end.when + ks.keep
		st.ended.Set(row)
		st.endedDrops.Set(due[*grant]{at: row.drop, what: row.grant})
		return
	}
	st.forget(row)
}

// findOldest makes oldest the first visible row from token on.
func (st *step) findOldest(ks *keyState, token uint64) {
	ks.oldest = 0
	st.ended.Ascend(endedAt(ks.ident, token), func(e endedLease) bool {
		if e.place.of.compare(ks.ident) == 0 {
			ks.oldest = e.place.token
		}
		return false
	})
}

// forget drops a row whose time has come.
func (st *step) forget(row endedLease) {
	st.ended.Delete(row)
	ks := st.key(row.ident)
	if ks == nil {
		return
	}
	next := *ks
	if next.shows(row.token) {
		next.visible--
		if row.token == next.oldest {
			st.findOldest(&next, row.token+1)
		}
	}
	if next.last != nil && next.last.token == row.token {
		next.last = nil
		st.eachVisible(&next, func(l *lease) bool { next.last = l; return false })
	}
	st.putKey(&next)
}

// handOver serves the queue of a free key: places whose caller is away are lost,
// the first caller present gets the key.
func (st *step) handOver(ks *keyState) {
	for ks.active == nil && ks.places > 0 {
		var w *waiter
		st.queue.Ascend(&waiter{ident: ks.ident}, func(first *waiter) bool { w = first; return false })
		st.removePlace(ks, w)
		if w.attach == 0 {
			continue
		}
		r := st.grant(ks, w.cmd, w.attach)
		st.served = append(st.served, served{scope: w.cmd.Scope, attach: w.attach, reply: st.stamped(r)})
	}
}

func (st *step) removePlace(ks *keyState, w *waiter) {
	st.queue.Delete(w)
	st.places.Delete(w)
	ks.places--
	if w.attach == 0 {
		st.forgetAway(w)
		return
	}
	ks.present--
	st.countWaiters(w.ns, -1)
}

// atQuota tells whether the owner has as many active leases as it may. Leases
// that have run out do not count, whether or not the sweeper came by.
func (st *step) atQuota(c *acquireCmd) bool {
	over := func() bool { return c.MaxLeases > 0 && st.owner(c.Namespace, c.Owner).active >= c.MaxLeases }
	if over() {
		st.expireOwned(c.Namespace, c.Owner)
	}
	return over()
}

// grant makes the key's new lease in ks, which the caller stores.
func (st *step) grant(ks *keyState, c *acquireCmd, attach uint64) reply {
	token := st.namespace(c.Namespace).floor + st.index
	if ks.last != nil && token <= ks.last.token {
		// No sequence of entries is known to come here; a token that does not rise
		// would be worse than a refusal.
		return reply{code: contract.CodeInternal, detail: "the token would not rise"}
	}
	if token > uint64(contract.MaxToken) {
		return reply{code: contract.CodeInternal, detail: "the namespace has used up its tokens"}
	}
	if st.atQuota(c) {
		return reply{outcome: contract.OutcomeQuotaExceeded, limit: "leases_per_owner"}
	}
	ttl := min(c.TTL, c.MaxLifetime)
	l := &lease{
		grant: &grant{
			ident: ks.ident, nonce: c.Nonce, token: token, at: st.nextPos(), wall: st.wall(),
			cap: st.now + c.MaxLifetime, maxLifetime: c.MaxLifetime, keepAnswer: c.Keep.Idempotency, scope: c.Scope,
			owner: c.Owner, instance: c.Instance, executionID: c.ExecutionID, jobID: c.JobID,
			traceID: c.TraceID, requestID: c.RequestID, metadata: c.Metadata,
		},
		life:   life{renewed: st.wall(), expires: st.now + ttl, nominal: st.wall() + ttl, ttl: ttl},
		attach: attach,
	}
	ks.active, ks.perKey, ks.keep = l, c.Keep.HistoryPerKey, c.Keep.History
	st.expiries.Set(due[*ident]{at: l.expires, what: l.ident})
	st.held.Set(l)
	st.countActive(l.ns, l.owner, 1)
	st.answers.Set(answer{scope: c.Scope, print: c.Print, verb: contract.VerbAcquire, g: l.grant})
	st.emit(contract.EventAcquired, l, l.owner, l.requestID, l.traceID)
	return reply{outcome: contract.OutcomeAcquired, lease: l}
}

func (st *step) emit(kind contract.EventKind, l *lease, principal, requestID, traceID string) {
	st.events = append(st.events, event{
		pos: st.nextPos(), kind: kind, when: st.now, wall: st.wall(), lease: l,
		principal: principal, requestID: requestID, traceID: traceID,
	})
}

// current returns the lease of a grant as it stands now.
func (s *state) current(g *grant) *lease {
	if ks := s.key(g.ident); ks != nil && ks.active != nil && ks.active.token == g.token {
		return ks.active
	}
	return s.endedByToken(g.ident, g.token)
}

// store keeps the answer of a call that changed l.
func (st *step) store(l *lease, a answer, keep int64) {
	a.g, a.drop = l.grant, st.now+keep
	st.answers.Set(a)
	st.answerDrops.Set(due[contract.Scope]{at: a.drop, what: a.scope})
}
