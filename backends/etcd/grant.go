package etcd

import (
	"context"
	"errors"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"leased/contract"
)

// grantPlan is a grant on its way.
type grantPlan struct {
	a       *attempt
	record  *record
	cmps    []clientv3.Cmp
	ops     []clientv3.Op
	changes []queueChange
}

// prepare makes the grant of the state's free key to the attempt, with rest as
// the queue afterwards. unseen tells that it may have to be undone. It has made an
// etcd lease that discard must end if the grant does not come about.
func (s *Store) prepare(ctx context.Context, st *state, a *attempt, rest *queue, unseen bool) (*grantPlan, error) {
	if s.lags(st) {
		return nil, s.catchUp(ctx, st.ref.ns)
	}
	r := &a.req
	answerLease, fail := s.buckets.lease(ctx, r.Retention.Idempotency)
	if fail != nil {
		return nil, fail
	}
	var archiveLease clientv3.LeaseID
	if st.head != nil {
		if archiveLease, fail = s.buckets.lease(ctx, max(st.head.keepFor(), r.Retention.Idempotency)); fail != nil {
			return nil, fail
		}
	}
	h, fail := s.holderLease(ctx, ceilSeconds(r.TTL))
	if fail != nil {
		return nil, fail
	}
	lease := h.id
	g := &grantPlan{a: a, record: st.newRecord(a, h)}
	g.cmps = s.guessed(st, s.unchanged(st))
	if st.aliveMod == 0 {
		// Whatever else was seen, nothing is granted over a lease that is alive.
		g.cmps = append(g.cmps, clientv3.Compare(clientv3.CreateRevision(s.names.key(st.ref.ns, st.ref.id)+partAlive), "=", 0))
	}
	head := s.names.key(st.ref.ns, st.ref.id)
	g.ops = []clientv3.Op{
		clientv3.OpPut(head+partHead, encode(g.record)),
		clientv3.OpPut(head+partAlive, g.record.LeaseID, clientv3.WithLease(lease)),
		clientv3.OpPut(s.names.answer(a.scope), encode(&answer{
			Version: recordVersion, Verb: contract.VerbAcquire, Fingerprint: a.print[:], Ordinal: g.record.Ordinal, Attempt: a.mark, Unseen: unseen,
		}), clientv3.WithLease(answerLease)),
	}
	g.ops = append(g.ops, s.indexOps(st, r.Owner)...)
	if st.head != nil {
		old := st.head.next()
		old.EndRev = st.head.rev // an ended head is not written again; 0 if it ends in the same step
		g.ops = append(g.ops, clientv3.OpPut(s.names.archive(st.ref.ns, st.ref.id, old.Ordinal), encode(old), clientv3.WithLease(archiveLease)))
	}
	g.changes = rest.changes(st.queue)
	cmps, ops, fail := s.putPlaces(ctx, st.ref, g.changes)
	if fail != nil {
		s.discard(g)
		return nil, fail
	}
	g.cmps, g.ops = append(g.cmps, cmps...), append(g.ops, ops...)
	if st.queue.place(a.scope) == nil {
		// Nobody was there, and nobody may have come.
		g.cmps = append(g.cmps, s.nobodyCame(st))
	}
	if st.want.owner != "" {
		count := s.names.count(st.ref.ns, st.want.owner)
		g.cmps = append(g.cmps, clientv3.Compare(clientv3.ModRevision(count), "=", st.countMod))
		g.ops = append(g.ops, clientv3.OpPut(count, "", clientv3.WithLease(answerLease)))
	}
	return g, nil
}

// indexOps makes the key one that the owner holds, and no longer one of whoever
// held it until this step.
func (s *Store) indexOps(st *state, owner string) []clientv3.Op {
	own := clientv3.OpPut(s.names.own(st.ref.ns, owner, st.ref.id), "")
	if st.head == nil || st.head.rev != 0 { // it has ended before
		return []clientv3.Op{own}
	}
	if st.head.Owner == owner {
		return nil
	}
	return []clientv3.Op{own, clientv3.OpDelete(s.names.own(st.ref.ns, st.head.Owner, st.ref.id))}
}

// after returns the instant t, or that of the last thing that happened to the
// key when its gateway's clock is ahead: a key's instants do not go back.
func (st *state) after(t int64) int64 {
	if st.head != nil {
		t = max(t, st.head.Recorded, st.head.Ended, st.head.Renewed)
	}
	return t
}

func (st *state) newRecord(a *attempt, h held) *record {
	r := &a.req
	k := r.Key
	// Ordinals need not be dense. Beginning at a revision makes them rise also
	// when the key was forgotten meanwhile.
	ordinal := uint64(st.rev)
	if st.head != nil {
		ordinal = st.head.Ordinal + 1
	}
	ttl := min(time.Duration(h.granted())*time.Second, r.MaxLifetime)
	at := st.after(h.at)
	n := &record{
		Version: recordVersion, Ordinal: ordinal,
		Tenant: k.Tenant, Program: k.Program, TargetType: string(k.Target.Type), Target: k.Target.ID,
		Actor: k.Actor, Workflow: k.Workflow, Operation: k.Operation,
		Owner: r.Owner, Instance: r.Instance, State: contract.StateActive, Floor: st.floor,
		Acquired: at, Renewed: at, Expires: at + ttl.Microseconds(), TTL: ttl, MaxLife: r.MaxLifetime,
		ExecutionID: r.ExecutionID, JobID: r.JobID, TraceID: r.TraceID, RequestID: r.RequestID, Metadata: r.Metadata,
		Lease: int64(h.id), LeaseTTL: h.ttl, fresh: h.fresh, lifeEnds: time.Now().Add(r.MaxLifetime),
	}
	n.id = newLeaseID(st.ref.id, ordinal)
	n.LeaseID = n.id.String()
	n.keep(r.Retention)
	return n
}

// unchanged compares everything that a grant was decided on.
func (s *Store) unchanged(st *state) []clientv3.Cmp {
	key := s.names.key(st.ref.ns, st.ref.id)
	cmps := []clientv3.Cmp{
		clientv3.Compare(clientv3.ModRevision(key+partHead), "=", st.headMod),
		clientv3.Compare(clientv3.ModRevision(s.names.floor(st.ref.ns)), "=", st.floorMod),
	}
	return cmps
}

// nobodyCame compares that the queue has not changed since it was read, or that
// there is none if it was not read.
func (s *Store) nobodyCame(st *state) clientv3.Cmp {
	places := s.names.queue(st.ref)
	if st.guess {
		return clientv3.Compare(clientv3.CreateRevision(places).WithPrefix(), "=", 0)
	}
	return clientv3.Compare(clientv3.ModRevision(places).WithPrefix(), "<", st.rev+1)
}

// commit sends the grant and reports whether it came about. If it certainly did
// not, its etcd lease is ended.
func (s *Store) commit(ctx context.Context, st *state, g *grantPlan) (bool, error) {
	done, fail := s.commitPlan(ctx, st, g)
	if fail != nil {
		return false, fail
	}
	return done, nil
}

func (s *Store) commitPlan(ctx context.Context, st *state, g *grantPlan) (bool, *failure) {
	resp, fail := s.pool.commit(ctx, st.ref, g.cmps, g.ops)
	switch {
	case fail == nil && resp.Succeeded:
		g.record.rev, g.record.aliveRev = resp.Header.Revision, resp.Header.Revision
		s.hints.wrote(st.ref, g.record)
		return true, nil
	case fail == nil:
		s.hints.forget(st.ref)
		s.discard(g)
		return false, nil
	case isErr(fail.err, rpctypes.ErrLeaseNotFound):
		// One of the etcd leases is gone: the holder's own ran out on the way, or
		// etcd went back to before a bucket was made.
		s.buckets.forget()
		return false, nil
	}
	s.hints.forget(st.ref)
	if fail.noSpace() {
		var ans *answer
		if ans, fail = s.applied(ctx, g.a.scope, g.a.mark, fail); ans != nil {
			g.record.rev, g.record.aliveRev = ans.rev, ans.rev
			return true, nil
		}
	}
	if !fail.unknown() {
		s.discard(g)
	}
	return false, fail
}

// discard frees the etcd lease of a grant that did not come about.
func (s *Store) discard(g *grantPlan) {
	s.spares.put(g.record.LeaseTTL, g.record.Lease, g.record.fresh)
}

// granted answers a grant that was committed, in time for its TTL.
func (s *Store) granted(ctx context.Context, st *state, g *grantPlan) (contract.Result, error) {
	if g.record.token() > contract.MaxToken {
		// Other writes came between: the last tokens were used up meanwhile.
		if _, err := s.undo(ctx, g.a, &share{id: g.record.id, rev: g.record.rev}); err != nil {
			return contract.Result{}, writeError(ctx, err, true)
		}
		return contract.Result{}, errNoToken()
	}
	if g.record.token() <= contract.Token(s.tokens.above.Load()) {
		// Etcd went back, and this was the first to come to it.
		if _, err := s.undo(ctx, g.a, &share{id: g.record.id, rev: g.record.rev}); err != nil {
			return contract.Result{}, writeError(ctx, err, true)
		}
		return contract.Result{}, s.catchUp(ctx, st.ref.ns)
	}
	s.tokens.see(g.record.token())
	s.trimLater(st.ref, g.record)
	if late(g.record.fresh) {
		return contract.Result{}, lateError{}
	}
	return contract.Result{Outcome: contract.OutcomeAcquired, Lease: g.record.lease(st.ref.ns, now())}, nil
}

// mayBeApplied tells whether what failed may have been applied.
func mayBeApplied(err error) bool {
	f, ok := errors.AsType[*failure](err)
	return ok && f.unknown()
}
