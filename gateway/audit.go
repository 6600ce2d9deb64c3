package gateway

import (
	"context"
	"time"

	"leased/contract"
	"leased/gateway/api"
)

// AuditEvent is one transition or one refusal. It never holds metadata, a body
// or a credential.
type AuditEvent struct {
	Time      time.Time
	RequestID string
	TraceID   string
	Principal string
	Instance  string
	Namespace string
	// Key is zero where the request named a lease or a key only by its id and
	// the answer did not tell.
	Key     contract.Key
	KeyID   contract.KeyID
	LeaseID contract.LeaseID
	Token   contract.Token
	// Operation is the API's word for what was asked, "force_release" for a revoke
	// in that mode; "expire" when nobody asked.
	Operation string
	// Outcome is the outcome of package contract, or the error code.
	Outcome string
	// Code is the API's error code; empty for what succeeded.
	Code string
	// Replayed: the answer was given before, nothing changed now.
	Replayed bool
	// Previous and State are the key's, before and after; zero when not known.
	Previous contract.State
	State    contract.State
	Latency  time.Duration
	Reason   string
}

// AuditSink takes audit events. Requests do not wait for it.
type AuditSink interface {
	// Record keeps e or drops it; it never blocks. A dropped event is counted.
	Record(e *AuditEvent)
	// Dropped returns how many events were lost since the start.
	Dropped() uint64
	// Close writes what was recorded and closes the sink. It gives up when ctx
	// ends. Events recorded later are dropped.
	Close(ctx context.Context) error
}

// subject is what a call was about, for the audit log: what the request named,
// completed by what the answer told.
type subject struct {
	key      *contract.Key // nil when the request named none
	keyID    contract.KeyID
	leaseID  contract.LeaseID
	token    contract.Token
	instance string
	reason   string
	// mode tells a revocation from a forced release: they end a lease the same
	// way, and only the audit log knows why.
	mode contract.RevokeMode
}

// audited reports whether an ending belongs in the audit log: every transition,
// and every refusal that tells of contention, of rights or of a failing store.
// A request that was malformed, or a read that found nothing, does not.
func audited(op operation, v verdict) bool {
	switch {
	case v.ok():
		return op.changes() && op != opRenewBulk // its leases are recorded one by one
	case v == verdict(contract.OutcomeNotFound):
		return op.changes()
	}
	switch v.code() {
	case api.CodeInvalid, api.CodeUnknownNamespace, api.CodeTooLarge, api.CodeUnsupportedMediaType:
		return false
	default:
		return true
	}
}

// event returns the audit event of a call that ended.
func (c *Call) event(op operation, v verdict, sub *subject, res *contract.Result, took time.Duration) *AuditEvent {
	e := &AuditEvent{
		RequestID: c.RequestID, TraceID: c.TraceID, Principal: c.Principal.Name,
		Instance: sub.instance, Namespace: c.ns.Name,
		KeyID: sub.keyID, LeaseID: sub.leaseID, Token: sub.token,
		Operation: op.String(), Outcome: v.String(), Code: string(v.code()),
		Replayed: res.Replayed, Latency: took, Reason: sub.reason,
	}
	if sub.key != nil {
		e.Key = *sub.key
	}
	if sub.mode == contract.RevokeForceRelease {
		e.Operation = api.ModeForceRelease
	}
	if l := res.Lease; l != nil {
		e.Key, e.KeyID, e.LeaseID, e.Token = l.Key, l.KeyID, l.ID, l.Token
		e.Previous, e.State = states(res)
		if e.Instance == "" {
			e.Instance = l.Instance
		}
		if e.Reason == "" {
			e.Reason = l.Reason
		}
	}
	if e.KeyID.IsZero() && e.Key != (contract.Key{}) {
		e.KeyID = e.Key.ID()
	}
	return e
}

// states returns a key's state before and after the call that answered res.
func states(res *contract.Result) (previous, now contract.State) {
	now = res.Lease.State
	switch {
	case !res.Outcome.OK() || res.Replayed:
		return now, now
	case res.Outcome == contract.OutcomeAcquired:
		return contract.StateFree, now
	case res.Outcome == contract.OutcomeCurrent:
		return now, now
	}
	return contract.StateActive, now
}
