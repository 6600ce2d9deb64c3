package raftkv

import (
	"context"

	"leased/contract"
)

// read answers from the state after this node was confirmed to lead and to have
// applied everything. isDue tells that the answer would depend on a lease that
// has run out on the leader's clock and is not ended in the log yet: then it is
// ended there first. What a read shows is never taken back, also not by a later
// leader whose clock stands further back.
func (e *Engine) read(ctx context.Context, isDue func(*state, int64) bool, f func(*state, int64)) error {
	for {
		if ctx.Err() != nil {
			return contract.Errorf(contract.CodeTimeout, context.Cause(ctx), "the deadline passed before the read was confirmed")
		}
		clock, err := e.leading(ctx)
		if err != nil {
			return err
		}
		if err := e.proposer.Confirm(ctx); err != nil {
			return classifyRead(ctx, err)
		}
		e.fsm.mu.RLock()
		now := max(clock.now(), e.fsm.state.now)
		if !isDue(e.fsm.state, now) {
			f(e.fsm.state, now)
			e.fsm.mu.RUnlock()
			return nil
		}
		e.fsm.mu.RUnlock()
		if err := e.sweepForRead(ctx, clock, isDue); err != nil {
			return classifyRead(ctx, err)
		}
	}
}

// sweepForRead sweeps unless another read has done so meanwhile.
func (e *Engine) sweepForRead(ctx context.Context, clock *leaderClock, isDue func(*state, int64) bool) error {
	select {
	case e.readSweep <- struct{}{}:
		defer func() { <-e.readSweep }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	e.fsm.mu.RLock()
	due := isDue(e.fsm.state, max(clock.now(), e.fsm.state.now))
	e.fsm.mu.RUnlock()
	if !due {
		return nil
	}
	return e.sweepOnce(ctx, clock)
}

// dueKey tells whether the key's lease is due.
func dueKey(ns string, id contract.KeyID) func(*state, int64) bool {
	return func(s *state, now int64) bool {
		ks := s.key(&ident{ns: ns, id: id})
		return ks != nil && ks.active != nil && ks.active.expires <= now
	}
}

// Check implements contract.Store.
func (s *Store) Check(ctx context.Context, r *contract.CheckRequest) (contract.Result, error) {
	ctx, end, err := s.handle.Begin(ctx, r.Validate)
	if err != nil {
		return contract.Result{}, err
	}
	defer end()
	out := contract.Result{Outcome: contract.OutcomeNotFound}
	err = s.engine.read(ctx, dueKey(r.Namespace, r.KeyID), func(st *state, now int64) {
		ks := st.key(&ident{ns: r.Namespace, id: r.KeyID})
		if ks == nil {
			return
		}
		newest := ks.active
		if newest == nil {
			newest = ks.last
		}
		if newest == nil {
			return
		}
		if contract.Token(newest.token) != r.Token {
			out.Outcome = contract.OutcomeStaleToken
			return
		}
		out.Outcome = contract.OutcomeCurrent
		if newest.end != nil {
			out.Outcome = contract.EndedOutcome(newest.end.state)
		}
		v := view(newest, now)
		out.Lease = &v
	})
	return ifRead(out, err)
}

// ifRead returns the answer, or nothing when it could not be read.
func ifRead[T any](answer T, err error) (T, error) {
	if err != nil {
		var none T
		return none, err
	}
	return answer, nil
}

// Get implements contract.Store.
func (s *Store) Get(ctx context.Context, r *contract.GetRequest) (contract.Result, error) {
	ctx, end, err := s.handle.Begin(ctx, r.Validate)
	if err != nil {
		return contract.Result{}, err
	}
	defer end()
	out := contract.Result{Outcome: contract.OutcomeNotFound}
	key := r.LeaseID.KeyID()
	err = s.engine.read(ctx, dueKey(r.Namespace, key), func(st *state, now int64) {
		if l := st.find(st.key(&ident{ns: r.Namespace, id: key}), r.LeaseID, 0); l != nil {
			v := view(l, now)
			out = contract.Result{Outcome: contract.OutcomeFound, Lease: &v}
		}
	})
	return ifRead(out, err)
}

// GetKey implements contract.Store.
func (s *Store) GetKey(ctx context.Context, r *contract.GetKeyRequest) (contract.KeyResult, error) {
	ctx, end, err := s.handle.Begin(ctx, r.Validate)
	if err != nil {
		return contract.KeyResult{}, err
	}
	defer end()
	out := contract.KeyResult{Outcome: contract.OutcomeNotFound, KeyID: r.KeyID}
	err = s.engine.read(ctx, dueKey(r.Namespace, r.KeyID), func(st *state, now int64) {
		ks := st.key(&ident{ns: r.Namespace, id: r.KeyID})
		if ks == nil {
			return
		}
		out.Outcome, out.Key, out.Queue.Length = contract.OutcomeFound, ks.key, int(ks.present)
		if ks.active != nil {
			v := view(ks.active, now)
			out.Lease = &v
		}
		if ks.last != nil {
			v := view(ks.last, now)
			out.Last = &v
		}
	})
	return ifRead(out, err)
}

// History implements contract.Store.
func (s *Store) History(ctx context.Context, r *contract.HistoryRequest) (contract.HistoryResult, error) {
	ctx, end, err := s.handle.Begin(ctx, r.Validate)
	if err != nil {
		return contract.HistoryResult{}, err
	}
	defer end()
	var before *pos
	if r.Cursor != "" {
		p, ok := parseEventID(r.Cursor)
		if !ok {
			return contract.HistoryResult{}, contract.Invalid("cursor", "is not one that history gave")
		}
		before = &p
	}
	limit := pageSize(r.Limit)
	out := contract.HistoryResult{}
	err = s.engine.read(ctx, dueKey(r.Namespace, r.KeyID), func(st *state, now int64) {
		ks := st.key(&ident{ns: r.Namespace, id: r.KeyID})
		if ks == nil {
			return
		}
		// Age is counted on the state's clock, as everything that decides.
		out = page(st.events(ks, now-ks.keep), before, limit)
	})
	return ifRead(out, err)
}

// events returns the key's events, newest first, as far as its history goes.
func (s *state) events(ks *keyState, oldest int64) []*event {
	events := make([]*event, 0, 16)
	add := func(e *event) bool {
		if len(events) == int(ks.perKey) || e.when < oldest {
			return false
		}
		events = append(events, e)
		return true
	}
	if ks.active != nil {
		add(acquiredEvent(ks.active))
	}
	s.eachVisible(ks, func(l *lease) bool { return add(endedEvent(l)) && add(acquiredEvent(l)) })
	return events
}

func page(events []*event, before *pos, limit int) contract.HistoryResult {
	var out contract.HistoryResult
	for _, e := range events {
		if before != nil && e.compare(*before) >= 0 {
			continue
		}
		if len(out.Events) == limit {
			out.NextCursor = out.Events[limit-1].ID
			return out
		}
		out.Events = append(out.Events, eventView(e))
	}
	return out
}

func pageSize(limit int) int {
	if limit == 0 {
		return contract.DefaultPage
	}
	return limit
}
