package gateway

import (
	"errors"

	"leased/contract"
	"leased/gateway/api"
)

// operation is one of the calls a namespace takes; it is a metric label and a
// word in the audit log, so the set is closed.
type operation uint8

const (
	opNone operation = iota // a route that serves no namespace
	opAcquire
	opRenew
	opRenewBulk
	opRelease
	opRevoke
	opCheck
	opGet
	opGetKey
	opList
	opHistory
	opResolve
	opWatch  // counted when the stream has begun
	opExpire // nobody's call: a store recorded an expiry
	opCount
)

func (o operation) String() string {
	return [opCount]string{
		"none", "acquire", "renew", "renew_bulk", "release", "revoke", "check",
		"get", "get_key", "list", "history", "resolve", "watch", "expire",
	}[o]
}

// changes reports whether the operation changes something when it succeeds, so
// that each of its answers belongs in the audit log.
func (o operation) changes() bool { return o >= opAcquire && o <= opRevoke }

// verdict is how an operation ended, outcomes and errors in one closed set: the
// outcomes of package contract by their own numbers, then the codes of package
// api that are no outcome.
type verdict uint8

const (
	firstCode     verdict = 32 // leaves room for new outcomes below it
	verdictCount          = 64
	verdictFailed verdict = verdictCount - 1 // not in either table: a defect
)

// verdictOf returns how a call ended that answered outcome and err.
func verdictOf(outcome contract.Outcome, err error) verdict {
	if err == nil {
		if outcome == 0 || verdict(outcome) >= firstCode {
			return verdictFailed
		}
		return verdict(outcome)
	}
	return verdictOfCode(codeOf(err))
}

// verdictOfCode returns how a call ended that answered an error with this code.
func verdictOfCode(code api.Code) verdict {
	for i, c := range api.Codes() {
		if c == code {
			return firstCode + verdict(i)
		}
	}
	return verdictFailed
}

// ok reports whether the call did what was asked.
func (v verdict) ok() bool { return v < firstCode && contract.Outcome(v).OK() }

// code returns the API code of a call that did not do what was asked.
func (v verdict) code() api.Code {
	codes := api.Codes()
	switch {
	case v < firstCode:
		return api.CodeOfOutcome(contract.Outcome(v))
	case int(v-firstCode) < len(codes):
		return codes[v-firstCode]
	}
	return api.CodeInternal
}

// String returns the outcome's name, or the code's. The outcomes have names of
// their own for a lease that was over ("ended_released"), so that "released"
// always counts releases.
func (v verdict) String() string {
	if v < firstCode && v != 0 {
		return contract.Outcome(v).String()
	}
	return string(v.code())
}

// refusal is an answer that the gateway gives by itself, without a store.
type refusal struct {
	code   api.Code
	field  string
	detail string
	cause  error // for the log only
}

func (e *refusal) Error() string {
	s := string(e.code) + ": " + e.detail
	if e.cause != nil {
		s += ": " + e.cause.Error()
	}
	return s
}

func (e *refusal) Unwrap() error { return e.cause }

func refuse(code api.Code, detail string) *refusal { return &refusal{code: code, detail: detail} }

// codeOf returns the code of err.
func codeOf(err error) api.Code {
	if r, ok := errors.AsType[*refusal](err); ok {
		return r.code
	}
	if e, ok := errors.AsType[*contract.Error](err); ok {
		return api.CodeOfError(e.Code)
	}
	return api.CodeInternal
}

// problemOf returns err for the wire. What is not meant for the caller, the
// cause above all, stays out.
func problemOf(err error, requestID string) *api.Problem {
	if r, ok := errors.AsType[*refusal](err); ok {
		p := api.NewProblem(r.code, requestID, r.detail)
		p.Field = r.field
		return p
	}
	e, ok := errors.AsType[*contract.Error](err)
	if !ok {
		return api.NewProblem(api.CodeInternal, requestID, "the gateway met an error that it does not know; its log has more")
	}
	detail := e.Detail
	if e.Field != "" {
		detail = e.Field + " " + detail
	}
	p := api.NewProblem(api.CodeOfError(e.Code), requestID, detail)
	p.Field = e.Field
	if e.RetryAfter > 0 {
		// Rounded up: a retry that comes early is a wasted one.
		p.RetryAfterMS = (e.RetryAfter.Microseconds() + 999) / 1000
	}
	return p
}
