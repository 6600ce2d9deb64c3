package contract

import (
	"fmt"
	"maps"
	"time"
)

// RecordVersion is the version of Lease that this release writes. A record with
// another version fails closed: CodeInternal, and its key is not granted.
const RecordVersion = 1

// Token is a fencing token. Within a key every new grant has a higher one than
// all grants before it, also after restarts, restores and fail-overs.
type Token uint64

// MaxToken is the highest token a store may grant: JSON readers keep integers
// below 2⁵³ exactly. At the limit a store refuses; it never wraps.
const MaxToken Token = 1<<53 - 1

// Limits on what a lease carries, in bytes unless said otherwise.
const (
	MaxNamespace       = 128
	MaxText            = 256 // owner, instance, execution, job and trace id
	MaxRequestID       = 128 // visible ASCII
	MaxReason          = 1024
	MaxMetadataPairs   = 16 // pairs
	MaxMetadataBytes   = 4096
	MaxMetadataNameLen = 256
)

// State is where a lease stands. StateFree is a key's state before its first
// grant and between grants; no lease is ever free.
type State uint8

// The states.
const (
	_ State = iota
	StateFree
	StateActive
	StateExpired
	StateReleased
	StateRevoked
)

var stateNames = [...]string{
	StateFree:     "free",
	StateActive:   "active",
	StateExpired:  "expired",
	StateReleased: "released",
	StateRevoked:  "revoked",
}

// String returns the state as it stands in the HTTP API.
func (s State) String() string {
	if s == 0 || int(s) >= len(stateNames) {
		return fmt.Sprintf("state(%d)", uint8(s))
	}
	return stateNames[s]
}

// Terminal reports whether the state is an end: expired, released or revoked.
func (s State) Terminal() bool { return s >= StateExpired && s <= StateRevoked }

// ParseState returns the lease state with the given name. "free" is not a
// lease's state and is refused.
func ParseState(name string) (State, error) {
	for s := StateActive; s <= StateRevoked; s++ {
		if stateNames[s] == name {
			return s, nil
		}
	}
	return 0, errState()
}

func errState() error {
	return Invalid("state", "is not a state of a lease; use active, expired, released or revoked")
}

// Lease is one grant, as a store answers it. Every answer is a copy: changing
// it, its Metadata included, changes nothing in the store.
//
// Times are the store's and have at least millisecond precision. ExpiresIn is
// what a caller should use: it needs no synchronised clock.
type Lease struct {
	RecordVersion int
	Namespace     string
	Key           Key
	KeyID         KeyID
	ID            LeaseID
	Owner         string
	Instance      string
	Token         Token
	State         State

	AcquiredAt time.Time
	RenewedAt  time.Time // AcquiredAt until the first renewal
	ExpiresAt  time.Time
	// ExpiresIn is what was left on the backend's clock when the answer was
	// made: positive while active, zero once ended. It is never more than what
	// is left.
	ExpiresIn time.Duration
	// TTL is what was granted last, by the acquire or the latest renewal: never
	// less than asked, except where the maximum lifetime leaves less.
	TTL time.Duration
	// MaxLifetime bounds ExpiresAt − AcquiredAt over all renewals.
	MaxLifetime time.Duration
	Renewals    uint64

	ExecutionID string
	JobID       string
	TraceID     string
	RequestID   string // of the acquire
	Metadata    map[string]string

	// Set once the lease has ended. For an expired lease EndedAt lies between
	// ExpiresAt and the moment the store recorded the end, and EndedBy is empty.
	EndedAt time.Time
	EndedBy string // the principal that released or revoked it
	Reason  string
}

// Clone returns a copy that shares no memory with l.
func (l Lease) Clone() Lease {
	l.Metadata = maps.Clone(l.Metadata)
	return l
}

// Match compares what a caller presents with the lease and returns the refusal
// that renew, release and check owe it, or 0 when everything matches and the
// lease is active. Identity comes before state, so that a stranger does not
// learn how somebody else's lease ended.
func (l *Lease) Match(owner, instance string, token Token) Outcome {
	switch {
	case l.Owner != owner || l.Instance != instance:
		return OutcomeNotOwner
	case l.Token != token:
		return OutcomeStaleToken
	}
	return EndedOutcome(l.State)
}
