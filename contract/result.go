package contract

import "fmt"

// Outcome is the answer of an operation that was carried out. Losing a race is
// an answer.
type Outcome uint8

// The outcomes. The zero Outcome is invalid.
const (
	_ Outcome = iota

	// What succeeded.

	OutcomeAcquired // the key was granted; Lease is the grant
	OutcomeRenewed  // the lease lives longer; Lease is as renewed
	OutcomeReleased // release ended the lease; Lease is as ended
	OutcomeRevoked  // revoke ended the lease; Lease is as ended
	OutcomeCurrent  // check: the token is the active grant's
	OutcomeFound    // get: there is such a lease or key

	// What was refused. Nothing changed.

	OutcomeConflict        // another lease holds the key; Lease is the holder's
	OutcomeNotFound        // the store knows no such lease or key
	OutcomeNotOwner        // held by another owner or instance
	OutcomeStaleToken      // the token is not the one of this lease, or not the current one
	OutcomeEndedExpired    // the lease is over: it expired; Lease is as ended
	OutcomeEndedReleased   // the lease is over: its holder released it
	OutcomeEndedRevoked    // the lease is over: it was revoked
	OutcomeRequestIDReused // the request id named another request; nothing of its answer is shown
	OutcomeQuotaExceeded   // a limit of the namespace is reached; Limit names it
)

var outcomeNames = [...]string{
	OutcomeAcquired:        "acquired",
	OutcomeRenewed:         "renewed",
	OutcomeReleased:        "released",
	OutcomeRevoked:         "revoked",
	OutcomeCurrent:         "current",
	OutcomeFound:           "found",
	OutcomeConflict:        "conflict",
	OutcomeNotFound:        "not_found",
	OutcomeNotOwner:        "not_owner",
	OutcomeStaleToken:      "stale_token",
	OutcomeEndedExpired:    "ended_expired",
	OutcomeEndedReleased:   "ended_released",
	OutcomeEndedRevoked:    "ended_revoked",
	OutcomeRequestIDReused: "request_id_reused",
	OutcomeQuotaExceeded:   "quota_exceeded",
}

// String returns the outcome's name. The three Ended outcomes have names of
// their own, so that "released" always means that this call released.
func (o Outcome) String() string {
	if o == 0 || int(o) >= len(outcomeNames) {
		return fmt.Sprintf("outcome(%d)", uint8(o))
	}
	return outcomeNames[o]
}

// OK reports whether the operation did what was asked.
func (o Outcome) OK() bool { return o >= OutcomeAcquired && o <= OutcomeFound }

// EndedOutcome returns the refusal owed to a caller whose lease is in state s:
// one of the Ended outcomes, or 0 for an active lease.
func EndedOutcome(s State) Outcome {
	switch s {
	case StateExpired:
		return OutcomeEndedExpired
	case StateReleased:
		return OutcomeEndedReleased
	case StateRevoked:
		return OutcomeEndedRevoked
	default:
		return 0
	}
}

// Queue tells who waits for a key.
type Queue struct {
	// Length counts the waiters that would be served: those whose client is
	// there.
	Length int
	// Position is the caller's own place, 1 for the next to be served; 0 when it
	// has none, or one so far back that the store does not count it.
	Position int
}

// Result is the answer to acquire, renew, release, check and revoke.
type Result struct {
	Outcome Outcome
	// Lease is the lease that the outcome is about, see the outcomes. It is nil
	// for not_found, not_owner, stale_token, request_id_reused and
	// quota_exceeded.
	Lease *Lease
	// Replayed tells that the answer was stored under the request id before.
	Replayed bool
	// Queue accompanies conflict.
	Queue Queue
	// Limit accompanies quota_exceeded: "leases_per_owner" or "waiters_per_key".
	Limit string
}

// RenewItemResult is the answer for one lease of a bulk renewal: a Result, or
// an error that says what is known of that lease alone.
type RenewItemResult struct {
	Result
	Err error
}

// RenewBulkResult has one item for each lease asked for, in the same order.
type RenewBulkResult struct {
	Items []RenewItemResult
}

// KeyResult is what a store knows of a key.
type KeyResult struct {
	Outcome Outcome // OutcomeFound or OutcomeNotFound
	Key     Key
	KeyID   KeyID
	Lease   *Lease // the active lease, if any
	Queue   Queue
	Last    *Lease // the lease that ended last, if still remembered
}

// ListResult is one page of leases.
type ListResult struct {
	Leases []Lease
	// NextCursor continues after the last lease of this page; empty on the last
	// page.
	NextCursor string
}

// HistoryResult is one page of a key's events, newest first.
type HistoryResult struct {
	Events     []Event
	NextCursor string
}
