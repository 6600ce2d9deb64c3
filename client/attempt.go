package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json"

	"leased/contract"
	"leased/gateway/api"
)

// errIncomplete says that an answer lacks what every answer of its kind has.
var errIncomplete = errors.New("it lacks what such an answer has")

// maxReply bounds what is read of an answer, in bytes: a page of 1,000 leases
// with full metadata has about 10 MiB.
const maxReply = 32 << 20

// attempt sends the call once and reads the answer with sent.read. It returns
// nil when the server did what was asked.
func (c *Client) attempt(ctx context.Context, sent *call, server string, waitLeft time.Duration) *verdict {
	budget := plus(c.attemptTimeout, waitLeft)
	if sent.attemptTimeout != 0 {
		budget = min(budget, sent.attemptTimeout)
	}
	if deadline, ok := ctx.Deadline(); ok {
		budget = min(budget, time.Until(deadline))
	}
	attemptCtx, cancel := context.WithTimeout(ctx, budget)
	defer cancel()

	// Until a connection is there, nothing can have been applied. From then on
	// it can, whatever the error says.
	var connected atomic.Bool
	attemptCtx = httptrace.WithClientTrace(attemptCtx, &httptrace.ClientTrace{
		GotConn: func(httptrace.GotConnInfo) { connected.Store(true) },
	})
	// The wait is the server's: to find that there is none takes no part in it.
	dial := time.AfterFunc(c.attemptTimeout, func() {
		if !connected.Load() {
			cancel()
		}
	})
	defer dial.Stop()
	req, err := c.request(attemptCtx, sent, server, waitLeft, budget)
	if err != nil {
		return &verdict{err: unsendable(sent.requestID, err)}
	}
	sent.sentAt = c.now()
	resp, err := c.http.Do(req)
	sent.connected = connected.Load()
	if err != nil {
		if errors.Is(attemptCtx.Err(), context.DeadlineExceeded) {
			// If the network has forgotten this connection it has forgotten those that
			// are idle, and each of them would cost an attempt.
			c.http.CloseIdleConnections()
		}
		if attemptCtx.Err() != nil && ctx.Err() == nil && !connected.Load() {
			err = fmt.Errorf("there was no connection in time: %w", err)
		}
		return sent.lost(connected.Load(), withoutURL(err))
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxReply+1))
	switch {
	case err != nil:
		return sent.lost(true, fmt.Errorf("read the answer: %w", err))
	case len(text) > maxReply:
		return sent.lost(true, fmt.Errorf("the answer has more than %d bytes", maxReply))
	}
	if resp.StatusCode/100 != 2 {
		return sent.refusal(resp, text)
	}
	if err := sent.read(text); err != nil {
		return sent.lost(true, fmt.Errorf("the answer is not what the API promises: %w", err))
	}
	if sent.requestID == "" {
		sent.requestID = resp.Header.Get(api.HeaderRequestID)
	}
	return nil
}

func (c *Client) request(ctx context.Context, sent *call, server string, waitLeft, budget time.Duration) (*http.Request, error) {
	var body io.Reader
	if sent.body != nil {
		text, err := json.Marshal(sent.body(waitLeft), json.Deterministic(true))
		if err != nil {
			return nil, err
		}
		body = bytes.NewReader(text)
	}
	query := maps.Clone(sent.query)
	if query == nil {
		query = url.Values{}
	}
	if !sent.selfBound {
		query.Set("timeout", serverTimeout(budget))
	}
	target := server + sent.path
	if len(query) > 0 {
		target += "?" + query.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, sent.method, target, body)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", api.MediaType)
	if body != nil {
		req.Header.Set("Content-Type", api.MediaType)
	}
	if sent.changes {
		if err := setHeader(req, api.HeaderIdempotencyKey, sent.requestID); err != nil {
			return nil, err
		}
	}
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	return req, nil
}

// headerError names a header whose value cannot be sent as it is.
type headerError string

func (e headerError) Error() string { return "it has a character that is not visible ASCII" }

// setHeader sets a header to what a caller has given. What net/http would refuse to
// send looks like a server that cannot be reached, and spaces around it get lost.
func setHeader(req *http.Request, name, value string) error {
	for i := range len(value) {
		if value[i] <= ' ' || value[i] > '~' {
			return headerError(name)
		}
	}
	req.Header.Set(name, value)
	return nil
}

// unsendable is the error of a request that cannot be made.
func unsendable(requestID string, cause error) *Error {
	e := newError(api.CodeInvalid, requestID, cause, "the request cannot be sent")
	if header, ok := errors.AsType[headerError](cause); ok {
		e.Problem.Field = string(header)
	}
	return e
}

// serverTimeout returns the bound that the server is given: a little less than
// the client's own, so that the end of the time is an answer which says what is
// known, and not a cut connection. A store may be late by contract.AnswerSlack,
// and the network needs its time too.
func serverTimeout(budget time.Duration) string {
	left := budget - min(budget/8, 2*contract.AnswerSlack)
	return strconv.FormatInt(max(1, left.Milliseconds()), 10) + "ms"
}

// into returns a reader of answers into dst. It decodes into a value of its own
// first, because an answer that breaks off would otherwise leave fields behind
// for the next attempt's. check, which may be nil, refuses an answer that is
// JSON and not what the API promises: "null" would read as a grant of nothing.
func into[T any](dst *T, check func(*T) bool) func([]byte) error {
	return func(text []byte) error {
		var got T
		if err := json.Unmarshal(text, &got); err != nil {
			return err
		}
		if check != nil && !check(&got) {
			return errIncomplete
		}
		*dst = got
		return nil
	}
}

// complete reports whether l can be told from other leases and be fenced with.
func complete(l *api.Lease) bool { return l != nil && l.LeaseID != "" && l.Token != 0 }

func hasLease(r *api.LeaseReply) bool { return complete(r.Lease) }

// lost is the verdict on an attempt without an answer.
func (sent *call) lost(connected bool, cause error) *verdict {
	if connected && sent.changes {
		return &verdict{again: true, mayBeApplied: true, err: newError(api.CodeOutcomeUnknown, sent.requestID, cause,
			"the connection ended before the answer came")}
	}
	detail := "the server cannot be reached"
	if connected {
		detail = "the connection ended before the answer came"
	}
	return &verdict{again: true, err: newError(api.CodeUnavailable, sent.requestID, cause, detail)}
}

// refusal is the verdict on an answer that is not a success.
func (sent *call) refusal(resp *http.Response, text []byte) *verdict {
	e := &Error{}
	mediaType, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	foreign := mediaType != api.ProblemMediaType || json.Unmarshal(text, &e.Problem) != nil || e.Problem.Code == ""
	if foreign {
		e = sent.foreign(resp.StatusCode)
	}
	if e.Problem.RequestID == "" {
		e.Problem.RequestID = orDefault(sent.requestID, resp.Header.Get(api.HeaderRequestID))
	}
	if sent.refused != nil {
		// What the problem adds is extra; the problem itself was read.
		_ = sent.refused(text)
	}
	v := sent.judge(e)
	// A gateway may be there again in a moment, or behind another server's URL.
	v.again = v.again || foreign
	return v
}

// judge is the verdict on a problem.
func (sent *call) judge(e *Error) *verdict {
	v := &verdict{err: e}
	switch e.Problem.Code {
	case api.CodeOutcomeUnknown:
		v.again, v.mayBeApplied = true, sent.changes
	case api.CodeUnavailable, api.CodeClosed, api.CodeTimeout, api.CodeRateLimited:
		v.again = true
	default: // an answer
	}
	return v
}

// foreign makes a problem of an answer that is not the gateway's: a proxy's, or
// that of a program which listens on the port by mistake.
func (sent *call) foreign(status int) *Error {
	code := api.CodeOfStatus(status)
	if code == api.CodeOutcomeUnknown && !sent.changes {
		code = api.CodeUnavailable
	}
	return newError(code, sent.requestID, nil, fmt.Sprintf(
		"the answer, status %d, is not that of a leased gateway; is the server's URL right?", status))
}

// withoutURL drops what net/http puts around an error: the URL says nothing
// that the caller does not know, and hides what went wrong.
func withoutURL(err error) error {
	if u, ok := errors.AsType[*url.Error](err); ok {
		return u.Err
	}
	return err
}
