package gateway

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"runtime/debug"
	"time"

	"github.com/gin-gonic/gin"

	"leased/contract"
	"leased/gateway/api"
)

// exchange is one request and its reply. gin's context belongs to the next
// request as soon as serve returns, so nothing that outlives serve (an audit
// event, a log record) may hold an exchange.
type exchange struct {
	h     *handler
	c     *gin.Context
	r     *http.Request
	route *route
	start time.Time
	call  Call
	query url.Values
	// bodyLimit is when the body must have come; zero when nothing of it is left.
	bodyLimit time.Time
	// outcome is what the log calls the answer: the outcome, or the code.
	outcome string
}

// serve runs a route with what surrounds it: the request id, authentication,
// recovery, metrics, the log.
func (h *handler) serve(c *gin.Context, r *route) {
	x := &exchange{h: h, c: c, r: c.Request, route: r, start: time.Now()}
	defer x.end()
	x.limitBody()
	if err := x.run(); err != nil {
		x.fail(err)
	}
}

func (x *exchange) run() error {
	idErr := x.takeRequestID()
	if err := x.takeQuery(); err != nil {
		return x.refused(err)
	}
	if x.route.public {
		return x.route.handle(x.h, x)
	}
	var authErr error
	x.call.Principal, authErr = x.h.authenticate(x.r)
	x.call.TraceID = traceID(x.r.Header)
	if x.route.op == opNone {
		if err := cmp.Or(authErr, idErr, x.takeTimeout()); err != nil {
			return err
		}
		return x.route.handle(x.h, x)
	}
	x.call.op, x.call.start = x.route.op, x.h.service.now()
	// Who is not known does not learn which namespaces there are: begin comes
	// before the check only so that the refusal is counted where it belongs.
	beginErr := x.h.service.begin(&x.call, x.param("namespace"))
	for _, err := range [...]error{authErr, beginErr, idErr, x.takeTimeout()} {
		if err != nil {
			return x.refused(err)
		}
	}
	if x.r.Method == http.MethodGet && x.r.Body != http.NoBody {
		// Nobody reads it, but net/http notices that a client has gone only once
		// the body is read.
		if _, err := x.readBody(nil, maxBody); err != nil {
			return x.refused(err)
		}
	}
	return x.route.handle(x.h, x)
}

// refused ends the call, if the route has one, before it came to its operation.
func (x *exchange) refused(err error) error {
	if x.route.op == opNone {
		return err
	}
	if x.call.ns == nil { // refused before begin
		x.call.op, x.call.start, x.call.ns = x.route.op, x.h.service.now(), x.h.service.router.unknown
	}
	x.h.service.refused(&x.call, err)
	return err
}

func (h *handler) authenticate(r *http.Request) (Principal, error) {
	p, err := h.service.auth.Authenticate(r)
	if err == nil {
		return p, nil
	}
	if e, ok := errors.AsType[*contract.Error](err); ok {
		return Principal{}, e
	}
	return Principal{}, &refusal{
		code: api.CodeUnauthenticated, detail: "send a valid credential in the Authorization header", cause: err,
	}
}

// takeRequestID names the request: by its Idempotency-Key if it is one that
// changes something, else by chance. The reply carries the name whatever
// becomes of the request.
func (x *exchange) takeRequestID() error {
	var err error
	if x.route.changes() {
		keys := x.r.Header[api.HeaderIdempotencyKey]
		switch {
		case len(keys) > 1:
			err = contract.Invalid(api.HeaderIdempotencyKey, "is given %d times", len(keys))
		case len(keys) == 1:
			if err = contract.ValidateRequestID(api.HeaderIdempotencyKey, keys[0]); err == nil {
				x.call.RequestID = keys[0]
			}
		}
	}
	if x.call.RequestID == "" {
		x.call.RequestID = rand.Text()
	}
	x.c.Writer.Header()[api.HeaderRequestID] = []string{x.call.RequestID}
	return err
}

// traceID returns the trace id of a W3C traceparent header, or "" where there is
// no valid one: a header that is not understood is ignored, as its standard says.
func traceID(h http.Header) string {
	values := h[api.HeaderTraceParent]
	if len(values) != 1 {
		return ""
	}
	const version, id, parent = 2, 32, 16 // characters; flags have two more
	v := values[0]
	if len(v) < version+id+parent+2+3 || v[2] != '-' || v[35] != '-' || v[52] != '-' {
		return ""
	}
	if v[:2] == "ff" || (v[:2] == "00" && len(v) != 55) || (len(v) > 55 && v[55] != '-') {
		return ""
	}
	trace := v[3:35]
	if !isHex(v[:2]) || !isHex(trace) || !isHex(v[36:52]) || !isHex(v[53:55]) {
		return ""
	}
	if trace == "00000000000000000000000000000000" || v[36:52] == "0000000000000000" {
		return ""
	}
	return trace
}

func isHex(s string) bool {
	for i := range len(s) {
		if (s[i] < '0' || s[i] > '9') && (s[i] < 'a' || s[i] > 'f') {
			return false
		}
	}
	return true
}

// param returns a path parameter. gin takes it from the raw path where there is
// one, and then it is still escaped.
func (x *exchange) param(name string) string {
	v := x.c.Param(name)
	if x.r.URL.RawPath == "" {
		return v
	}
	if plain, err := url.PathUnescape(v); err == nil {
		return plain
	}
	return v
}

// end recovers from a panic, counts the request and logs it.
func (x *exchange) end() {
	if p := recover(); p != nil {
		x.recovered(p)
	}
	status := x.c.Writer.Status()
	x.route.metrics.count(status)
	level := slog.LevelDebug
	switch {
	case status >= http.StatusInternalServerError:
		level = slog.LevelWarn
	case status >= http.StatusBadRequest && status != http.StatusConflict:
		level = slog.LevelInfo // a conflict is an ordinary answer, and under contention the most frequent
	}
	ctx := context.Background() // the request's may have ended, and a log record is due all the same
	if !x.h.service.logger.Enabled(ctx, level) {
		return
	}
	namespace := ""
	if x.call.ns != nil {
		namespace = x.call.ns.Name
	}
	x.h.service.logger.LogAttrs(ctx, level, "request",
		slog.String("method", x.route.metrics.method), slog.String("route", x.route.metrics.route),
		slog.Int("status", status), slog.Float64("ms", float64(time.Since(x.start).Microseconds())/1000),
		slog.String("request_id", x.call.RequestID), slog.String("namespace", namespace), slog.String("outcome", x.outcome))
}

// recovered answers for a panic: one defect must not end the other requests, and
// its stack is for the log alone.
func (x *exchange) recovered(p any) {
	if p == http.ErrAbortHandler { //nolint:errorlint // net/http compares it so as well
		panic(p)
	}
	x.h.service.logger.Error("panic", "request_id", x.call.RequestID, "route", x.route.path, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
	if x.c.Writer.Written() {
		panic(http.ErrAbortHandler) // half a reply must not look like a whole one
	}
	x.fail(refuse(api.CodeInternal, "the gateway met a defect; its log has more"))
}
