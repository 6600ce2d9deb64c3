package memstore

import (
	"bytes"
	"slices"
	"strings"

	"leased/contract"
)

// What a cursor starts with tells which method made it.
const (
	historyCursor = "h"
	listCursor    = "l"
)

func (op Check) apply(m *Model) Answer {
	k := m.keys[keyRef{op.Request.Namespace, op.Request.KeyID}]
	latest := k.latest()
	switch {
	case latest == nil:
		return Answer{Result: contract.Result{Outcome: contract.OutcomeNotFound}}
	case latest.Token != op.Request.Token:
		// Also a token higher than any: nobody was granted it.
		return Answer{Result: contract.Result{Outcome: contract.OutcomeStaleToken}}
	case latest.State.Terminal():
		return Answer{Result: m.refuse(contract.EndedOutcome(latest.State), latest)}
	}
	return Answer{Result: contract.Result{Outcome: contract.OutcomeCurrent, Lease: m.view(latest)}}
}

func (op Get) apply(m *Model) Answer {
	_, l := m.find(op.Request.Namespace, op.Request.LeaseID)
	if l == nil {
		return Answer{Result: contract.Result{Outcome: contract.OutcomeNotFound}}
	}
	return Answer{Result: contract.Result{Outcome: contract.OutcomeFound, Lease: m.view(l)}}
}

func (op GetKey) apply(m *Model) Answer {
	k := m.keys[keyRef{op.Request.Namespace, op.Request.KeyID}]
	if k.latest() == nil {
		return Answer{Key: contract.KeyResult{Outcome: contract.OutcomeNotFound}}
	}
	res := contract.KeyResult{
		Outcome: contract.OutcomeFound, Key: k.key, KeyID: op.Request.KeyID, Queue: k.queueFor(contract.Scope{}),
	}
	if l := k.active(); l != nil {
		res.Lease = m.view(l)
	}
	for i := range k.leases {
		if l := &k.leases[i]; l.State.Terminal() && k.remembers(l) {
			res.Last = m.view(l)
		}
	}
	return Answer{Key: res}
}

func (op Health) apply(m *Model) Answer {
	h := contract.Health{Ready: true}
	for ref, k := range m.keys {
		if ref.namespace != op.Request.Namespace {
			continue
		}
		if k.active() != nil {
			h.ActiveLeases++
		}
		h.Waiters += int64(k.queueFor(contract.Scope{}).Length)
	}
	return Answer{Health: h}
}

func (op RaiseFloor) apply(m *Model) Answer {
	s := m.space(op.Request.Namespace)
	s.token = max(s.token, op.Request.Above)
	return Answer{}
}

func (Tick) apply(*Model) Answer { return Answer{} }

// List goes by lease id, which never changes, so that a lease keeps its place
// however the others come and go.
func (op List) apply(m *Model) Answer {
	r := &op.Request
	var after contract.LeaseID
	if r.Cursor != "" {
		var ok bool
		if after, ok = parseCursor(listCursor, r.Cursor, parseLeaseID); !ok {
			return Answer{Err: contract.Invalid("cursor", "is not one that list gave")}
		}
	}
	var found []*contract.Lease
	for ref, k := range m.keys {
		for i := range k.leases {
			l := &k.leases[i]
			if ref.namespace == r.Namespace && bytes.Compare(l.ID[:], after[:]) > 0 && k.remembers(l) && matches(r, l) {
				found = append(found, l)
			}
		}
	}
	slices.SortFunc(found, func(a, b *contract.Lease) int { return bytes.Compare(a.ID[:], b.ID[:]) })
	var res contract.ListResult
	if limit := pageSize(r.Limit); len(found) > limit {
		found = found[:limit]
		res.NextCursor = listCursor + found[limit-1].ID.String()
	}
	for _, l := range found {
		res.Leases = append(res.Leases, *m.view(l))
	}
	return Answer{List: res}
}

func matches(r *contract.ListRequest, l *contract.Lease) bool {
	state := r.State
	if state == 0 {
		state = contract.StateActive
	}
	is := func(filter, value string) bool { return filter == "" || filter == value }
	return l.State == state &&
		is(r.Owner, l.Owner) && is(r.Instance, l.Instance) && is(r.JobID, l.JobID) &&
		is(r.Tenant, l.Key.Tenant) && is(r.Program, l.Key.Program) && is(r.Actor, l.Key.Actor) &&
		(r.Target == contract.Target{} || r.Target == l.Key.Target) &&
		(r.ExpiresBefore.IsZero() || l.ExpiresAt.Before(r.ExpiresBefore))
}

// latest returns the newest grant that is remembered, or nil.
func (k *keyState) latest() *contract.Lease {
	if k == nil || len(k.leases) == 0 {
		return nil
	}
	if l := &k.leases[len(k.leases)-1]; k.remembers(l) {
		return l
	}
	return nil
}

func pageSize(limit int) int {
	if limit == 0 {
		return contract.DefaultPage
	}
	return limit
}

// parseCursor takes a cursor of the given kind apart.
func parseCursor[T any](kind, cursor string, parse func(string) (T, bool)) (T, bool) {
	rest, ok := strings.CutPrefix(cursor, kind)
	if !ok {
		var zero T
		return zero, false
	}
	return parse(rest)
}

func parseLeaseID(s string) (contract.LeaseID, bool) {
	id, err := contract.ParseLeaseID(s)
	return id, err == nil
}
