package etcd

import (
	"bytes"
	"context"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"leased/contract"
)

// ending is how a lease ends.
type ending struct {
	state     contract.State
	by        string
	requestID string
	traceID   string
	reason    string
	keep      *contract.Retention // nil leaves it
}

// ended returns the state's newest lease as it ends now.
func (st *state) ended(e ending) *record {
	r := st.head.next()
	t := st.after(now())
	r.State, r.EndedBy, r.Reason, r.EndRequestID, r.EndTraceID = e.state, e.by, e.reason, e.requestID, e.traceID
	r.Ended, r.Recorded = t, t
	if e.state == contract.StateExpired {
		r.Ended, r.Recorded = r.Expires, max(t, r.Expires)
	}
	if e.keep != nil {
		r.keep(*e.keep)
	}
	return r
}

// endOps writes the newest lease as it ended. What it hung on goes with it.
func (s *Store) endOps(st *state, r *record, lease clientv3.LeaseID) []clientv3.Op {
	return append([]clientv3.Op{
		clientv3.OpPut(s.names.key(st.ref.ns, st.ref.id)+partHead, encode(r), clientv3.WithLease(lease)),
	}, s.freeOps(st)...)
}

// freeOps are those of endOps that etcd also takes when it is out of space.
func (s *Store) freeOps(st *state) []clientv3.Op {
	key := s.names.key(st.ref.ns, st.ref.id)
	ops := []clientv3.Op{
		clientv3.OpDelete(key + partAlive),
		clientv3.OpDelete(s.names.own(st.ref.ns, st.head.Owner, st.ref.id)),
	}
	if st.head.Life != 0 {
		ops = append(ops, clientv3.OpDelete(key+partLife))
	}
	return ops
}

// stillThere compares that the newest lease is as it was seen, and alive. That it
// is this lease is compared besides the revisions: in an etcd that was restored
// from a backup they come again.
func (s *Store) stillThere(st *state) []clientv3.Cmp {
	head := s.names.key(st.ref.ns, st.ref.id) + partHead
	return append(s.asAlive(st), clientv3.Compare(clientv3.ModRevision(head), "=", st.headMod))
}

// asAlive compares that the newest lease is as alive as it was seen.
func (s *Store) asAlive(st *state) []clientv3.Cmp {
	key := s.names.key(st.ref.ns, st.ref.id)
	var cmps []clientv3.Cmp
	if st.aliveMod != 0 {
		cmps = append(cmps, clientv3.Compare(clientv3.Value(key+partAlive), "=", st.head.LeaseID))
	} else {
		cmps = append(cmps, clientv3.Compare(clientv3.CreateRevision(key+partAlive), "=", 0))
	}
	if st.head.Life != 0 {
		cmps = append(cmps, clientv3.Compare(clientv3.ModRevision(key+partLife), "=", st.lifeMod))
	}
	return cmps
}

// settle writes down that the state's newest lease is over on etcd's clock.
// Whoever meets it does so, and one of them succeeds; the caller reads again.
func (s *Store) settle(ctx context.Context, st *state) error {
	_, err := s.settleSurely(ctx, st)
	return err
}

// settleSurely is settle that also tells whether the lease is certainly not due
// any more.
func (s *Store) settleSurely(ctx context.Context, st *state) (sure bool, err error) {
	bucket, fail := s.buckets.lease(ctx, st.head.keepFor())
	if fail == nil {
		r := st.ended(ending{state: contract.StateExpired})
		var resp *clientv3.TxnResponse
		resp, fail = s.pool.commit(ctx, st.ref, s.stillThere(st), s.endOps(st, r, bucket))
		if fail == nil && resp.Succeeded {
			r.rev = resp.Header.Revision
			s.ownEnds.add(r.rev)
			s.wakeLine(st.ref, r)
			s.observe(st.ref.ns, r)
			s.endLeases(r.Lease, r.Life)
		}
	}
	switch {
	case fail == nil:
		return true, nil
	case isErr(fail.err, rpctypes.ErrLeaseNotFound):
		s.buckets.forget()
		return false, nil
	case fail.noSpace():
		return false, &failure{err: fail.err, sent: true, refused: true}
	case fail.unknown() && ctx.Err() == nil:
		return false, nil // the caller looks whether it is done
	}
	return false, fail
}

// observe tells the observer of an expiry that this store recorded.
func (s *Store) observe(ns string, r *record) {
	if s.config.Observer != nil {
		s.config.Observer(endedEvent(ns, r))
	}
}

// Release implements contract.Store.
func (s *Store) Release(ctx context.Context, r *contract.ReleaseRequest) (contract.Result, error) {
	ctx, end, err := s.begin(ctx, r.Validate)
	if err != nil {
		return contract.Result{}, err
	}
	defer end()
	return s.end(ctx, &endCall{
		ref: keyRef{r.Namespace, r.LeaseID.KeyID()}, id: r.LeaseID, verb: contract.VerbRelease, outcome: contract.OutcomeReleased,
		scope: r.Scope(), print: r.Fingerprint(), mark: newMark(), keep: r.Retention,
		match:  func(l *contract.Lease) contract.Outcome { return l.Match(r.Owner, r.Instance, r.Token) },
		ending: ending{state: contract.StateReleased, by: r.Owner, requestID: r.RequestID, traceID: r.TraceID, keep: &r.Retention},
	})
}

// Revoke implements contract.Store.
func (s *Store) Revoke(ctx context.Context, r *contract.RevokeRequest) (contract.Result, error) {
	ctx, end, err := s.begin(ctx, r.Validate)
	if err != nil {
		return contract.Result{}, err
	}
	defer end()
	return s.end(ctx, &endCall{
		ref: keyRef{r.Namespace, r.LeaseID.KeyID()}, id: r.LeaseID, verb: contract.VerbRevoke, outcome: contract.OutcomeRevoked,
		scope: r.Scope(), print: r.Fingerprint(), mark: newMark(), keep: r.Retention,
		match: func(l *contract.Lease) contract.Outcome { return contract.EndedOutcome(l.State) },
		ending: ending{
			state: contract.StateRevoked, by: r.Principal, requestID: r.RequestID, traceID: r.TraceID, reason: r.Reason, keep: &r.Retention,
		},
	})
}

// endCall is a call that ends a lease.
type endCall struct {
	ref     keyRef
	id      contract.LeaseID
	verb    contract.Verb
	outcome contract.Outcome
	scope   contract.Scope
	print   contract.Fingerprint
	mark    []byte
	keep    contract.Retention
	match   func(*contract.Lease) contract.Outcome
	ending  ending
}

func (s *Store) end(ctx context.Context, c *endCall) (contract.Result, error) {
	maybe := false
	w := want{scope: c.scope, ordinal: ordinalOf(c.id)}
	st, err := s.first(ctx, c.ref, w)
	for ; ; st, err = s.load(ctx, c.ref, w) {
		if err == nil && st.guess && !c.wouldEnd(st) {
			st, err = s.load(ctx, c.ref, w)
		}
		if err != nil {
			return contract.Result{}, writeError(ctx, err, maybe)
		}
		if st.due() {
			if err := s.settle(ctx, st); err != nil {
				return contract.Result{}, writeError(ctx, err, maybe)
			}
			continue
		}
		if res, ok := c.refused(st); ok {
			return res, nil
		}
		bucket, fail := s.buckets.lease(ctx, c.keep.Idempotency)
		if fail == nil {
			var r *record
			if r, fail = s.commitEnd(ctx, st, c, bucket); r != nil {
				s.freed(r)
				return contract.Result{Outcome: c.outcome, Lease: r.lease(c.ref.ns, now())}, nil
			}
		}
		switch {
		case fail == nil: // something changed meanwhile
		case fail.noSpace() && fail.refused:
			s.hints.forget(c.ref)
			if r, fail := s.endWithoutSpace(ctx, st, c); fail != nil && fail.unknown() {
				maybe = true
			} else if fail != nil {
				return contract.Result{}, writeError(ctx, fail, maybe)
			} else if r != nil {
				return contract.Result{Outcome: c.outcome, Lease: r.lease(c.ref.ns, now())}, nil
			}
		case fail.unknown():
			maybe = true
		case isErr(fail.err, rpctypes.ErrLeaseNotFound):
			s.buckets.forget()
		default:
			return contract.Result{}, writeError(ctx, fail, maybe)
		}
	}
}

// freed frees the etcd leases of a lease that was ended.
func (s *Store) freed(r *record) {
	s.spares.put(r.LeaseTTL, r.Lease, r.fresh)
	s.endLeases(r.Life)
}

// wouldEnd tells whether the call ends the newest lease of a state, if it is as
// guessed.
func (c *endCall) wouldEnd(st *state) bool {
	return st.active() != nil && st.head.id == c.id && c.match(st.shown(st.head, now())) == 0
}

// refused answers the call if there is nothing to end.
func (c *endCall) refused(st *state) (contract.Result, bool) {
	t := now()
	if st.answer != nil {
		if !bytes.Equal(st.answer.Fingerprint, c.print[:]) {
			return contract.Result{Outcome: contract.OutcomeRequestIDReused}, true
		}
		if r := st.lease(c.id); r != nil {
			return contract.Result{
				Outcome: c.outcome, Lease: st.shown(r, t), Replayed: !bytes.Equal(st.answer.Attempt, c.mark),
			}, true
		}
	}
	r := st.find(c.id, t)
	if r == nil {
		return contract.Result{Outcome: contract.OutcomeNotFound}, true
	}
	l := st.shown(r, t)
	outcome := c.match(l)
	if outcome == 0 {
		return contract.Result{}, false
	}
	res := contract.Result{Outcome: outcome}
	if outcome == contract.EndedOutcome(r.State) {
		res.Lease = l
	}
	return res, true
}

// answer is what a request id that ended the lease r is answered.
func (c *endCall) answer(r *record) *answer {
	return &answer{Version: recordVersion, Verb: c.verb, Fingerprint: c.print[:], Ordinal: r.Ordinal, Attempt: c.mark}
}

// commitEnd ends the newest lease. It returns the lease as it ended, or nil.
func (s *Store) commitEnd(ctx context.Context, st *state, c *endCall, bucket clientv3.LeaseID) (*record, *failure) {
	r := st.ended(c.ending)
	if n := s.nextInLine(st); n != nil {
		r.rev = 0 // not written by itself
		done, fail := s.passOn(ctx, st, c, bucket, r, n)
		if !done {
			return nil, fail
		}
		return r, nil
	}
	headBucket, fail := s.buckets.lease(ctx, r.keepFor())
	if fail != nil {
		return nil, fail
	}
	ops := append(s.endOps(st, r, headBucket), clientv3.OpPut(s.names.answer(c.scope), encode(c.answer(r)), clientv3.WithLease(bucket)))
	resp, fail := s.pool.commit(ctx, st.ref, s.guessed(st, s.stillThere(st)), ops)
	switch {
	case fail != nil && fail.noSpace():
		var ans *answer
		if ans, fail = s.applied(ctx, c.scope, c.mark, fail); ans == nil {
			s.hints.forget(st.ref)
			return nil, fail
		}
		r.rev = ans.rev
	case fail != nil || !resp.Succeeded:
		s.hints.forget(st.ref)
		return nil, fail
	default:
		r.rev = resp.Header.Revision
	}
	s.hints.wrote(st.ref, r)
	s.ownEnds.add(r.rev)
	s.wakeLine(st.ref, r)
	return r, nil
}

// endWithoutSpace ends a lease while etcd takes no more than deletions. The key
// is free at once; that it was not an expiry goes on record only if etcd has
// space again before somebody settles it, see DESIGN.md.
// It returns nothing if the state has changed.
func (s *Store) endWithoutSpace(ctx context.Context, st *state, c *endCall) (*record, *failure) {
	resp, fail := s.pool.txn(ctx, s.stillThere(st), s.freeOps(st))
	if fail != nil || !resp.Succeeded {
		return nil, fail
	}
	r := st.ended(c.ending)
	s.endLeases(r.Lease, r.Life)
	return r, nil
}

// applied finds out whether the transaction that etcd had no space for was
// applied all the same: it is asked for the answer with the call's mark. It
// returns the answer, or how the call failed.
func (s *Store) applied(ctx context.Context, scope contract.Scope, mark []byte, noSpace *failure) (*answer, *failure) {
	resp, fail := s.pool.read(ctx, clientv3.OpGet(s.names.answer(scope)))
	if fail != nil {
		return nil, noSpace // still unknown
	}
	for _, kv := range resp.Responses[0].GetResponseRange().GetKvs() {
		a, err := decodeAnswer(kv)
		if err != nil {
			return nil, noSpace
		}
		if bytes.Equal(a.Attempt, mark) {
			if a.rev != kv.CreateRevision {
				return nil, noSpace // somebody has claimed it already, and the caller reads again
			}
			return a, nil
		}
	}
	return nil, &failure{err: noSpace.err, sent: true, refused: true}
}

// undo ends a grant that nobody was there to take, and forgets its answer, so
// that a retry is a fresh attempt. It reports false if somebody has seen the
// grant since: then it is theirs.
func (s *Store) undo(ctx context.Context, a *attempt, g *share) (bool, error) {
	for maybe, full := false, false; ; {
		st, err := s.load(ctx, a.ref, want{scope: a.scope})
		if err != nil {
			return false, err
		}
		if st.head == nil || st.head.id != g.id || st.active() == nil {
			return maybe || st.head != nil && st.head.id == g.id && st.head.Reason == undoneReason, nil
		}
		if st.headMod != g.rev || st.answer == nil || st.answer.rev != g.rev {
			return false, nil
		}
		r := st.ended(ending{
			state: contract.StateReleased, by: st.head.Owner, requestID: a.req.RequestID, traceID: a.req.TraceID, reason: undoneReason,
		})
		answer := s.names.answer(a.scope)
		cmps := append(s.stillThere(st), clientv3.Compare(clientv3.ModRevision(answer), "=", g.rev))
		ops := s.freeOps(st)
		bucket, fail := s.buckets.lease(ctx, r.keepFor())
		switch {
		case fail != nil && fail.noSpace():
			full = true
		case fail != nil:
			return false, fail
		}
		if !full {
			ops = s.endOps(st, r, bucket)
		}
		resp, fail := s.pool.commit(ctx, a.ref, cmps, append(ops, clientv3.OpDelete(answer)))
		switch {
		case fail != nil && fail.noSpace():
			maybe, full = true, true // from now on only what takes no space
		case fail != nil && !fail.unknown():
			return false, fail
		case fail != nil:
			maybe = true
		case resp.Succeeded:
			r.rev = resp.Header.Revision
			s.ownEnds.add(r.rev)
			s.wakeLine(a.ref, r)
			s.endLeases(r.Lease, r.Life)
			return true, nil
		}
	}
}

// undoneReason stands in the record of a lease that was granted to a waiter who
// had gone by then.
const undoneReason = "undone: the waiter had gone"
