package api

import (
	"time"

	"leased/contract"
)

// Media types and headers of the API.
const (
	MediaType        = "application/json"
	ProblemMediaType = "application/problem+json"
	// EventStreamMediaType is that of server-sent events.
	EventStreamMediaType = "text/event-stream"

	HeaderIdempotencyKey = "Idempotency-Key"
	HeaderLastEventID    = "Last-Event-ID"
	HeaderRequestID      = "X-Request-Id"
	HeaderTraceParent    = "Traceparent"
)

// Problem is every answer that did not do what was asked (RFC 9457). Detail is
// for the person at the keyboard; programs read Code.
type Problem struct {
	Type      string `json:"type"`
	Title     string `json:"title"`
	Status    int    `json:"status"`
	Detail    string `json:"detail"`
	Code      Code   `json:"code"`
	RequestID string `json:"request_id"`
	// Retryable: the same request under the same request id may succeed.
	Retryable bool `json:"retryable"`
	// RetryAfterMS is how long to wait before a retry makes sense; 0 when that
	// is not known.
	RetryAfterMS int64 `json:"retry_after_ms,omitzero"`
	// Field is what CodeInvalid is about: a path into the body ("key.target.id",
	// "leases[3].token", "body" for the whole), a query or path parameter, or a
	// header.
	Field string `json:"field,omitzero"`
	// Holder accompanies CodeConflict for callers who may inspect the key.
	Holder *Holder `json:"holder,omitzero"`
	// Queue accompanies CodeConflict.
	Queue *Queue `json:"queue,omitzero"`
	// Lease is the lease as it ended, for its owner: CodeExpired, CodeReleased,
	// CodeRevoked.
	Lease *Lease `json:"lease,omitzero"`
	// Replayed: the request id had been granted this lease before.
	Replayed bool `json:"replayed,omitzero"`
}

// NewProblem returns the problem with the given code; the caller adds what else
// is known.
func NewProblem(code Code, requestID, detail string) *Problem {
	r, ok := code.find()
	if !ok {
		r, _ = CodeInternal.find()
	}
	return &Problem{
		Type: r.code.Type(), Title: r.title, Status: r.status, Detail: detail,
		Code: r.code, RequestID: requestID, Retryable: r.retryable,
	}
}

// RetryAfter returns how long to wait before a retry makes sense, 0 when that is
// not known.
func (p *Problem) RetryAfter() time.Duration {
	return time.Duration(p.RetryAfterMS) * time.Millisecond
}

// Holder says who has the key.
type Holder struct {
	Owner       string `json:"owner"`
	Instance    string `json:"instance"`
	JobID       string `json:"job_id"`
	AcquiredAt  Time   `json:"acquired_at"`
	ExpiresInMS int64  `json:"expires_in_ms"`
}

// NewHolder returns what a stranger may see of the lease that holds a key. The
// lease id is not part of it: who knows it can be taken for the holder.
func NewHolder(l *contract.Lease) *Holder {
	return &Holder{
		Owner: l.Owner, Instance: l.Instance, JobID: l.JobID,
		AcquiredAt: NewTime(l.AcquiredAt), ExpiresInMS: milliseconds(l.ExpiresIn),
	}
}

// Queue says who waits for a key.
type Queue struct {
	// Length counts the waiters whose client is there.
	Length int `json:"length"`
	// Position is the caller's own place, 1 for the next to be served; 0, and
	// then absent, when it has none.
	Position int `json:"position,omitzero"`
}

// NewQueue returns q for the wire.
func NewQueue(q contract.Queue) Queue { return Queue(q) }
