package client

import (
	"fmt"
	"time"
)

// holdError makes a constant a target of errors.Is, as codeError does.
type holdError string

// Error returns the text.
func (e holdError) Error() string { return string(e) }

// The causes with which a session's context ends, and why Hold is refused.
const (
	// ErrLost matches every *LostError.
	ErrLost = holdError("the lease is lost")
	// ErrInDoubt matches a *LostError of a lease of which nothing was heard for so
	// long that another could have it soon.
	ErrInDoubt = holdError("the lease could not be renewed in time")
	// ErrMaxLifetime is what a *LostError wraps whose lease no renewal could make
	// longer.
	ErrMaxLifetime = holdError("the lease is at the end of its maximum lifetime")
	// ErrSessionReleased is the cause with which the context of a session ends that its
	// holder released. That a lease was released by a stranger is a *LostError.
	ErrSessionReleased = holdError("the session was released")
	// ErrShutdown is the cause with which sessions end in Client.Shutdown, and the
	// answer to Hold after it.
	ErrShutdown = holdError("the client was shut down")
)

// LostError tells how a lease was lost before its holder released it. Whoever
// holds the key now may have begun its work: writes with the old token must not
// be tried, and a fence refuses them.
type LostError struct {
	Namespace string
	LeaseID   string
	Token     uint64
	// At is when the session learned of it, on the monotonic clock too. It is
	// never later than the end of the trust, except in a process that did not run.
	At time.Time
	// Doubt: the lease was not known to be over; there was no renewal in time.
	Doubt bool
	// Err is the server's word, such as an *Error that matches ErrRevoked, what the
	// latest renewal met, or ErrMaxLifetime; nil in a process that did not run in
	// time.
	Err error
}

// Error says what happened.
func (e *LostError) Error() string {
	what := ErrLost
	if e.Doubt {
		what = ErrInDoubt
	}
	if e.Err == nil {
		return fmt.Sprintf("lease %s, token %d: %s", e.LeaseID, e.Token, string(what))
	}
	return fmt.Sprintf("lease %s, token %d: %s: %v", e.LeaseID, e.Token, string(what), e.Err)
}

// Unwrap returns Err.
func (e *LostError) Unwrap() error { return e.Err }

// Is reports whether target is ErrLost, or ErrInDoubt for a lease in doubt.
func (e *LostError) Is(target error) bool {
	return target == ErrLost || e.Doubt && target == ErrInDoubt
}
