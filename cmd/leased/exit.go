package main

import (
	"errors"
	"fmt"

	"leased/client"
	"leased/gateway/api"
)

// The exit codes.
const (
	exitDone        = 0
	exitOther       = 1
	exitUsage       = 2
	exitHeld        = 3
	exitLost        = 4
	exitUnavailable = 5
	exitDenied      = 6
)

// usageError is about what was typed or configured, and not about the work.
type usageError struct{ err error }

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

func usagef(format string, args ...any) error { return &usageError{fmt.Errorf(format, args...)} }

// lostError is a not_found that tells the holder of a lease that it is gone, in
// place of somebody who only looked.
type lostError struct{ err error }

func (e *lostError) Error() string { return e.err.Error() }
func (e *lostError) Unwrap() error { return e.err }

// asHolder returns err for a command whose caller claims to hold the lease.
func asHolder(err error) error {
	if errors.Is(err, client.ErrNotFound) {
		return &lostError{err}
	}
	return err
}

// exitCode returns the code of an error, 0 for none.
func exitCode(err error) int {
	if err == nil {
		return exitDone
	}
	if _, ok := errors.AsType[*usageError](err); ok {
		return exitUsage
	}
	if _, ok := errors.AsType[*lostError](err); ok {
		return exitLost
	}
	if end, ok := errors.AsType[*commandError](err); ok {
		return end.code
	}
	if errors.Is(err, client.ErrLost) {
		return exitLost
	}
	if _, ok := errors.AsType[*notReadyError](err); ok {
		return exitUnavailable
	}
	if _, ok := errors.AsType[noLeaderError](err); ok {
		return exitUnavailable
	}
	if _, ok := errors.AsType[*unhealthyError](err); ok {
		return exitUnavailable
	}
	switch client.CodeOf(err) {
	case api.CodeInvalid, api.CodeTooLarge:
		return exitUsage
	case api.CodeConflict:
		return exitHeld
	case api.CodeExpired, api.CodeReleased, api.CodeRevoked, api.CodeStaleToken, api.CodeNotOwner:
		return exitLost
	case api.CodeUnavailable, api.CodeClosed, api.CodeTimeout, api.CodeOutcomeUnknown:
		return exitUnavailable
	case api.CodeUnauthenticated, api.CodeDenied:
		return exitDenied
	default:
		return exitOther
	}
}
