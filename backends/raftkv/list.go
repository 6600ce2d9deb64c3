package raftkv

import (
	"context"
	"encoding/binary"
	"math"
	"runtime"

	"leased/contract"
)

// List implements contract.Store.
func (s *Store) List(ctx context.Context, r *contract.ListRequest) (contract.ListResult, error) {
	ctx, end, err := s.handle.Begin(ctx, r.Validate)
	if err != nil {
		return contract.ListResult{}, err
	}
	defer end()
	q, err := newQuery(r)
	if err != nil {
		return contract.ListResult{}, err
	}
	// A long scan must not hold up Apply: it runs on a frozen copy. After that each
	// change copies what it touches, which would slow down all others if every short
	// list cost them so much.
	// Whatever came due before the first look is ended; what comes due during
	// the scan is shown as it was then.
	var now int64
	isDue := func(st *state, at int64) bool {
		if now == 0 {
			now = at
		}
		d, ok := st.expiries.Min()
		return ok && d.at <= now
	}
	whole := false
	if err := s.engine.read(ctx, isDue, func(st *state, _ int64) { whole = q.run(ctx, st, briefScan) }); err != nil {
		return contract.ListResult{}, err
	}
	if !whole {
		whole = q.run(ctx, s.engine.fsm.freeze(), math.MaxInt)
	}
	if !whole {
		return contract.ListResult{}, contract.Errorf(contract.CodeTimeout, context.Cause(ctx), "the deadline passed during the scan")
	}
	// Apply, woken when the scan let go of the state, is queued on this processor,
	// and others behind it: they would wait until whoever lists without pause is
	// preempted, 10 ms later.
	runtime.Gosched()
	return q.page(now), nil
}

func (f *FSM) freeze() *state {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.state.freeze()
}

// query is a List being answered.
type query struct {
	*contract.ListRequest
	state  contract.State
	limit  int
	after  *listCursor
	before int64 // expires before, Unix ns; 0 = any

	// found is the page. It has room from the start, and leases are immutable: what
	// is shown of them is made once nothing waits for the scan. To allocate can mean
	// to help the garbage collector, and Apply would wait for that too.
	found []*lease
	more  bool // there are others after them
}

// listCursor is where a page ended: keys are listed in the order of their ids,
// the leases of a key in the order of their tokens.
type listCursor struct {
	id    contract.KeyID
	token uint64
}

const listCursorVersion = 1

func (c listCursor) encode(s contract.State) string {
	b := append([]byte{listCursorVersion, byte(s)}, c.id[:]...)
	return contract.EncodeText(binary.BigEndian.AppendUint64(b, c.token))
}

func parseListCursor(text string, s contract.State) (*listCursor, error) {
	b, ok := contract.DecodeText(text)
	if !ok || len(b) != 2+16+8 || b[0] != listCursorVersion || b[1] != byte(s) {
		return nil, contract.Invalid("cursor", "is not one that list gave")
	}
	return &listCursor{id: contract.KeyID(b[2:18]), token: binary.BigEndian.Uint64(b[18:])}, nil
}

func newQuery(r *contract.ListRequest) (*query, error) {
	q := &query{ListRequest: r, state: r.State, limit: pageSize(r.Limit)}
	q.found = make([]*lease, 0, min(q.limit, briefScan))
	if q.state == 0 {
		q.state = contract.StateActive
	}
	if !r.ExpiresBefore.IsZero() {
		q.before = r.ExpiresBefore.UnixNano()
	}
	if r.Cursor == "" {
		return q, nil
	}
	var err error
	q.after, err = parseListCursor(r.Cursor, q.state)
	return q, err
}

const (
	// scanCheck is how many leases a scan looks at between looks at its deadline.
	scanCheck = 4096
	// briefScan is how many leases a list looks at while nothing can be applied:
	// that takes less than 100 µs.
	briefScan = 256
)

// run finds the page, and tells whether it is whole: it is not if there are more
// than most leases to be looked at, or the deadline passes.
func (q *query) run(ctx context.Context, s *state, most int) (whole bool) {
	q.found, q.more = q.found[:0], false
	seen := 0
	whole = true
	q.scan(s, func(l *lease) bool {
		if seen++; seen > most || seen%scanCheck == 0 && ctx.Err() != nil {
			whole = false
			return false
		}
		if l == nil || !q.matches(l) {
			return true
		}
		if len(q.found) == q.limit {
			q.more = true
			return false
		}
		q.found = append(q.found, l)
		return true
	})
	return whole
}

// page returns what run found as it is at an instant.
func (q *query) page(now int64) contract.ListResult {
	if len(q.found) == 0 {
		return contract.ListResult{}
	}
	out := contract.ListResult{Leases: make([]contract.Lease, len(q.found))}
	for i, l := range q.found {
		out.Leases[i] = view(l, now)
	}
	if q.more {
		last := q.found[len(q.found)-1]
		out.NextCursor = listCursor{id: last.id, token: last.token}.encode(q.state)
	}
	return out
}

// scan calls f with the leases that can match, in order, from after the cursor,
// and with nil for each record that cannot.
func (q *query) scan(s *state, f func(*lease) bool) {
	from := &ident{ns: q.Namespace}
	var token uint64
	if q.after != nil {
		from.id, token = q.after.id, q.after.token
	}
	look := func(l *lease) bool {
		if l != nil && q.after != nil && l.id == from.id && l.token <= token {
			l = nil // shown on the page before
		}
		return f(l)
	}
	switch {
	case q.state != contract.StateActive:
		s.ended.Ascend(endedAt(from, token), func(e endedLease) bool {
			if e.ns == q.Namespace && !s.visible(e.lease) {
				return look(nil)
			}
			return e.ns == q.Namespace && look(e.lease)
		})
	case q.Owner != "":
		s.held.Ascend(&lease{grant: &grant{ident: from, owner: q.Owner}}, func(l *lease) bool {
			return l.ns == q.Namespace && l.owner == q.Owner && look(l)
		})
	default:
		s.keys.Ascend(&keyState{ident: from}, func(ks *keyState) bool {
			return ks.ns == q.Namespace && look(ks.active)
		})
	}
}

// visible tells whether an ended lease is part of its key's history.
func (s *state) visible(l *lease) bool {
	ks := s.key(l.ident)
	return ks != nil && ks.shows(l.token)
}

func (q *query) matches(l *lease) bool {
	is := func(filter, value string) bool { return filter == "" || filter == value }
	return l.state() == q.state &&
		is(q.Owner, l.owner) && is(q.Instance, l.instance) && is(q.JobID, l.jobID) &&
		is(q.Tenant, l.key.Tenant) && is(q.Program, l.key.Program) && is(q.Actor, l.key.Actor) &&
		(q.Target == contract.Target{} || q.Target == l.key.Target) &&
		(q.before == 0 || l.nominal < q.before)
}
