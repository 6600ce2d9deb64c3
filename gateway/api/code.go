package api

import (
	"net/http"

	"leased/contract"
)

// Code names a refusal or an error in a Problem.
type Code string

// The codes.
const (
	CodeInvalid              Code = "invalid" // Problem.Field names the offender
	CodeUnauthenticated      Code = "unauthenticated"
	CodeDenied               Code = "denied"
	CodeNotFound             Code = "not_found"
	CodeUnknownNamespace     Code = "unknown_namespace"
	CodeMethodNotAllowed     Code = "method_not_allowed"
	CodeConflict             Code = "conflict"
	CodeNotOwner             Code = "not_owner"
	CodeStaleToken           Code = "stale_token"
	CodeExpired              Code = "expired"
	CodeReleased             Code = "released"
	CodeRevoked              Code = "revoked"
	CodeTooLarge             Code = "too_large"
	CodeUnsupportedMediaType Code = "unsupported_media_type"
	CodeRequestIDReused      Code = "request_id_reused"
	CodeQuotaExceeded        Code = "quota_exceeded"
	CodeRateLimited          Code = "rate_limited"
	CodeUnavailable          Code = "unavailable" // certainly not applied
	CodeClosed               Code = "closed"      // certainly not applied
	CodeTimeout              Code = "timeout"     // certainly not applied
	CodeOutcomeUnknown       Code = "outcome_unknown"
	CodeInternal             Code = "internal"
)

// typePrefix makes a code the URI that RFC 9457 wants as a problem's type.
const typePrefix = "urn:leased:problem:"

// row says what one code is: in HTTP, and in package contract. At most one of
// outcome and err is set; a code that only the gateway has sets neither.
type row struct {
	code   Code
	status int
	title  string
	// retryable: the same request, repeated unchanged under the same request
	// id, may succeed.
	retryable bool
	outcome   contract.Outcome
	err       contract.Code
}

// table is the one place where code, status, outcome and error meet. It is read
// in both directions, by the gateway and by the SDK.
var table = [...]row{
	{code: CodeInvalid, status: http.StatusBadRequest, title: "The request is not valid", err: contract.CodeInvalid},
	{code: CodeUnauthenticated, status: http.StatusUnauthorized, title: "No valid credential was given"},
	{code: CodeDenied, status: http.StatusForbidden, title: "The principal may not do this"},
	{code: CodeNotFound, status: http.StatusNotFound, title: "There is no such thing", outcome: contract.OutcomeNotFound},
	{code: CodeUnknownNamespace, status: http.StatusNotFound, title: "There is no such namespace"},
	{code: CodeMethodNotAllowed, status: http.StatusMethodNotAllowed, title: "The path does not take this method"},
	{code: CodeConflict, status: http.StatusConflict, title: "Another lease holds the key", retryable: true, outcome: contract.OutcomeConflict},
	{code: CodeNotOwner, status: http.StatusConflict, title: "The lease is held by another owner or instance", outcome: contract.OutcomeNotOwner},
	{code: CodeStaleToken, status: http.StatusConflict, title: "The token is not the current one", outcome: contract.OutcomeStaleToken},
	{code: CodeExpired, status: http.StatusGone, title: "The lease has expired", outcome: contract.OutcomeEndedExpired},
	{code: CodeReleased, status: http.StatusGone, title: "The lease was released", outcome: contract.OutcomeEndedReleased},
	{code: CodeRevoked, status: http.StatusGone, title: "The lease was revoked", outcome: contract.OutcomeEndedRevoked},
	{code: CodeTooLarge, status: http.StatusRequestEntityTooLarge, title: "The request body is too large"},
	{code: CodeUnsupportedMediaType, status: http.StatusUnsupportedMediaType, title: "The request body is not JSON"},
	{code: CodeRequestIDReused, status: http.StatusUnprocessableEntity, title: "The request id named another request", outcome: contract.OutcomeRequestIDReused},
	{code: CodeQuotaExceeded, status: http.StatusTooManyRequests, title: "A quota of the namespace is used up", retryable: true, outcome: contract.OutcomeQuotaExceeded},
	{code: CodeRateLimited, status: http.StatusTooManyRequests, title: "Too many requests", retryable: true},
	{code: CodeUnavailable, status: http.StatusServiceUnavailable, title: "The store cannot serve now; nothing was applied", retryable: true, err: contract.CodeUnavailable},
	{code: CodeClosed, status: http.StatusServiceUnavailable, title: "The gateway is closing; nothing was applied", retryable: true, err: contract.CodeClosed},
	{code: CodeTimeout, status: http.StatusGatewayTimeout, title: "The deadline passed; nothing was applied", retryable: true, err: contract.CodeTimeout},
	{code: CodeOutcomeUnknown, status: http.StatusGatewayTimeout, title: "It is not known whether the request was applied", retryable: true, err: contract.CodeOutcomeUnknown},
	{code: CodeInternal, status: http.StatusInternalServerError, title: "The gateway or the store has a defect", err: contract.CodeInternal},
}

// Codes returns every code, in the order of their statuses.
func Codes() []Code {
	codes := make([]Code, len(table))
	for i := range table {
		codes[i] = table[i].code
	}
	return codes
}

// find returns the row of a code that came from outside, if there is one.
func (c Code) find() (row, bool) {
	for i := range table {
		if table[i].code == c {
			return table[i], true
		}
	}
	return row{}, false
}

// Status returns the HTTP status of the code, 0 for an unknown one.
func (c Code) Status() int {
	r, _ := c.find()
	return r.status
}

// Title returns what the code means, in a few words.
func (c Code) Title() string {
	r, _ := c.find()
	return r.title
}

// Retryable reports whether the same request, repeated unchanged under the same
// request id, may succeed.
func (c Code) Retryable() bool {
	r, _ := c.find()
	return r.retryable
}

// Outcome returns the outcome that the code stands for, or 0 if it stands for
// an error or for nothing in package contract.
func (c Code) Outcome() contract.Outcome {
	r, _ := c.find()
	return r.outcome
}

// ErrorCode returns the error that the code stands for, or 0 if it stands for
// an outcome or for nothing in package contract.
func (c Code) ErrorCode() contract.Code {
	r, _ := c.find()
	return r.err
}

// Type returns the URI that RFC 9457 calls the problem's type.
func (c Code) Type() string { return typePrefix + string(c) }

// CodeOfOutcome returns the code of a refusal, and "" for an outcome that did
// what was asked. An outcome that no store may answer is CodeInternal.
func CodeOfOutcome(o contract.Outcome) Code {
	if o.OK() {
		return ""
	}
	for i := range table {
		if o != 0 && table[i].outcome == o {
			return table[i].code
		}
	}
	return CodeInternal
}

// CodeOfError returns the code of an error; CodeInternal for one that no store
// may answer.
func CodeOfError(c contract.Code) Code {
	for i := range table {
		if c != 0 && table[i].err == c {
			return table[i].code
		}
	}
	return CodeInternal
}

// CodeOfStatus returns a code for an answer that carries none: that of a proxy
// between the SDK and the gateway, or of a program that listens there by mistake. It
// knows nothing of leases, so that no status stands for a code that is the store's
// word. A server error may hide a request that was applied: some proxies answer 503
// when the connection was cut after the request had gone out.
func CodeOfStatus(status int) Code {
	switch {
	case status >= http.StatusInternalServerError:
		return CodeOutcomeUnknown
	case status == http.StatusTooManyRequests:
		return CodeRateLimited
	default:
		return CodeInternal
	}
}

// StatusOfOutcome returns the HTTP status of an answer: 201 for a grant, 200 for
// the rest that did what was asked, the refusal's own otherwise.
func StatusOfOutcome(o contract.Outcome) int {
	switch {
	case o == contract.OutcomeAcquired:
		return http.StatusCreated
	case o.OK():
		return http.StatusOK
	}
	return CodeOfOutcome(o).Status()
}

// ParseOutcome returns the outcome with the given name in a successful reply.
func ParseOutcome(name string) (contract.Outcome, bool) {
	for o := contract.OutcomeAcquired; o.OK(); o++ {
		if o.String() == name {
			return o, true
		}
	}
	return 0, false
}
