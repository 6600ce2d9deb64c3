package contract

import (
	"context"
	"time"
)

// DefaultTimeout bounds a call whose context has no deadline.
const DefaultTimeout = 10 * time.Second

// AnswerSlack is how much later than its deadline, or than the end of its wait,
// an operation may answer.
const AnswerSlack = 200 * time.Millisecond

// Store is a lease store: one backend, serving any number of namespaces. All
// methods may be called concurrently, also on several Stores open on the same
// backend, which then behave as one: racing, waiting and replaying hold over
// all of them.
//
// Common law, for every method unless its comment says otherwise:
//
//   - Validation. A request that breaks a rule of its Validate is CodeInvalid,
//     names the field and changes nothing.
//   - Deadline. A context without a deadline gets DefaultTimeout. No call
//     outlives its deadline by more than AnswerSlack, whatever the backend does.
//   - Errors are *Error and say what is known of the write. CodeUnavailable,
//     CodeTimeout and CodeClosed: certainly not applied. CodeOutcomeUnknown: may
//     have been applied; the same request id finds out.
//   - Time. The backend's clock decides, at the operation's linearisation point,
//     whether or not something was cleaned up yet. A lease never ends before its
//     TTL has passed on that clock; it may end Guarantees.Slack later. A restart
//     or fail-over of the backend may start a TTL afresh (Guarantees.FailOver).
//   - Atomicity. A transition, its event and its replayable answer are committed
//     in one step.
//   - Idempotency. An answer that changed something is stored under its Scope
//     for Retention.Idempotency; refusals are not. The same scope with another
//     Fingerprint is OutcomeRequestIDReused and shows nothing. Of copies in
//     flight at the same time one does the work and the others get its answer.
//   - Copies. Nothing in a request is kept by reference, nothing in an answer
//     aliases the store.
//   - After Close: CodeClosed.
type Store interface {
	// Acquire grants the key if it is free: OutcomeAcquired, with a new lease id
	// and a token higher than every earlier one of the key. TTL and maximum
	// lifetime start at the grant.
	//
	// A held key is OutcomeConflict with the holder's lease and the queue: at
	// once when Wait is 0, else at the end of the wait, which is Wait or the
	// context's deadline, whichever comes first. Waiters of a key are served
	// first come first served, over all Stores on the backend. A waiter whose
	// call has ended (its context was cancelled, its wait ended, its Store was
	// closed or died) is away: it no longer counts in Queue.Length, and when its
	// turn comes it is skipped and its place is lost. Until then the same
	// request id finds its place again. When a turn comes to waiters that are
	// away, the next one present is served within 2 s.
	//
	// If the answer was not a grant, no lease of that request appears later: a
	// grant that crosses the end of its wait is undone (it ends as released) and
	// its answer forgotten. The one exception is CodeOutcomeUnknown.
	//
	// Replay, while the lease is active: the same grant, Replayed, with the time
	// left counted down, whether or not others wait. Once it is over:
	// OutcomeEndedExpired, OutcomeEndedReleased or OutcomeEndedRevoked with the
	// lease as it ended, never a fresh grant.
	//
	// OutcomeQuotaExceeded when the owner has Limits.LeasesPerOwner active
	// leases, or when the request would have to wait and Limits.WaitersPerKey
	// callers wait for the key. A key never has more places than that: when some
	// of its waiters are away, a newcomer's place takes the room of the first of
	// those in the queue, whose place is lost; of several where the limit was
	// lowered. The owner's quota is told before a conflict, and to a waiter at its
	// turn. CodeInternal when the token space is used up
	// or the key's record is corrupt: nothing is granted over it.
	Acquire(ctx context.Context, r *AcquireRequest) (Result, error)

	// Renew starts the TTL of a lease again: OutcomeRenewed, same lease id and
	// token. The TTL asked for counts from the renewal, also when that ends the
	// lease sooner than it would have; it is granted less than asked only where
	// the maximum lifetime leaves less.
	//
	// Otherwise, in this order: OutcomeNotFound (no such lease is remembered),
	// OutcomeNotOwner (another owner or instance), OutcomeStaleToken,
	// OutcomeEndedExpired, OutcomeEndedReleased, OutcomeEndedRevoked with the
	// lease as it ended. An ended lease is never revived.
	//
	// Replay, while the lease is active: the first answer, Replayed; its time
	// left is counted down. Once it is over: how it ended.
	Renew(ctx context.Context, r *RenewRequest) (Result, error)

	// RenewBulk renews each lease as Renew would with the same request id and
	// no TTL, those of one key in the order in which they are named: once one of
	// them is renewed the others are OutcomeRequestIDReused. The call as a whole fails only when nothing was done for any item,
	// or when what was done is unknown for all.
	RenewBulk(ctx context.Context, r *RenewBulkRequest) (RenewBulkResult, error)

	// Release ends a lease that the caller holds: OutcomeReleased. It compares
	// and ends in one step, so that it can never end a newer lease. Refusals are
	// those of Renew. Whoever waits is served.
	//
	// Replay: the first answer, Replayed.
	Release(ctx context.Context, r *ReleaseRequest) (Result, error)

	// Revoke ends the named lease whoever holds it: OutcomeRevoked, with the
	// principal and the reason in the record. That the caller may do so is not
	// the store's to decide. An ended lease answers how it ended
	// (OutcomeEndedExpired, OutcomeEndedReleased, OutcomeEndedRevoked); an
	// unknown one is OutcomeNotFound. A newer lease of the same key is never
	// touched.
	//
	// Replay: the first answer, Replayed.
	Revoke(ctx context.Context, r *RevokeRequest) (Result, error)

	// Check tells whether the token is that of the key's active lease:
	// OutcomeCurrent with the lease. The token of the latest grant when that has
	// ended: OutcomeEndedExpired, OutcomeEndedReleased or OutcomeEndedRevoked
	// with the lease. Any other token of a key that is remembered:
	// OutcomeStaleToken, also one higher than any granted. A key of which
	// nothing is remembered: OutcomeNotFound. Linearisable.
	Check(ctx context.Context, r *CheckRequest) (Result, error)

	// Get returns the lease with the id, active or ended: OutcomeFound, or
	// OutcomeNotFound when it never was or is no longer remembered.
	// Linearisable: a state it showed is never taken back.
	Get(ctx context.Context, r *GetRequest) (Result, error)

	// GetKey returns what is known of a key; OutcomeNotFound when that is
	// nothing. Linearisable.
	GetKey(ctx context.Context, r *GetKeyRequest) (KeyResult, error)

	// List returns a page of the namespace's leases, in an order that does not
	// change with time. Filters match literally and are combined with "and".
	// Without State only active leases are listed: one that ended, swept or not,
	// is not. Following the cursors shows every lease that matched throughout
	// exactly once, and none twice. A page is linearisable. A cursor that this
	// method did not make is CodeInvalid, field "cursor".
	List(ctx context.Context, r *ListRequest) (ListResult, error)

	// History returns a page of the key's transitions (EventAcquired,
	// EventReleased, EventExpired, EventRevoked), newest first: every one of the
	// last Retention.HistoryPerKey that is younger than Retention.History. An
	// unknown key has none. Linearisable.
	History(ctx context.Context, r *HistoryRequest) (HistoryResult, error)

	// Watch streams the namespace's events in the order in which they were
	// committed, renewals included: those after the cursor, or those that happen
	// after Watch returned. It never blocks the store: a slow reader loses events
	// and is told by an EventGap. ctx bounds the start of the stream only. A
	// cursor that is neither an event's id nor a Stream's Cursor is CodeInvalid,
	// field "after".
	Watch(ctx context.Context, r *WatchRequest) (Stream, error)

	// RaiseFloor makes every token that the namespace grants from now on higher
	// than Above. It is for whoever restored or moved a store, so that tokens
	// never fall; it may be repeated and never lowers anything.
	RaiseFloor(ctx context.Context, r *RaiseFloorRequest) error

	// Health tries the real path of the namespace and reports. It fails only
	// with CodeClosed and CodeInvalid: a store that cannot serve says so in
	// Health.Ready and Detail.
	Health(ctx context.Context, r *HealthRequest) (Health, error)

	// Close ends the store: operations sent later answer CodeClosed, waiters
	// answer CodeClosed at once and are away (CodeOutcomeUnknown where their turn
	// may have come), streams end; operations that run finish or are cut when ctx
	// ends. It reports everything that went wrong,
	// does not stop at the first, and answers the same when called again.
	Close(ctx context.Context) error
}

// WithDeadline returns ctx, given DefaultTimeout if it has no deadline. Every
// method of a Store calls it first.
func WithDeadline(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, DefaultTimeout)
}
