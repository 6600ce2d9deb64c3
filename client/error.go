package client

import (
	"errors"
	"strings"

	"leased/gateway/api"
)

// codeError makes a code a target of errors.Is. It is a constant type: a
// sentinel that is a variable can be overwritten by any package.
type codeError api.Code

// Error returns the code.
func (c codeError) Error() string { return string(c) }

// The codes of the API, for errors.Is(err, client.ErrConflict). What each tells
// about the write stands at the constants of gateway/api.
const (
	ErrInvalid              = codeError(api.CodeInvalid)
	ErrUnauthenticated      = codeError(api.CodeUnauthenticated)
	ErrDenied               = codeError(api.CodeDenied)
	ErrNotFound             = codeError(api.CodeNotFound)
	ErrUnknownNamespace     = codeError(api.CodeUnknownNamespace)
	ErrMethodNotAllowed     = codeError(api.CodeMethodNotAllowed)
	ErrConflict             = codeError(api.CodeConflict)
	ErrNotOwner             = codeError(api.CodeNotOwner)
	ErrStaleToken           = codeError(api.CodeStaleToken)
	ErrExpired              = codeError(api.CodeExpired)
	ErrReleased             = codeError(api.CodeReleased)
	ErrRevoked              = codeError(api.CodeRevoked)
	ErrTooLarge             = codeError(api.CodeTooLarge)
	ErrUnsupportedMediaType = codeError(api.CodeUnsupportedMediaType)
	ErrRequestIDReused      = codeError(api.CodeRequestIDReused)
	ErrQuotaExceeded        = codeError(api.CodeQuotaExceeded)
	ErrRateLimited          = codeError(api.CodeRateLimited)
	ErrUnavailable          = codeError(api.CodeUnavailable)
	ErrClosed               = codeError(api.CodeClosed)
	ErrTimeout              = codeError(api.CodeTimeout)
	ErrOutcomeUnknown       = codeError(api.CodeOutcomeUnknown)
	ErrInternal             = codeError(api.CodeInternal)
)

// Error is what every call returns that did not do what was asked. The problem
// is the server's own, or one that the client made because no server answered.
type Error struct {
	// Problem has at least Code, Title, Detail and, for a call that changes
	// something, RequestID: repeating the call with that id is always safe.
	Problem api.Problem
	// Err is the cause where the client made the problem: a network error, the
	// context's end. nil for a server's answer.
	Err error
}

// Error returns code, detail, field and request id.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(string(e.Problem.Code))
	if e.Problem.Field != "" {
		b.WriteString(": " + e.Problem.Field)
	}
	switch {
	case e.Problem.Detail != "":
		b.WriteString(": " + e.Problem.Detail)
	case e.Problem.Title != "":
		b.WriteString(": " + e.Problem.Title)
	}
	if e.Err != nil {
		b.WriteString(": " + e.Err.Error())
	}
	if e.Problem.RequestID != "" {
		b.WriteString(" (request " + e.Problem.RequestID + ")")
	}
	return b.String()
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Is reports whether target is the error's code.
func (e *Error) Is(target error) bool {
	code, ok := target.(codeError)
	return ok && api.Code(code) == e.Problem.Code
}

// CodeOf returns the code of an error of this package, and "" for another one
// or nil.
func CodeOf(err error) api.Code {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Problem.Code
	}
	return ""
}

// newError returns a problem of the client's own making.
func newError(code api.Code, requestID string, cause error, detail string) *Error {
	return &Error{Problem: *api.NewProblem(code, requestID, detail), Err: cause}
}
