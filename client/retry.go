package client

import (
	"context"
	"crypto/rand"
	"errors"
	"net/url"
	"time"

	"github.com/cenkalti/backoff/v5"

	"leased/gateway/api"
)

// Pauses between attempts. The first is short, since most failures are one
// server restarting while another serves; the longest is what a holder with a
// TTL of a few seconds can still afford.
const (
	firstPause   = 50 * time.Millisecond
	longestPause = 2 * time.Second
)

// waitBegun is how long an attempt with a wait lasts at least of which a server had
// taken the wait on, and not only been slow to refuse it.
const waitBegun = 2 * time.Second

// call is one call of the API over all of its attempts.
type call struct {
	method    string
	path      string // escaped
	query     url.Values
	requestID string // of a call that changes something
	changes   bool
	once      bool          // one attempt only
	reach     bool          // once, at the first server to which there is a connection
	patient   bool          // Options.RetryFor does not bound it
	selfBound bool          // the server bounds it by itself and takes no timeout
	wait      time.Duration // of an acquire
	// attemptTimeout bounds one attempt further than the client does; 0 does not.
	attemptTimeout time.Duration
	// body returns what to send, told how much of the wait is left.
	body func(waitLeft time.Duration) any
	// read takes a success, see into. refused, where set, is given the body of a
	// refusal too.
	read    func(text []byte) error
	refused func(text []byte) error

	// sentAt is when the latest attempt began, and connected whether it had a
	// connection.
	sentAt    time.Time
	connected bool
}

// verdict is what one failed attempt tells.
type verdict struct {
	err *Error
	// mayBeApplied: the request may have reached a server that acted on it.
	mayBeApplied bool
	// again: another attempt may succeed.
	again bool
}

// do makes the call, as the package comment describes. Its error is an *Error.
func (c *Client) do(ctx context.Context, sent *call) error {
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, plus(c.timeout, sent.wait))
		defer cancel()
	}
	var (
		pauses  = newPauses()
		started = time.Now()
		failed  time.Time // when the first attempt failed
		unknown bool      // an earlier attempt may have been applied
		patient = sent.patient
		tried   int
	)
	for {
		if ctx.Err() != nil {
			return c.ended(ctx, sent, nil, unknown)
		}
		began := time.Now()
		server := c.server.Load()
		v := c.attempt(ctx, sent, c.servers[server%uint32(len(c.servers))], max(0, sent.wait-time.Since(started)))
		if v == nil {
			return nil
		}
		if failed.IsZero() {
			failed = time.Now()
		}
		unknown = unknown || v.mayBeApplied
		if sent.wait > 0 && sent.connected && time.Since(began) >= waitBegun {
			// It stood in the queue: servers that restart one after the other must not
			// end a wait, however long they take.
			patient = true
			pauses.Reset()
		}
		if v.again && !errors.Is(ctx.Err(), context.Canceled) {
			// Only the attempt that failed moves the others on: of a hundred calls
			// that meet a dead server together each would otherwise skip one. A call
			// whose own time was over moves them too, or calls with short deadlines
			// would go to a silent server for ever.
			c.server.CompareAndSwap(server, server+1)
		}
		switch tried++; {
		case sent.reach && !sent.connected && v.again && ctx.Err() == nil && tried < len(c.servers):
			continue
		case !v.again || sent.once:
			return conclude(v.err, unknown)
		case ctx.Err() != nil:
			return c.ended(ctx, sent, v.err, unknown)
		}
		pause := max(pauses.NextBackOff(), v.err.Problem.RetryAfter())
		if !unknown && !patient && c.retryFor != 0 && time.Since(failed)+pause > c.retryFor {
			return v.err
		}
		if !sleep(ctx, pause) {
			return c.ended(ctx, sent, v.err, unknown)
		}
	}
}

// ended returns the error of a call whose context ended; last is that of the
// latest attempt, if there was one.
func (c *Client) ended(ctx context.Context, sent *call, last *Error, unknown bool) *Error {
	cause := context.Cause(ctx)
	if !unknown && last != nil && last.Problem.Code != api.CodeTimeout {
		// Unreachable to the end is more useful to know than that time passed.
		e := *last
		e.Err = errors.Join(cause, last.Err)
		return &e
	}
	if last != nil {
		cause = errors.Join(cause, last)
	}
	if unknown {
		return newError(api.CodeOutcomeUnknown, sent.requestID, cause,
			"the call ended without an answer; repeat it with the same request id")
	}
	return newError(api.CodeTimeout, sent.requestID, cause, "the call's deadline passed; nothing was applied")
}

// conclude returns the error for the last answer of a call. An answer that does
// not come from the store says nothing of what an earlier attempt did.
func conclude(last *Error, unknown bool) *Error {
	if !unknown {
		return last
	}
	switch last.Problem.Code {
	case api.CodeUnavailable, api.CodeClosed, api.CodeTimeout, api.CodeRateLimited,
		api.CodeInternal, api.CodeUnauthenticated, api.CodeDenied, "":
		return newError(api.CodeOutcomeUnknown, last.Problem.RequestID, last,
			"an earlier attempt may have been applied; repeat the call with the same request id")
	default:
		return last
	}
}

func newPauses() *backoff.ExponentialBackOff {
	b := backoff.NewExponentialBackOff()
	b.InitialInterval = firstPause
	b.MaxInterval = longestPause
	b.Multiplier = 2
	return b
}

// sleep waits and reports whether it was for the whole pause. It does not begin
// a pause that the context's deadline would cut: nothing could follow it.
func sleep(ctx context.Context, pause time.Duration) bool {
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) <= pause {
		return false
	}
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// plus adds durations that are not negative, up to the longest one.
func plus(a, b time.Duration) time.Duration {
	if sum := a + b; sum >= a {
		return sum
	}
	return 1<<63 - 1
}

// orNew returns the request id, or one that nobody has used.
func orNew(requestID string) string {
	if requestID != "" {
		return requestID
	}
	return rand.Text()
}
