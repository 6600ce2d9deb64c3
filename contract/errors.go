package contract

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Code says what is known about an operation that gave no answer. It tells the
// caller whether the operation may have been applied; why it went wrong is in
// the error's text.
type Code uint8

// The codes. The zero Code is not one of them, so that a forgotten assignment
// shows.
const (
	_ Code = iota
	// CodeInvalid: the request breaks a rule; Field names the offender. Not
	// applied, and repeating it unchanged cannot succeed.
	CodeInvalid
	// CodeUnavailable: the store cannot serve now. Certainly not applied.
	CodeUnavailable
	// CodeTimeout: the deadline passed before the operation was submitted.
	// Certainly not applied.
	CodeTimeout
	// CodeOutcomeUnknown: the operation was submitted and its answer was lost
	// or late. It may have been applied: repeat it with the same request id.
	CodeOutcomeUnknown
	// CodeClosed: the store was closed before the operation was submitted.
	// Certainly not applied.
	CodeClosed
	// CodeInternal: a defect or a corrupt record. Fail closed; nothing was
	// granted over it.
	CodeInternal
)

var codeNames = [...]string{
	CodeInvalid:        "invalid",
	CodeUnavailable:    "unavailable",
	CodeTimeout:        "timeout",
	CodeOutcomeUnknown: "outcome_unknown",
	CodeClosed:         "closed",
	CodeInternal:       "internal",
}

// String returns the code as it stands in the HTTP API.
func (c Code) String() string {
	if c == 0 || int(c) >= len(codeNames) {
		return fmt.Sprintf("code(%d)", uint8(c))
	}
	return codeNames[c]
}

// Error is the only error type that a Store returns.
type Error struct {
	Code Code
	// Field is the request field that CodeInvalid is about, in the spelling of
	// the HTTP API ("ttl_ms", "key.target.id"); empty otherwise.
	Field string
	// Detail is for the person at the keyboard. It never holds a credential, an
	// address, a backend key or another tenant's data.
	Detail string
	// RetryAfter is how long to wait before a retry makes sense; zero when
	// unknown.
	RetryAfter time.Duration
	// Err is the cause. It is for logs and may hold what Detail must not.
	Err error
}

// Error returns code, field, detail and cause, for logs.
func (e *Error) Error() string {
	s := e.Code.String()
	if e.Field != "" {
		s += ": " + e.Field
	}
	if e.Detail != "" {
		s += ": " + e.Detail
	}
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Is reports whether target is an *Error with the same code and no more than
// that: errors.Is(err, &Error{Code: CodeClosed}).
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	return ok && t.Code == e.Code && t.Field == "" && t.Detail == "" && t.Err == nil
}

// Invalid returns a CodeInvalid error about field.
func Invalid(field, format string, args ...any) *Error {
	return &Error{Code: CodeInvalid, Field: field, Detail: fmt.Sprintf(format, args...)}
}

// Errorf returns an error with code, cause and detail. The text of the cause
// stays out of Detail.
func Errorf(code Code, cause error, format string, args ...any) *Error {
	return &Error{Code: code, Detail: fmt.Sprintf(format, args...), Err: cause}
}

// CodeOf returns the code of err, and CodeInternal for an error that no store
// should have returned. It returns 0 for nil.
func CodeOf(err error) Code {
	if err == nil {
		return 0
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Code
	}
	return CodeInternal
}

// NotSubmitted returns the error for an operation whose context ended before it
// was submitted to the backend: certainly not applied.
func NotSubmitted(ctx context.Context) *Error {
	return Errorf(CodeTimeout, context.Cause(ctx), "the deadline passed before the operation was submitted")
}

// Lost returns the error for an operation whose context ended after it was
// submitted: it may have been applied.
func Lost(ctx context.Context) *Error {
	return Errorf(CodeOutcomeUnknown, context.Cause(ctx),
		"no answer before the deadline; repeat it with the same request id")
}
