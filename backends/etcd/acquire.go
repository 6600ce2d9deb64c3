package etcd

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"maps"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"leased/contract"
)

// attempt is one call to Acquire. Its copies have the same scope.
type attempt struct {
	req   contract.AcquireRequest
	ref   keyRef
	scope contract.Scope
	print contract.Fingerprint
	mark  []byte // tells this call from its copies
}

func newAttempt(r *contract.AcquireRequest) *attempt {
	a := &attempt{
		req: *r, ref: keyRef{r.Namespace, r.Key.ID()}, scope: r.Scope(), print: r.Fingerprint(), mark: newMark(),
	}
	a.req.Metadata = maps.Clone(r.Metadata)
	return a
}

func newMark() []byte {
	mark := make([]byte, 8)
	_, _ = rand.Read(mark) // never fails, see its documentation
	return mark
}

// want is what an acquire reads.
func (a *attempt) want() want {
	w := want{scope: a.scope}
	if a.req.Limits.LeasesPerOwner > 0 {
		w.owner = a.req.Owner
	}
	return w
}

// Acquire implements contract.Store.
func (s *Store) Acquire(ctx context.Context, r *contract.AcquireRequest) (contract.Result, error) {
	ctx, end, err := s.begin(ctx, r.Validate)
	if err != nil {
		return contract.Result{}, err
	}
	defer end()
	a := newAttempt(r)
	if s.lineWaits(a) {
		return s.wait(ctx, a)
	}
	res, wait, err := s.try(ctx, a)
	if err != nil || !wait {
		return res, err
	}
	return s.wait(ctx, a)
}

// try acquires without waiting. wait tells that there is nothing to be had now.
func (s *Store) try(ctx context.Context, a *attempt) (res contract.Result, wait bool, err error) {
	maybe := false
	st, err := s.first(ctx, a.ref, a.want())
	for promised := (patience{}); ; st, err = s.load(ctx, a.ref, a.want()) {
		if err == nil && st.guess && st.active() != nil {
			st, err = s.load(ctx, a.ref, a.want())
		}
		if err != nil {
			return contract.Result{}, false, writeError(ctx, err, maybe)
		}
		if st.due() {
			if err := s.settle(ctx, st); err != nil {
				return contract.Result{}, false, writeError(ctx, err, maybe)
			}
			continue
		}
		res, verdict, err := s.decide(ctx, st, a)
		switch {
		case errors.Is(err, undoneError{}):
			continue
		case err != nil:
			return contract.Result{}, false, writeError(ctx, err, maybe)
		case verdict == answered && res.Outcome == contract.OutcomeConflict && res.Lease == nil && promised.more(ctx):
			continue
		case verdict != mayGrant:
			return res, verdict == mustWait, nil
		}
		g, err := s.prepare(ctx, st, a, st.queue.without(a.scope), false)
		if errors.Is(err, undoneError{}) {
			continue
		}
		if err != nil {
			return contract.Result{}, false, writeError(ctx, err, maybe)
		}
		done, err := s.commit(ctx, st, g)
		switch {
		case err == nil && done:
			res, err := s.granted(ctx, st, g)
			if errors.Is(err, undoneError{}) {
				continue
			}
			return res, false, err
		case err != nil && !mayBeApplied(err):
			return contract.Result{}, false, writeError(ctx, err, maybe)
		case err != nil:
			maybe = true
		}
	}
}

// servedWithin is how long the first in the queue may take to be granted a free
// key, with the time that it takes to notice that its gateway is gone.
const servedWithin = 2 * time.Second

// patience waits a little for who is to be told of in a conflict: between the end
// of a lease and the grant to the first in the queue nobody holds the key, but it
// is not to be had either.
type patience struct {
	until time.Time
	pause time.Duration
}

// more waits, and reports whether it is worth looking again.
func (p *patience) more(ctx context.Context) bool {
	if p.until.IsZero() {
		p.until, p.pause = time.Now().Add(servedWithin), time.Millisecond
	}
	if time.Now().After(p.until) {
		return false
	}
	sleep(ctx, p.pause)
	p.pause = min(2*p.pause, 20*time.Millisecond)
	return ctx.Err() == nil
}

// verdict is what an acquire may do as things stand.
type verdict uint8

const (
	answered verdict = iota // the result is the answer
	mayGrant
	mustWait
)

// decide tells what the acquire gets in the state.
func (s *Store) decide(ctx context.Context, st *state, a *attempt) (contract.Result, verdict, error) {
	t := now()
	if st.answer != nil {
		res, ok, err := s.replayAcquire(ctx, st, a, t)
		if err != nil || ok {
			return res, answered, err
		}
	}
	mine := st.queue.place(a.scope)
	if mine != nil && !mine.equalPrint(a.print) {
		return contract.Result{Outcome: contract.OutcomeRequestIDReused}, answered, nil
	}
	if mine == nil {
		over, err := s.ownerAtLimit(ctx, st, a)
		if err != nil {
			return contract.Result{}, answered, err
		}
		if over {
			return quotaExceeded("leases_per_owner"), answered, nil
		}
	}
	if st.active() == nil && !st.othersFirst(a.scope) {
		if !st.tokenLeft() {
			return contract.Result{}, answered, errNoToken()
		}
		return contract.Result{}, mayGrant, nil
	}
	if a.req.Wait == 0 {
		return st.conflict(a.scope, t), answered, nil
	}
	if mine == nil && !st.queue.clone().room(a.req.Limits.WaitersPerKey, st.sessions) {
		return quotaExceeded("waiters_per_key"), answered, nil
	}
	return contract.Result{}, mustWait, nil
}

func quotaExceeded(limit string) contract.Result {
	return contract.Result{Outcome: contract.OutcomeQuotaExceeded, Limit: limit}
}

func errNoToken() error {
	return contract.Errorf(contract.CodeInternal, nil, "the namespace has no fencing token left")
}

// othersFirst reports whether somebody else waits whose turn it is.
func (st *state) othersFirst(scope contract.Scope) bool {
	i := st.queue.first(st.sessions)
	return i >= 0 && st.queue.places[i].scope != scope
}

// replayAcquire answers what the scope was answered before. It reports false if
// the lease that the answer is about is forgotten.
func (s *Store) replayAcquire(ctx context.Context, st *state, a *attempt, t int64) (contract.Result, bool, error) {
	if !bytes.Equal(st.answer.Fingerprint, a.print[:]) {
		return contract.Result{Outcome: contract.OutcomeRequestIDReused}, true, nil
	}
	r := st.numbered(st.answer.Ordinal)
	if r == nil {
		w := st.want
		w.ordinal = st.answer.Ordinal
		again, err := s.load(ctx, st.ref, w)
		if err != nil {
			return contract.Result{}, false, err
		}
		// What was the head may be in the archive by now; either is the lease.
		if r = again.numbered(st.answer.Ordinal); r == nil {
			return contract.Result{}, false, nil
		}
	}
	res := contract.Result{Outcome: contract.OutcomeAcquired, Lease: st.shown(r, t), Replayed: true}
	if r.State.Terminal() {
		res.Outcome = contract.EndedOutcome(r.State)
	}
	res.Replayed = !bytes.Equal(st.answer.Attempt, a.mark)
	if res.Replayed && st.answer.Unseen && !r.State.Terminal() {
		return s.claim(ctx, st, a, res)
	}
	return res, true, nil
}

// undoneError tells that what was to be repeated was taken back: to look again
// makes a fresh attempt.
type undoneError struct{}

func (undoneError) Error() string { return "the grant was taken back" }

// toWaiter is err as a call is told it that cannot look again by itself.
func toWaiter(err error) error {
	if errors.Is(err, undoneError{}) {
		return contract.Errorf(contract.CodeUnavailable, err, "etcd has gone back to an older state; repeat the call")
	}
	return err
}

// claim shows a grant that only the gateway at which it was waited for knows of.
// From then on that gateway cannot take it back.
func (s *Store) claim(ctx context.Context, st *state, a *attempt, res contract.Result) (contract.Result, bool, error) {
	name := s.names.answer(a.scope)
	for {
		seen := *st.answer
		seen.Unseen = false
		resp, fail := s.pool.txn(ctx,
			[]clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(name), "=", st.answer.rev)},
			[]clientv3.Op{clientv3.OpPut(name, encode(&seen), clientv3.WithLease(clientv3.LeaseID(st.answer.lease)))}, nil)
		switch {
		case fail == nil && resp.Succeeded:
			return res, true, nil
		case fail != nil && !fail.unknown():
			return contract.Result{}, false, fail
		}
		again, err := s.load(ctx, st.ref, st.want)
		switch {
		case err != nil:
			return contract.Result{}, false, err
		case again.answer == nil:
			return contract.Result{}, false, undoneError{}
		case !again.answer.Unseen:
			return res, true, nil
		}
		st = again
	}
}

// grantPlan is a grant on its way.
type grantPlan struct {
	a       *attempt
	record  *record
	cmps    []clientv3.Cmp
	ops     []clientv3.Op
	changes []queueChange
}

// prepare makes the grant of the state's free key to the attempt, with rest as
// the queue afterwards. unseen tells that it may have to be undone. It has made an etcd lease that discard must end if the
// grant does not come about.
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
	head := s.names.key(st.ref.ns, st.ref.id)
	g.ops = []clientv3.Op{
		clientv3.OpPut(head+partHead, encode(g.record)),
		clientv3.OpPut(head+partAlive, ordinalText(g.record.Ordinal), clientv3.WithLease(lease)),
		clientv3.OpPut(s.names.own(st.ref.ns, r.Owner, st.ref.id), ""),
		clientv3.OpPut(s.names.answer(a.scope), encode(&answer{
			Version: recordVersion, Verb: contract.VerbAcquire, Fingerprint: a.print[:], Ordinal: g.record.Ordinal, Attempt: a.mark, Unseen: unseen,
		}), clientv3.WithLease(answerLease)),
	}
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
		Lease: int64(h.id), LeaseTTL: h.ttl, fresh: h.fresh,
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
	resp, fail := s.pool.txn(ctx, g.cmps, g.ops, nil)
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
	if !fail.unknown() {
		s.discard(g)
	}
	return false, fail
}

// discard frees the etcd lease of a grant that did not come about.
func (s *Store) discard(g *grantPlan) {
	s.spares.put(g.record.LeaseTTL, g.record.Lease, g.record.fresh)
}

// granted answers a grant that was committed.
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
	return contract.Result{Outcome: contract.OutcomeAcquired, Lease: g.record.lease(st.ref.ns, now())}, nil
}

// mayBeApplied tells whether what failed may have been applied.
func mayBeApplied(err error) bool {
	f, ok := err.(*failure)
	return ok && f.unknown()
}
