package raftkv

import (
	"context"

	"leased/contract"
	"leased/contract/lifecycle"
)

// Watch implements contract.Store. A stream reads the node's ring at its own
// pace; a reader that is overtaken is told by a gap.
func (s *Store) Watch(ctx context.Context, r *contract.WatchRequest) (contract.Stream, error) {
	from, err := s.watchFrom(ctx, r)
	if err != nil {
		return nil, err
	}
	return s.stream(r, from.pos())
}

// watchFrom returns where a stream begins that starts now.
func (s *Store) watchFrom(ctx context.Context, r *contract.WatchRequest) (watchAnswer, error) {
	ctx, end, err := s.handle.Begin(ctx, r.Validate)
	if err != nil {
		return watchAnswer{}, err
	}
	defer end()
	ring := s.engine.fsm.rings.all
	from, known := parseEventID(r.After)
	if r.After != "" && !known {
		return watchAnswer{}, errAfter()
	}
	// The events that a cursor may name must have been applied here.
	if err := s.engine.read(ctx, func(*state, int64) bool { return false }, func(*state, int64) {}); err != nil {
		return watchAnswer{}, err
	}
	if r.After == "" {
		from = ring.end()
	} else if !ring.known(from) {
		return watchAnswer{}, errAfter()
	}
	return watchAnswer{Index: from.index, N: from.n}, nil
}

func errAfter() error { return contract.Invalid("after", "is not the id of an event") }

// stream returns a stream of what comes after from.
func (s *Store) stream(r *contract.WatchRequest, from pos) (contract.Stream, error) {
	life, err := s.handle.Stream()
	if err != nil {
		return nil, err
	}
	return &stream{Stream: life, ring: s.engine.fsm.rings.of(r.Kinds), filter: *r, at: from}, nil
}

type stream struct {
	*lifecycle.Stream
	ring   *ring
	filter contract.WatchRequest
	at     pos     // behind all that was read
	ahead  []event // that follow it, as far as they were taken out of the ring
}

// Next implements contract.Stream.
func (st *stream) Next(ctx context.Context) (contract.Event, error) {
	for {
		if err := st.Err(); err != nil {
			return contract.Event{}, err
		}
		for i := range st.ahead {
			e := &st.ahead[i]
			st.at = e.pos
			if st.wants(e) {
				st.ahead = st.ahead[i+1:]
				return eventView(e), nil
			}
		}
		next := st.ring.after(st.at)
		st.ahead, st.at = next.events, next.at
		switch {
		case next.lost:
			return contract.Event{ID: eventID(st.at), Kind: contract.EventGap, Namespace: st.filter.Namespace}, nil
		case len(st.ahead) > 0:
			continue
		}
		select {
		case <-next.grew:
		case <-st.Ended():
		case <-ctx.Done():
			// What a stream does not show has woken nobody, and the cursor moves over it:
			// who resumes behind it loses nothing when the ring has moved on.
			if next := st.ring.after(st.at); !next.lost && len(next.events) == 0 {
				st.at = next.at
			}
			return contract.Event{}, contract.Errorf(contract.CodeTimeout, context.Cause(ctx), "no event before the deadline")
		}
	}
}

// Cursor implements contract.Stream.
func (st *stream) Cursor() string { return eventID(st.at) }

// wants is contract.WatchRequest.Selects for an event that is not written out.
func (st *stream) wants(e *event) bool {
	f, l := &st.filter, e.lease
	return f.Kinds.Selects(e.kind) && l.ns == f.Namespace &&
		(f.Owner == "" || f.Owner == l.owner) &&
		(f.Instance == "" || f.Instance == l.instance) &&
		(f.LeaseID.IsZero() || f.LeaseID == l.leaseID()) &&
		(f.KeyID.IsZero() || f.KeyID == l.id)
}
