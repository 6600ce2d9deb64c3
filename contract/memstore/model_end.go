package memstore

import (
	"time"

	"leased/contract"
)

// cause is who did something, with which call, and why.
type cause struct {
	principal, requestID, traceID, reason string
}

// replay returns what the scope was answered before, if it was. The fingerprint
// tells a repetition from another request that took the same id, which is shown
// nothing.
func (m *Model) replay(scope contract.Scope, fingerprint contract.Fingerprint) (contract.Result, bool) {
	a := m.answers[scope]
	if a == nil {
		return contract.Result{}, false
	}
	if a.fingerprint != fingerprint {
		return contract.Result{Outcome: contract.OutcomeRequestIDReused}, true
	}
	l := m.keys[a.ref].lease(a.leaseID)
	if (a.verb == contract.VerbAcquire || a.verb == contract.VerbRenew) && l.State.Terminal() {
		// Never something that reads as a live lease.
		return contract.Result{Outcome: contract.EndedOutcome(l.State), Lease: m.view(l), Replayed: true}, true
	}
	res := a.first
	res.Replayed = true
	if a.verb == contract.VerbAcquire {
		res.Lease = m.view(l)
		return res, true
	}
	first := res.Lease.Clone()
	if a.verb == contract.VerbRenew {
		// The lease is active, but a later renewal may be what keeps it so.
		first.ExpiresIn = max(0, first.ExpiresAt.Sub(m.now))
	}
	res.Lease = &first
	return res, true
}

// store keeps an answer that changed something.
func (m *Model) store(scope contract.Scope, fingerprint contract.Fingerprint, verb contract.Verb, keep contract.Retention, res contract.Result) {
	l := res.Lease.Clone()
	res.Lease = &l
	m.answers[scope] = &answer{
		verb: verb, fingerprint: fingerprint, ref: keyRef{l.Namespace, l.KeyID}, leaseID: l.ID,
		first: res, at: m.now, keep: keep.Idempotency,
	}
}

// refuse is what a caller is told who presented l wrongly or too late. Only the
// holder is shown how the lease ended.
func (m *Model) refuse(outcome contract.Outcome, l *contract.Lease) contract.Result {
	res := contract.Result{Outcome: outcome}
	if outcome == contract.EndedOutcome(l.State) {
		res.Lease = m.view(l)
	}
	return res
}

func (op Renew) apply(m *Model) Answer { return Answer{Result: m.renew(&op.Request)} }

func (op RenewBulk) apply(m *Model) Answer {
	items := make([]contract.RenewItemResult, len(op.Request.Leases))
	for i := range items {
		r := op.Request.Item(i)
		items[i].Result = m.renew(&r)
	}
	return Answer{Bulk: contract.RenewBulkResult{Items: items}}
}

func (m *Model) renew(r *contract.RenewRequest) contract.Result {
	if res, ok := m.replay(r.Scope(), r.Fingerprint()); ok {
		return res
	}
	k, l := m.find(r.Namespace, r.LeaseID)
	if l == nil {
		return contract.Result{Outcome: contract.OutcomeNotFound}
	}
	if refusal := l.Match(r.Owner, r.Instance, r.Token); refusal != 0 {
		return m.refuse(refusal, l)
	}
	ttl := r.TTL
	if ttl == 0 {
		ttl = l.TTL
	}
	// The maximum lifetime leaves more than nothing: the lease is active, and its
	// old expiry was within it.
	expiresAt := m.now.Add(ttl)
	if last := l.AcquiredAt.Add(l.MaxLifetime); expiresAt.After(last) {
		expiresAt = last
	}
	l.RenewedAt, l.ExpiresAt, l.TTL = m.now, expiresAt, expiresAt.Sub(m.now)
	l.Renewals++
	k.keep = r.Retention
	m.commit(k, l, contract.EventRenewed, contract.StateActive, cause{r.Owner, r.RequestID, r.TraceID, ""})
	res := contract.Result{Outcome: contract.OutcomeRenewed, Lease: m.view(l)}
	m.store(r.Scope(), r.Fingerprint(), contract.VerbRenew, r.Retention, res)
	return res
}

func (op Release) apply(m *Model) Answer {
	r := &op.Request
	if res, ok := m.replay(r.Scope(), r.Fingerprint()); ok {
		return Answer{Result: res}
	}
	k, l := m.find(r.Namespace, r.LeaseID)
	if l == nil {
		return Answer{Result: contract.Result{Outcome: contract.OutcomeNotFound}}
	}
	if refusal := l.Match(r.Owner, r.Instance, r.Token); refusal != 0 {
		return Answer{Result: m.refuse(refusal, l)}
	}
	k.keep = r.Retention
	m.end(k, contract.StateReleased, m.now, cause{r.Owner, r.RequestID, r.TraceID, ""})
	res := contract.Result{Outcome: contract.OutcomeReleased, Lease: m.view(l)}
	m.store(r.Scope(), r.Fingerprint(), contract.VerbRelease, r.Retention, res)
	m.serve(k)
	return Answer{Result: res}
}

func (op Revoke) apply(m *Model) Answer {
	r := &op.Request
	if res, ok := m.replay(r.Scope(), r.Fingerprint()); ok {
		return Answer{Result: res}
	}
	k, l := m.find(r.Namespace, r.LeaseID)
	if l == nil {
		return Answer{Result: contract.Result{Outcome: contract.OutcomeNotFound}}
	}
	if l.State.Terminal() {
		return Answer{Result: m.refuse(contract.EndedOutcome(l.State), l)}
	}
	k.keep = r.Retention
	m.end(k, contract.StateRevoked, m.now, cause{r.Principal, r.RequestID, r.TraceID, r.Reason})
	res := contract.Result{Outcome: contract.OutcomeRevoked, Lease: m.view(l)}
	m.store(r.Scope(), r.Fingerprint(), contract.VerbRevoke, r.Retention, res)
	m.serve(k)
	return Answer{Result: res}
}

// end moves the key's active lease into a terminal state, the only place that
// does. The caller serves the queue.
func (m *Model) end(k *keyState, state contract.State, at time.Time, c cause) {
	l := k.active()
	l.State, l.EndedAt, l.EndedBy, l.Reason = state, at, c.principal, c.reason
	m.commit(k, l, contract.EndedEvent(state), contract.StateActive, c)
}
