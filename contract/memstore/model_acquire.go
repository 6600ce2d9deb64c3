package memstore

import (
	"maps"
	"slices"

	"leased/contract"
)

// undoneReason stands in the record of a lease that was granted to a waiter who
// had gone by then.
const undoneReason = "undone: the waiter had gone"

func (op Acquire) apply(m *Model) Answer {
	r := &op.Request
	scope, fingerprint := r.Scope(), r.Fingerprint()
	if res, ok := m.replay(scope, fingerprint); ok {
		return Answer{Result: res}
	}
	k := m.keys[keyRef{r.Namespace, r.Key.ID()}]
	if p := k.place(scope); p != nil {
		switch {
		case p.fingerprint != fingerprint:
			return Answer{Result: contract.Result{Outcome: contract.OutcomeRequestIDReused}}
		case r.Wait == 0:
			return Answer{Result: m.conflict(k, scope)}
		}
		p.calls = append(p.calls, op.Call)
		return Answer{Parked: true}
	}
	if m.ownerAtLimit(r) {
		return Answer{Result: quotaExceeded("leases_per_owner")}
	}
	if k.active() == nil {
		res, err := m.grant(r, op.Nonce)
		return Answer{Result: res, Err: err}
	}
	if r.Wait == 0 {
		return Answer{Result: m.conflict(k, scope)}
	}
	if limit := r.Limits.WaitersPerKey; limit > 0 {
		if k.queueFor(scope).Length >= limit {
			return Answer{Result: quotaExceeded("waiters_per_key")}
		}
		k.giveWay(limit)
	}
	kept := *r
	kept.Metadata = maps.Clone(r.Metadata)
	k.queue = append(k.queue, place{
		scope: scope, fingerprint: fingerprint, request: kept, nonce: op.Nonce, calls: []CallID{op.Call},
	})
	return Answer{Parked: true}
}

// giveWay makes room for one more place: those of waiters that are away go, the
// first in the queue first.
func (k *keyState) giveWay(limit int) {
	for len(k.queue) >= limit {
		i := slices.IndexFunc(k.queue, func(p place) bool { return p.away() })
		k.queue = slices.Delete(k.queue, i, i+1)
	}
}

// grant gives the free key to r, unless a quota or the end of the token space
// forbids it. It is where a waiter's TTL starts, too: a waiter whose TTL ran
// while it queued would be told of a lease with nothing left.
func (m *Model) grant(r *contract.AcquireRequest, nonce [16]byte) (contract.Result, error) {
	if m.ownerAtLimit(r) {
		return quotaExceeded("leases_per_owner"), nil
	}
	s := m.space(r.Namespace)
	if s.token >= contract.MaxToken {
		return contract.Result{}, contract.Errorf(contract.CodeInternal, nil, "the namespace has no fencing token left")
	}
	s.token++
	ref := keyRef{r.Namespace, r.Key.ID()}
	k := m.keys[ref]
	if k == nil {
		k = &keyState{key: r.Key}
		m.keys[ref] = k
	}
	k.keep = r.Retention
	k.leases = append(k.leases, contract.Lease{
		RecordVersion: contract.RecordVersion,
		Namespace:     r.Namespace,
		Key:           r.Key,
		KeyID:         ref.id,
		ID:            contract.NewLeaseID(ref.id, nonce),
		Owner:         r.Owner,
		Instance:      r.Instance,
		Token:         s.token,
		State:         contract.StateActive,
		AcquiredAt:    m.now,
		RenewedAt:     m.now,
		ExpiresAt:     m.now.Add(r.TTL), // at most the maximum lifetime, which Validate saw to
		TTL:           r.TTL,
		MaxLifetime:   r.MaxLifetime,
		ExecutionID:   r.ExecutionID,
		JobID:         r.JobID,
		TraceID:       r.TraceID,
		RequestID:     r.RequestID,
		Metadata:      maps.Clone(r.Metadata),
	})
	l := k.active()
	m.commit(k, l, contract.EventAcquired, contract.StateFree, cause{r.Owner, r.RequestID, r.TraceID, ""})
	res := contract.Result{Outcome: contract.OutcomeAcquired, Lease: m.view(l)}
	m.store(r.Scope(), r.Fingerprint(), contract.VerbAcquire, r.Retention, res)
	return res, nil
}

// serve gives a free key to the first waiter who is there. Those before it who
// are away lose their places: a queue that waited for them would stand still
// behind a dead client.
func (m *Model) serve(k *keyState) {
	for k.active() == nil && len(k.queue) > 0 {
		p := k.queue[0]
		k.queue = slices.Delete(k.queue, 0, 1)
		if p.away() {
			continue
		}
		res, err := m.grant(&p.request, p.nonce)
		for i, call := range p.calls {
			told := res
			told.Replayed = i > 0 && res.Outcome == contract.OutcomeAcquired
			if res.Lease != nil {
				told.Lease = m.view(res.Lease)
			}
			m.wakes = append(m.wakes, Wake{Call: call, Result: told, Err: err})
		}
	}
}

func (op Leave) apply(m *Model) Answer {
	for _, k := range m.keys {
		for i := range k.queue {
			p := &k.queue[i]
			at := slices.Index(p.calls, op.Call)
			if at < 0 {
				continue
			}
			p.calls = slices.Delete(p.calls, at, at+1)
			if p.away() {
				p.calls, p.leftAt = nil, m.now
			}
			return Answer{Result: m.conflict(k, p.scope)}
		}
	}
	return Answer{}
}

func (op Undo) apply(m *Model) Answer {
	r := &op.Request
	scope := r.Scope()
	if a := m.answers[scope]; a != nil && a.leaseID == op.LeaseID {
		delete(m.answers, scope)
	}
	k := m.keys[keyRef{r.Namespace, r.Key.ID()}]
	if l := k.active(); l != nil && l.ID == op.LeaseID {
		m.end(k, contract.StateReleased, m.now, cause{l.Owner, r.RequestID, r.TraceID, undoneReason})
		m.serve(k)
	}
	return Answer{Result: m.conflict(k, scope)}
}

func (Restart) apply(m *Model) Answer {
	for _, k := range m.keys {
		for i := range k.queue {
			if p := &k.queue[i]; !p.away() {
				p.calls, p.leftAt = nil, m.now
			}
		}
	}
	return Answer{}
}

// conflict is what the scope is told while others hold the key.
func (m *Model) conflict(k *keyState, scope contract.Scope) contract.Result {
	res := contract.Result{Outcome: contract.OutcomeConflict, Queue: k.queueFor(scope)}
	if l := k.active(); l != nil {
		res.Lease = m.view(l)
	}
	return res
}

// queueFor counts the waiters who would be served, and those of them who come
// before the scope's own place, if it has one.
func (k *keyState) queueFor(scope contract.Scope) contract.Queue {
	var q contract.Queue
	if k == nil {
		return q
	}
	for i := range k.queue {
		p := &k.queue[i]
		if p.scope == scope {
			q.Position = q.Length + 1
		}
		if !p.away() {
			q.Length++
		}
	}
	return q
}

// place returns the scope's place in the queue, or nil.
func (k *keyState) place(scope contract.Scope) *place {
	if k == nil {
		return nil
	}
	for i := range k.queue {
		if k.queue[i].scope == scope {
			return &k.queue[i]
		}
	}
	return nil
}

// ownerAtLimit reports whether the owner has as many active leases in the
// namespace as it may have.
func (m *Model) ownerAtLimit(r *contract.AcquireRequest) bool {
	if r.Limits.LeasesPerOwner == 0 {
		return false
	}
	n := 0
	for ref, k := range m.keys {
		if l := k.active(); l != nil && ref.namespace == r.Namespace && l.Owner == r.Owner {
			n++
		}
	}
	return n >= r.Limits.LeasesPerOwner
}

func quotaExceeded(limit string) contract.Result {
	return contract.Result{Outcome: contract.OutcomeQuotaExceeded, Limit: limit}
}
