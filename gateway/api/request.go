package api

import (
	"reflect"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// AcquireRequest is the body of POST /v1/namespaces/{ns}/leases.
type AcquireRequest struct {
	Key      Key    `json:"key"`
	Instance string `json:"instance"`
	// TTLMS and MaxLifetimeMS: absent takes the namespace's; zero is invalid.
	TTLMS         *int64   `json:"ttl_ms,omitzero"`
	MaxLifetimeMS *int64   `json:"max_lifetime_ms,omitzero"`
	WaitMS        int64    `json:"wait_ms,omitzero"` // 0 answers at once
	ExecutionID   string   `json:"execution_id,omitzero"`
	JobID         string   `json:"job_id,omitzero"`
	TraceID       string   `json:"trace_id,omitzero"`
	Metadata      Metadata `json:"metadata,omitzero"`
}

// RenewRequest is the body of POST …/leases/{lease_id}/renew.
type RenewRequest struct {
	Token    uint64 `json:"token"`
	Instance string `json:"instance"`
	// TTLMS: absent keeps the TTL that the lease was granted last.
	TTLMS *int64 `json:"ttl_ms,omitzero"`
}

// ReleaseRequest is the body of POST …/leases/{lease_id}/release.
type ReleaseRequest struct {
	Token    uint64 `json:"token"`
	Instance string `json:"instance"`
}

// The modes of a RevokeRequest.
const (
	ModeRevoke       = "revoke"
	ModeForceRelease = "force_release"
)

// RevokeRequest is the body of POST …/leases/{lease_id}/revoke.
type RevokeRequest struct {
	Reason string `json:"reason"`
	Mode   string `json:"mode,omitzero"` // absent is ModeRevoke
}

// RenewBulkRequest is the body of POST /v1/namespaces/{ns}/renew.
type RenewBulkRequest struct {
	Instance string           `json:"instance"`
	Leases   []RenewBulkLease `json:"leases"`
}

// RenewBulkLease names one lease of a bulk renewal.
type RenewBulkLease struct {
	LeaseID string `json:"lease_id"`
	Token   uint64 `json:"token"`
}

// ResolveRequest is the body of POST /v1/namespaces/{ns}/resolve.
type ResolveRequest struct {
	Key Key `json:"key"`
}

// CheckRequest is the body of POST /v1/namespaces/{ns}/check: Key or KeyID, not
// both.
type CheckRequest struct {
	Key   *Key   `json:"key,omitzero"`
	KeyID string `json:"key_id,omitzero"`
	Token uint64 `json:"token"`
}

// Metadata is a lease's metadata in a request. It differs from a map in that a
// null value is refused: it would be stored as an empty string, which is not
// what was sent.
type Metadata map[string]string

// UnmarshalJSONFrom reads an object of strings, or null.
func (m *Metadata) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	if kind := dec.PeekKind(); kind != '{' {
		var plain map[string]string // null, or the library's own error
		if err := json.UnmarshalDecode(dec, &plain); err != nil {
			return err
		}
		*m = plain
		return nil
	}
	if _, err := dec.ReadToken(); err != nil {
		return err
	}
	pairs := make(Metadata)
	for dec.PeekKind() == '"' {
		token, err := dec.ReadToken()
		if err != nil {
			return err
		}
		name := token.String()
		if kind := dec.PeekKind(); kind == 'n' {
			return &json.SemanticError{JSONPointer: dec.StackPointer(), JSONKind: kind, GoType: reflect.TypeFor[string](), Err: nullValueError{}}
		}
		var value string
		if err := json.UnmarshalDecode(dec, &value); err != nil {
			return err
		}
		pairs[name] = value
	}
	if _, err := dec.ReadToken(); err != nil {
		return err
	}
	*m = pairs
	return nil
}

type nullValueError struct{}

func (nullValueError) Error() string { return "must be a string, not null" }
