package etcd

import (
	"context"
	"errors"

	"leased/contract"
)

// view reads a key for a read of the contract's. A lease that is over on etcd's
// clock is written down first, so that what a read shows has happened.
func (s *Store) view(ctx context.Context, ref keyRef, w want) (*state, error) {
	for {
		st, err := s.load(ctx, ref, w)
		if err != nil {
			return nil, errorOf(ctx, err, false)
		}
		if !st.due() {
			return st, nil
		}
		if err := s.settle(ctx, st); err != nil {
			if st.expireUnsettled(err) {
				return st, nil
			}
			return nil, errorOf(ctx, err, false)
		}
	}
}

// expireUnsettled shows the newest lease as expired, which it is, where etcd has
// no space to put that on record.
func (st *state) expireUnsettled(err error) bool {
	f, ok := errors.AsType[*failure](err)
	if !ok || !f.noSpace() {
		return false
	}
	r := st.ended(ending{state: contract.StateExpired})
	r.rev = st.head.rev
	st.head, st.aliveMod, st.lifeMod = r, 0, 0
	return true
}

// Check implements contract.Store.
func (s *Store) Check(ctx context.Context, r *contract.CheckRequest) (contract.Result, error) {
	ctx, end, err := s.begin(ctx, r.Validate)
	if err != nil {
		return contract.Result{}, err
	}
	defer end()
	st, err := s.view(ctx, keyRef{r.Namespace, r.KeyID}, want{})
	if err != nil {
		return contract.Result{}, err
	}
	t := now()
	rec := st.latest(t)
	switch {
	case rec == nil:
		return contract.Result{Outcome: contract.OutcomeNotFound}, nil
	case rec.token() != r.Token:
		// Also a token higher than any: nobody was granted it.
		return contract.Result{Outcome: contract.OutcomeStaleToken}, nil
	case rec.State.Terminal():
		return contract.Result{Outcome: contract.EndedOutcome(rec.State), Lease: st.shown(rec, t)}, nil
	}
	return contract.Result{Outcome: contract.OutcomeCurrent, Lease: s.timed(ctx, st, rec, t)}, nil
}

// Get implements contract.Store.
func (s *Store) Get(ctx context.Context, r *contract.GetRequest) (contract.Result, error) {
	ctx, end, err := s.begin(ctx, r.Validate)
	if err != nil {
		return contract.Result{}, err
	}
	defer end()
	st, err := s.view(ctx, keyRef{r.Namespace, r.LeaseID.KeyID()}, want{ordinal: ordinalOf(r.LeaseID)})
	if err != nil {
		return contract.Result{}, err
	}
	t := now()
	rec := st.find(r.LeaseID, t)
	if rec == nil {
		return contract.Result{Outcome: contract.OutcomeNotFound}, nil
	}
	return contract.Result{Outcome: contract.OutcomeFound, Lease: s.timed(ctx, st, rec, t)}, nil
}

// GetKey implements contract.Store.
func (s *Store) GetKey(ctx context.Context, r *contract.GetKeyRequest) (contract.KeyResult, error) {
	ctx, end, err := s.begin(ctx, r.Validate)
	if err != nil {
		return contract.KeyResult{}, err
	}
	defer end()
	ref := keyRef{r.Namespace, r.KeyID}
	w := want{queue: true}
	for {
		st, err := s.view(ctx, ref, w)
		if err != nil {
			return contract.KeyResult{}, err
		}
		t := now()
		newest := st.latest(t)
		if newest == nil {
			return contract.KeyResult{Outcome: contract.OutcomeNotFound}, nil
		}
		res := contract.KeyResult{
			Outcome: contract.OutcomeFound, Key: newest.key(), KeyID: r.KeyID,
			Queue: s.attended(st).seenBy(contract.Scope{}, st.sessions),
		}
		if newest.State.Terminal() {
			res.Last = st.shown(newest, t)
			return res, nil
		}
		res.Lease = s.timed(ctx, st, newest, t)
		// The one before it is in the archive, and a second read shows both at
		// one revision.
		if w.ordinal != newest.Ordinal-1 {
			w.ordinal = newest.Ordinal - 1
			continue
		}
		if last := st.archived; last != nil && st.remembers(last, t) {
			res.Last = st.shown(last, t)
		}
		return res, nil
	}
}
