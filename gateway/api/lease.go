package api

import (
	"maps"
	"time"

	"leased/contract"
)

// Target is what the work is about.
type Target struct {
	Type string `json:"type"`
	ID   string `json:"id"`
}

// Key is the identity of mutually exclusive work. In a request tenant, target
// and actor are required; the rest defaults to "default".
type Key struct {
	Tenant    string `json:"tenant"`
	Program   string `json:"program,omitzero"`
	Target    Target `json:"target"`
	Actor     string `json:"actor"`
	Workflow  string `json:"workflow,omitzero"`
	Operation string `json:"operation,omitzero"`
}

// NewKey returns k for the wire.
func NewKey(k contract.Key) Key {
	return Key{
		Tenant: k.Tenant, Program: k.Program,
		Target: Target{Type: string(k.Target.Type), ID: k.Target.ID},
		Actor:  k.Actor, Workflow: k.Workflow, Operation: k.Operation,
	}
}

// Contract returns the key as it was sent: nothing is normalised or checked.
func (k *Key) Contract() contract.Key {
	return contract.Key{
		Tenant: k.Tenant, Program: k.Program,
		Target: contract.Target{Type: contract.TargetType(k.Target.Type), ID: k.Target.ID},
		Actor:  k.Actor, Workflow: k.Workflow, Operation: k.Operation,
	}
}

// Lease is one grant, active or ended.
type Lease struct {
	RecordVersion int    `json:"record_version"`
	Namespace     string `json:"namespace"`
	Key           Key    `json:"key"`
	KeyID         string `json:"key_id"`
	LeaseID       string `json:"lease_id"`
	Owner         string `json:"owner"`
	Instance      string `json:"instance"`
	Token         uint64 `json:"token"`
	State         string `json:"state"`
	AcquiredAt    Time   `json:"acquired_at"`
	RenewedAt     Time   `json:"renewed_at"`
	ExpiresAt     Time   `json:"expires_at"`
	// ExpiresInMS was left when the answer was made; it needs no synchronised
	// clock.
	ExpiresInMS int64 `json:"expires_in_ms"`
	// TTLMS is what was granted last, which may differ from what was asked.
	TTLMS         int64             `json:"ttl_ms"`
	MaxLifetimeMS int64             `json:"max_lifetime_ms"`
	Renewals      uint64            `json:"renewals"`
	ExecutionID   string            `json:"execution_id"`
	JobID         string            `json:"job_id"`
	TraceID       string            `json:"trace_id"`
	Metadata      map[string]string `json:"metadata"`
	EndedAt       Time              `json:"ended_at"` // null while active
	EndedBy       string            `json:"ended_by"`
	Reason        string            `json:"reason"`
}

// NewLease returns l for the wire. The result shares l's metadata.
func NewLease(l *contract.Lease) *Lease {
	w := Lease{
		RecordVersion: l.RecordVersion, Namespace: l.Namespace,
		Key: NewKey(l.Key), KeyID: l.KeyID.String(), LeaseID: l.ID.String(),
		Owner: l.Owner, Instance: l.Instance, Token: uint64(l.Token), State: l.State.String(),
		AcquiredAt: NewTime(l.AcquiredAt), RenewedAt: NewTime(l.RenewedAt), ExpiresAt: NewTime(l.ExpiresAt),
		ExpiresInMS: milliseconds(l.ExpiresIn), TTLMS: milliseconds(l.TTL),
		MaxLifetimeMS: milliseconds(l.MaxLifetime), Renewals: l.Renewals,
		ExecutionID: l.ExecutionID, JobID: l.JobID, TraceID: l.TraceID, Metadata: l.Metadata,
		EndedAt: NewTime(l.EndedAt), EndedBy: l.EndedBy, Reason: l.Reason,
	}
	if w.Metadata == nil {
		w.Metadata = map[string]string{} // {} also for users of encoding/json
	}
	return &w
}

// Contract returns the lease as package contract has it, except the request id,
// which is not on the wire. The error is an *contract.Error with CodeInvalid
// that names the field which no gateway can have sent.
func (l *Lease) Contract() (contract.Lease, error) {
	keyID, err := contract.ParseKeyID(l.KeyID)
	if err != nil {
		return contract.Lease{}, err
	}
	id, err := contract.ParseLeaseID(l.LeaseID)
	if err != nil {
		return contract.Lease{}, err
	}
	state, err := contract.ParseState(l.State)
	if err != nil {
		return contract.Lease{}, err
	}
	token := contract.Token(l.Token)
	if err := contract.ValidateToken("token", token); err != nil {
		return contract.Lease{}, err
	}
	return contract.Lease{
		RecordVersion: l.RecordVersion, Namespace: l.Namespace,
		Key: l.Key.Contract(), KeyID: keyID, ID: id,
		Owner: l.Owner, Instance: l.Instance, Token: token, State: state,
		AcquiredAt: l.AcquiredAt.Time, RenewedAt: l.RenewedAt.Time, ExpiresAt: l.ExpiresAt.Time,
		ExpiresIn: duration(l.ExpiresInMS), TTL: duration(l.TTLMS),
		MaxLifetime: duration(l.MaxLifetimeMS), Renewals: l.Renewals,
		ExecutionID: l.ExecutionID, JobID: l.JobID, TraceID: l.TraceID,
		Metadata: maps.Clone(l.Metadata),
		EndedAt:  l.EndedAt.Time, EndedBy: l.EndedBy, Reason: l.Reason,
	}, nil
}

// duration returns what a field that ends in _ms stands for. Wire values beyond
// contract.MaxDuration come from no gateway; cutting them keeps the product from
// wrapping round to a negative one.
func duration(ms int64) time.Duration {
	limit := contract.MaxDuration.Milliseconds()
	return time.Duration(max(-limit, min(ms, limit))) * time.Millisecond
}
