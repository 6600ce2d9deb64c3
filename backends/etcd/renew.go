package etcd

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"leased/contract"
)

// bulkWorkers is how many renewals of a bulk are on their way at once.
const bulkWorkers = 32

// Renew implements contract.Store.
func (s *Store) Renew(ctx context.Context, r *contract.RenewRequest) (contract.Result, error) {
	ctx, end, err := s.begin(ctx, r.Validate)
	if err != nil {
		return contract.Result{}, err
	}
	defer end()
	return s.renew(ctx, r)
}

// RenewBulk implements contract.Store. Each renewal is a transaction of its own.
func (s *Store) RenewBulk(ctx context.Context, r *contract.RenewBulkRequest) (contract.RenewBulkResult, error) {
	ctx, end, err := s.begin(ctx, r.Validate)
	if err != nil {
		return contract.RenewBulkResult{}, err
	}
	defer end()
	out := contract.RenewBulkResult{Items: make([]contract.RenewItemResult, len(r.Leases))}
	ofKey := map[contract.KeyID][]int{}
	for i := range r.Leases {
		id := r.Leases[i].LeaseID.KeyID()
		ofKey[id] = append(ofKey[id], i)
	}
	room := make(chan struct{}, bulkWorkers)
	renewAll := func(items []int) {
		var running sync.WaitGroup
		for _, i := range items {
			room <- struct{}{}
			running.Go(func() {
				defer func() { <-room }()
				item := r.Item(i)
				out.Items[i].Result, out.Items[i].Err = s.renew(ctx, &item)
			})
		}
		running.Wait()
	}
	var keys sync.WaitGroup
	for id, items := range ofKey {
		keys.Go(func() {
			for _, together := range s.inOrder(ctx, r, keyRef{r.Namespace, id}, items) {
				renewAll(together)
			}
		})
	}
	keys.Wait()
	return out, allFailed(out.Items)
}

// inOrder parts the leases of one key, which share the scope of the request id, so
// that each is answered after those that it has to see the effect of. Only the one
// that holds the key can be renewed, and no other of them ever will hold it.
func (s *Store) inOrder(ctx context.Context, r *contract.RenewBulkRequest, ref keyRef, items []int) [][]int {
	if len(items) == 1 {
		return [][]int{items}
	}
	st, err := s.load(ctx, ref, want{})
	if err != nil {
		return slices.Collect(slices.Chunk(items, 1)) // each says itself what is wrong
	}
	holder := st.active()
	holds := slices.IndexFunc(items, func(i int) bool { return holder != nil && r.Leases[i].LeaseID == holder.id })
	if holds < 0 {
		return [][]int{items}
	}
	return [][]int{items[:holds], items[holds : holds+1], items[holds+1:]}
}

// allFailed returns the error of a bulk of which nothing was done, or of which
// nothing is known.
func allFailed(items []contract.RenewItemResult) error {
	unknown := 0
	for i := range items {
		if items[i].Err == nil {
			return nil
		}
		if contract.CodeOf(items[i].Err) == contract.CodeOutcomeUnknown {
			unknown++
		}
	}
	if unknown == 0 || unknown == len(items) {
		return items[0].Err
	}
	return nil
}

func (s *Store) renew(ctx context.Context, r *contract.RenewRequest) (contract.Result, error) {
	ref, scope, fingerprint, mark := keyRef{r.Namespace, r.LeaseID.KeyID()}, r.Scope(), r.Fingerprint(), newMark()
	maybe := false
	w := want{scope: scope, ordinal: ordinalOf(r.LeaseID)}
	st, err := s.first(ctx, ref, w)
	for ; ; st, err = s.load(ctx, ref, w) {
		if err == nil && st.guess && (st.active() == nil || st.head.id != r.LeaseID || st.head.Owner != r.Owner ||
			st.head.Instance != r.Instance || st.head.token() != r.Token) {
			st, err = s.load(ctx, ref, w)
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
		if res, ok := renewRefused(st, r, fingerprint, mark); ok {
			err := s.renewedLeft(ctx, st, &res)
			if errors.Is(err, undoneError{}) {
				continue
			}
			return res, err
		}
		rec, fail := s.extend(ctx, st, r, &answer{
			Version: recordVersion, Verb: contract.VerbRenew, Fingerprint: fingerprint[:], Ordinal: st.head.Ordinal, Attempt: mark,
		})
		switch {
		case fail == nil && rec != nil && rec.fresh != st.head.fresh && late(rec.fresh):
			maybe = true
		case fail == nil && rec != nil:
			return contract.Result{Outcome: contract.OutcomeRenewed, Lease: rec.lease(ref.ns, now())}, nil
		case fail == nil: // something changed meanwhile
		case isErr(fail.err, rpctypes.ErrLeaseNotFound):
			// The holder's etcd lease ran out on the way, or a bucket is gone.
			s.buckets.forget()
		case fail.unknown():
			maybe = true
		default:
			return contract.Result{}, writeError(ctx, fail, maybe)
		}
	}
}

// renewedLeft completes the answer to a renewal that was found stored with what is
// left of it.
func (s *Store) renewedLeft(ctx context.Context, st *state, res *contract.Result) error {
	if res.Outcome != contract.OutcomeRenewed {
		return nil
	}
	if res.Replayed || st.head.Renewals != st.answer.Renewals {
		res.Lease.ExpiresIn = min(res.Lease.ExpiresIn, s.leftOf(ctx, st.head, res.Lease.ExpiresIn))
		return nil
	}
	left, err := s.restart(ctx, st.head)
	if err != nil {
		*res = contract.Result{}
		return err
	}
	res.Lease.ExpiresIn = s.leftOf(ctx, st.head, left) // the maximum lifetime may leave less
	return nil
}

// renewRefused answers the call if there is nothing to renew.
func renewRefused(st *state, r *contract.RenewRequest, fingerprint contract.Fingerprint, mark []byte) (contract.Result, bool) {
	t := now()
	if st.answer != nil {
		if !bytes.Equal(st.answer.Fingerprint, fingerprint[:]) {
			return contract.Result{Outcome: contract.OutcomeRequestIDReused}, true
		}
		if rec := st.lease(r.LeaseID); rec != nil {
			return replayRenew(st, rec, mark, t), true
		}
	}
	rec := st.find(r.LeaseID, t)
	if rec == nil {
		return contract.Result{Outcome: contract.OutcomeNotFound}, true
	}
	l := st.shown(rec, t)
	outcome := l.Match(r.Owner, r.Instance, r.Token)
	if outcome == 0 {
		return contract.Result{}, false
	}
	res := contract.Result{Outcome: outcome}
	if outcome == contract.EndedOutcome(rec.State) {
		res.Lease = l
	}
	return res, true
}

// replayRenew answers as the renewal was answered, or how the lease ended since.
func replayRenew(st *state, rec *record, mark []byte, t int64) contract.Result {
	replayed := !bytes.Equal(st.answer.Attempt, mark)
	if rec.State.Terminal() {
		return contract.Result{Outcome: contract.EndedOutcome(rec.State), Lease: st.shown(rec, t), Replayed: replayed}
	}
	first := *rec
	a := st.answer
	first.Renewed, first.Expires, first.TTL, first.Renewals = a.Renewed, a.Expires, a.TTL, a.Renewals
	l := st.shown(&first, t)
	// A later renewal may be what keeps the lease alive.
	l.ExpiresIn = min(max(time.Duration(a.Expires-t)*time.Microsecond, 0), a.TTL)
	return contract.Result{Outcome: contract.OutcomeRenewed, Lease: l, Replayed: replayed}
}

// extend renews the state's active lease. The etcd lease comes first: should it
// be over by now, nothing was said to anybody; and the transaction compares that
// the lease which was extended is the one that is renewed. It returns nothing if
// the state has changed.
func (s *Store) extend(ctx context.Context, st *state, r *contract.RenewRequest, a *answer) (*record, *failure) {
	rec := st.head.next()
	rec.keep(r.Retention)
	answerLease, fail := s.buckets.lease(ctx, r.Retention.Idempotency)
	if fail != nil {
		return nil, fail
	}
	key := s.names.key(st.ref.ns, st.ref.id)
	var made []int64 // etcd leases to end if this does not come about
	var ops []clientv3.Op
	if rec.Life == 0 {
		if rec.Life, fail = s.limitLife(ctx, st); fail != nil {
			return nil, fail
		}
		made = append(made, rec.Life)
		ops = append(ops, clientv3.OpPut(key+partLife, ordinalText(rec.Ordinal), clientv3.WithLease(clientv3.LeaseID(rec.Life))))
	}
	at := max(now(), st.head.Renewed+1)
	ttl, fresh, fail := s.prolong(ctx, st, rec, r.TTL, at)
	if fail != nil {
		s.endLeases(made...)
		// Of the lease itself nothing was changed.
		return nil, &failure{err: fail.err, sent: fail.sent, refused: fail.refused, said: fail.said}
	}
	if fresh {
		made = append(made, rec.Lease)
		ops = append(ops, clientv3.OpPut(key+partAlive, rec.LeaseID, clientv3.WithLease(clientv3.LeaseID(rec.Lease))))
	}
	rec.Renewed, rec.Expires, rec.TTL = at, at+ttl.Microseconds(), ttl
	rec.Renewals++
	rec.RenewRequestID, rec.RenewTraceID = r.RequestID, r.TraceID
	a.Renewed, a.Expires, a.TTL, a.Renewals = rec.Renewed, rec.Expires, rec.TTL, rec.Renewals
	ops = append(ops,
		clientv3.OpPut(key+partHead, encode(rec)),
		clientv3.OpPut(s.names.answer(r.Scope()), encode(a), clientv3.WithLease(answerLease)))
	resp, fail := s.pool.commit(ctx, st.ref, s.guessed(st, s.stillThere(st)), ops)
	if fail != nil && fail.noSpace() {
		var ans *answer
		if ans, fail = s.applied(ctx, r.Scope(), a.Attempt, fail); ans != nil {
			s.hints.forget(st.ref)
			return rec, nil
		}
	}
	if fail == nil && resp.Succeeded {
		rec.rev, rec.aliveRev, rec.lifeRev = resp.Header.Revision, st.aliveMod, st.lifeMod
		if rec.Lease != st.head.Lease {
			rec.aliveRev = rec.rev
		}
		if rec.Life != st.head.Life {
			rec.lifeRev = rec.rev
		}
		s.hints.wrote(st.ref, rec)
		s.noteLine(st.ref, rec)
		if rec.Lease != st.head.Lease {
			s.endLeases(st.head.Lease)
		}
		return rec, nil
	}
	s.hints.forget(st.ref)
	if fail == nil || !fail.unknown() {
		s.endLeases(made...)
	}
	return nil, fail
}

// prolong starts the TTL of the holder's etcd lease again, or makes another one
// for another TTL. It returns the TTL that is granted, and whether the etcd lease
// is a fresh one.
func (s *Store) prolong(ctx context.Context, st *state, rec *record, asked time.Duration, at int64) (time.Duration, bool, *failure) {
	left, fail := s.lifeLeft(ctx, st.head, at)
	if fail != nil {
		return 0, false, fail
	}
	ttl, seconds := grantedTTL(st.head, asked, left)
	switch {
	case seconds == 0:
		return ttl, false, nil
	case seconds+spareTTL == st.head.LeaseTTL:
		rec.fresh = time.Now()
		return ttl, false, s.pool.keepAlive(ctx, clientv3.LeaseID(st.head.Lease))
	}
	h, fail := s.holderLease(ctx, seconds)
	if fail != nil {
		return 0, false, fail
	}
	rec.Lease, rec.LeaseTTL, rec.fresh = int64(h.id), h.ttl, h.fresh
	return min(max(ttl, time.Duration(h.granted())*time.Second), left), true, nil
}

// grantedTTL returns the TTL that a renewal is granted and the TTL of the etcd
// lease for it, in seconds; 0 seconds to leave the etcd lease as it is, because
// the maximum lifetime leaves nothing.
func grantedTTL(r *record, asked, left time.Duration) (time.Duration, int64) {
	if asked == 0 {
		asked = r.TTL
	}
	if left <= time.Millisecond {
		return left, 0
	}
	seconds := ceilSeconds(min(asked, left))
	return min(time.Duration(seconds)*time.Second, left), seconds
}
