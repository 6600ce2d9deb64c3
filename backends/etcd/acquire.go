package etcd

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"maps"
	"time"

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
	began time.Time
	until time.Time // the end of its wait, once that has begun
}

func newAttempt(r *contract.AcquireRequest) *attempt {
	a := &attempt{
		req: *r, ref: keyRef{r.Namespace, r.Key.ID()}, scope: r.Scope(), print: r.Fingerprint(), mark: newMark(),
		began: time.Now(),
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
	w := want{queue: true, scope: a.scope}
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
	var seen *state
	if !s.lineUp(a) {
		var res contract.Result
		res, seen, err = s.try(ctx, a)
		s.tried(a)
		if err != nil || seen == nil {
			return res, err
		}
	}
	res, err := s.wait(ctx, a, seen)
	return s.contest(ctx, a, res, err)
}

// try acquires without waiting. wait is not nil if there is nothing to be had now:
// then it is the state in which that was seen.
func (s *Store) try(ctx context.Context, a *attempt) (res contract.Result, wait *state, err error) {
	maybe := false
	st, err := s.first(ctx, a.ref, a.want())
	for promised := (patience{}); ; st, err = s.load(ctx, a.ref, a.want()) {
		if err == nil && st.guess && st.active() != nil {
			st, err = s.load(ctx, a.ref, a.want())
		}
		if err != nil {
			return contract.Result{}, nil, writeError(ctx, err, maybe)
		}
		if st.due() {
			if err := s.settle(ctx, st); err != nil {
				return contract.Result{}, nil, writeError(ctx, err, maybe)
			}
			continue
		}
		res, verdict, err := s.decide(ctx, st, a)
		switch {
		case errors.Is(err, undoneError{}):
			continue
		case err != nil:
			return contract.Result{}, nil, writeError(ctx, err, maybe)
		case verdict == answered && res.Outcome == contract.OutcomeConflict && res.Lease == nil && promised.more(ctx):
			continue
		case verdict == mustWait:
			return res, st, nil
		case verdict != mayGrant:
			return res, nil, nil
		}
		rest, cmps := s.rest(st, a)
		g, err := s.prepare(ctx, st, a, rest, false)
		if errors.Is(err, undoneError{}) {
			continue
		}
		if err != nil {
			return contract.Result{}, nil, writeError(ctx, err, maybe)
		}
		g.cmps = append(g.cmps, cmps...)
		done, err := s.commit(ctx, st, g)
		switch {
		case err == nil && done:
			res, err := s.granted(ctx, st, g)
			switch {
			case errors.Is(err, undoneError{}):
				continue
			case errors.Is(err, lateError{}):
				maybe = true
				continue
			}
			return res, nil, err
		case err != nil && !mayBeApplied(err):
			return contract.Result{}, nil, writeError(ctx, err, maybe)
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
	if st.passed() {
		mine = nil
	}
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
		return s.conflict(st, a.scope, t), answered, nil
	}
	if mine == nil {
		if ok, _ := s.attended(st).clone().room(a.req.Limits.WaitersPerKey, 0, st.sessions); !ok {
			return quotaExceeded("waiters_per_key"), answered, nil
		}
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
		if again.answer == nil || again.answer.rev != st.answer.rev {
			return contract.Result{}, false, undoneError{} // or claimed, since it was read
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
		res, ok, err := s.claim(ctx, st, a, res)
		if err == nil && ok {
			res.Lease.ExpiresIn = s.leftOf(ctx, r, res.Lease.ExpiresIn)
		}
		return res, ok, err
	}
	switch {
	case r.State.Terminal():
	case res.Replayed || r.Renewals > 0:
		res.Lease.ExpiresIn = s.leftOf(ctx, r, res.Lease.ExpiresIn)
	default: // nobody has been told yet, and how long it took is not known
		left, err := s.restart(ctx, r)
		if err != nil {
			return contract.Result{}, false, err
		}
		res.Lease.ExpiresIn = left
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
	maybe := false
	var full *failure
	for {
		seen := *st.answer
		seen.Unseen = false
		resp, fail := s.pool.txn(ctx,
			[]clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(name), "=", st.answer.rev)},
			[]clientv3.Op{clientv3.OpPut(name, encode(&seen), clientv3.WithLease(clientv3.LeaseID(st.answer.lease)))})
		switch {
		case fail == nil && resp.Succeeded:
			return res, true, nil
		case fail != nil && fail.noSpace():
			full = &failure{err: fail.err, sent: true, refused: true}
		case fail != nil && !fail.unknown():
			return contract.Result{}, false, writeError(ctx, fail, maybe)
		case fail != nil:
			maybe = true
		}
		again, err := s.load(ctx, st.ref, st.want)
		switch {
		case err != nil:
			return contract.Result{}, false, writeError(ctx, err, maybe || full != nil)
		case again.answer == nil:
			return contract.Result{}, false, undoneError{}
		case !again.answer.Unseen:
			return res, true, nil
		case full != nil:
			return contract.Result{}, false, writeError(ctx, full, maybe)
		}
		st = again
	}
}
