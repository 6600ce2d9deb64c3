package memstore

import (
	"time"

	"leased/contract"
)

// Machine is a step function with its state; *Model is the right one. It is an
// interface so that the suite's own test can put a wrong one behind a Backend
// and see it caught.
type Machine interface {
	// Step carries out op at now and returns the answer. Time never goes back:
	// an instant before that of an earlier step counts as that one.
	Step(now time.Time, op Op) Answer
	// NextExpiry returns the instant at which the next lease ends by itself.
	NextExpiry() (time.Time, bool)
}

// CallID names a call that may have to wait. Whoever drives a Machine chooses
// them, each once.
type CallID uint64

// Op is one of the operations below. Requests in them must be valid.
type Op interface {
	apply(m *Model) Answer
}

// The operations.
type (
	// Acquire is Store.Acquire up to its answer or to the parking of the call.
	Acquire struct {
		Request contract.AcquireRequest
		// Nonce makes the id of the lease, should this call be granted one.
		Nonce [16]byte
		// Call is who is told, should the call have to wait.
		Call CallID
	}
	// Leave takes a parked call away. When it was the last one of its place, the
	// place is kept for the request id to come back. It answers what the call
	// is owed: a conflict.
	Leave struct {
		Call CallID
	}
	// Undo takes back a grant that nobody was there to take: the lease ends as
	// released and the answer is forgotten, so that a retry is a fresh attempt.
	// It answers what the caller is owed: a conflict, without a lease if nobody
	// holds the key.
	Undo struct {
		Request contract.AcquireRequest
		LeaseID contract.LeaseID
	}
	// Renew is Store.Renew.
	Renew struct{ Request contract.RenewRequest }
	// RenewBulk is Store.RenewBulk.
	RenewBulk struct{ Request contract.RenewBulkRequest }
	// Release is Store.Release.
	Release struct{ Request contract.ReleaseRequest }
	// Revoke is Store.Revoke.
	Revoke struct{ Request contract.RevokeRequest }
	// Check is Store.Check.
	Check struct{ Request contract.CheckRequest }
	// Get is Store.Get.
	Get struct{ Request contract.GetRequest }
	// GetKey is Store.GetKey.
	GetKey struct{ Request contract.GetKeyRequest }
	// List is Store.List.
	List struct{ Request contract.ListRequest }
	// History is Store.History.
	History struct{ Request contract.HistoryRequest }
	// Watch is the start of Store.Watch: it answers the Cursor to read from.
	Watch struct{ Request contract.WatchRequest }
	// Read is one step of a stream: it answers the first Event after the cursor
	// that the request selects, if there is one, and the Cursor to read on from.
	Read struct {
		Request contract.WatchRequest
		Cursor  uint64
	}
	// RaiseFloor is Store.RaiseFloor.
	RaiseFloor struct{ Request contract.RaiseFloorRequest }
	// Health is Store.Health.
	Health struct{ Request contract.HealthRequest }
	// Tick lets time pass and does nothing else.
	Tick struct{}
	// Restart stands for a crash and the start after it: what was committed
	// stays, every parked call is gone.
	Restart struct{}
)

// Answer is what a step gave. Of the upper fields only the one that belongs to
// the operation is filled.
type Answer struct {
	Result  contract.Result // acquire, leave, undo, renew, release, revoke, check, get
	Bulk    contract.RenewBulkResult
	Key     contract.KeyResult
	List    contract.ListResult
	History contract.HistoryResult
	Health  contract.Health
	Cursor  uint64          // watch, read
	Event   *contract.Event // read
	// Err is CodeInvalid for a cursor that was never given out and CodeInternal
	// when no token is left.
	Err error

	// Parked tells that an acquire has no answer yet: a Wake for its call comes
	// with a later step, unless it leaves.
	Parked bool
	// Wakes are the answers to parked calls that this step decided.
	Wakes []Wake
	// Events are those that this step committed, in order.
	Events []contract.Event
}

// Wake is the answer to a parked call.
type Wake struct {
	Call   CallID
	Result contract.Result
	Err    error
}
