package gateway

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/go-json-experiment/json"

	"leased/contract"
	"leased/gateway/api"
)

const (
	// writeTimeout bounds the writing of one reply: it may take at least half of
	// this and at most all of it. There is no timeout on the
	// whole connection: it would cut the waits.
	writeTimeout = 30 * time.Second
	// maxReply is how large a buffer may be to be kept for the next reply.
	maxReply = 64 << 10 // bytes
	// replySize is room for a lease, which is what most replies are.
	replySize = 1 << 10 // bytes
)

func newReply() any { return new(bytes.Buffer) }

// reply writes v as what was asked for.
func (x *exchange) reply(v any) error {
	return x.write(http.StatusOK, x.h.json, x.encode(v))
}

// encode returns the encoder of v for write.
func (x *exchange) encode(v any) func(*bytes.Buffer) ([]byte, error) {
	return func(buf *bytes.Buffer) ([]byte, error) {
		err := json.MarshalWrite(buf, v, x.h.encode)
		return buf.Bytes(), err
	}
}

// write sends what encode makes with the empty buffer that it is given. All is
// encoded before anything is sent: what cannot be is still a 500.
func (x *exchange) write(status int, contentType []string, encode func(*bytes.Buffer) ([]byte, error)) error {
	buf, ok := x.h.replies.Get().(*bytes.Buffer)
	if !ok {
		return errors.New("gateway: the pool of replies holds something else")
	}
	buf.Reset()
	buf.Grow(replySize)
	defer func() {
		if buf.Cap() <= maxReply {
			x.h.replies.Put(buf)
		}
	}()
	body, err := encode(buf)
	if err != nil {
		return fmt.Errorf("gateway: encode the reply: %w", err)
	}
	x.send(status, contentType, body)
	return nil
}

func (x *exchange) send(status int, contentType []string, body []byte) {
	header := x.c.Writer.Header()
	header["Content-Type"] = contentType
	header["Cache-Control"] = x.h.noStore
	header["X-Content-Type-Options"] = x.h.noSniff
	header["Content-Length"] = []string{strconv.Itoa(len(body))}
	x.limitWrite()
	x.c.Writer.WriteHeader(status)
	// An error says that the client is gone; the answer is in the store.
	_, _ = x.c.Writer.Write(body)
}

func (x *exchange) limitWrite() {
	x.limitRest()
	now := time.Now()
	if !x.connection().limitDue(now) {
		return
	}
	// An error says that the writer, as a test's, has no connection below it.
	_ = http.NewResponseController(x.c.Writer).SetWriteDeadline(now.Add(writeTimeout))
}

// connection is what is known of a connection from one request to the next. In
// HTTP/1 they come one after the other; in HTTP/2 each has deadlines of its own.
type connection struct {
	limited time.Time // when the write deadline was set last
	conn    net.Conn  // nil where requests share it
}

// forget makes the end of the connection throw away what was not sent yet. The
// system would otherwise keep it, a megabyte or more, and offer it for minutes to
// a client that does not read.
func (c *connection) forget() {
	conn := c.conn
	if secured, ok := conn.(*tls.Conn); ok {
		conn = secured.NetConn()
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // an error says that it is gone already
	}
}

type connectionKey struct{}

// connection returns what is known of the connection: nothing, where requests
// share it or there is none.
func (x *exchange) connection() *connection {
	if c, ok := x.r.Context().Value(connectionKey{}).(*connection); ok && x.r.ProtoMajor == 1 {
		return c
	}
	return new(connection)
}

// limitDue tells whether the deadline for writing has to be set anew. It stands
// until it is, and to move it costs more than all else that a reply's header
// does, so a busy connection's is left alone while more than half of it is to come.
func (c *connection) limitDue(now time.Time) bool {
	if now.Sub(c.limited) < writeTimeout/2 {
		return false
	}
	c.limited = now
	return true
}

// fail answers with the problem that err is.
func (x *exchange) fail(err error) {
	_, isRefusal := errors.AsType[*refusal](err)
	if _, isKnown := errors.AsType[*contract.Error](err); !isKnown && !isRefusal {
		x.h.service.logger.Error("defect", "request_id", x.call.RequestID, "error", err)
	}
	x.problem(problemOf(err, x.call.RequestID))
}

func (x *exchange) problem(p *api.Problem) {
	x.outcome = string(p.Code)
	if p.RetryAfterMS > 0 {
		x.c.Writer.Header().Set("Retry-After", strconv.FormatInt((p.RetryAfterMS+999)/1000, 10))
	}
	if p.Code == api.CodeUnauthenticated {
		x.c.Writer.Header().Set("WWW-Authenticate", "Bearer")
	}
	if err := x.write(p.Status, x.h.problem, x.encode(p)); err != nil {
		x.h.service.logger.Error("reply", "request_id", x.call.RequestID, "error", err)
		x.c.Writer.WriteHeader(http.StatusInternalServerError)
	}
}

// answer writes what an operation on a lease answered: the lease, or why not.
func (x *exchange) answer(res *contract.Result, err error) error {
	switch {
	case err != nil:
		return err
	case !res.Outcome.OK():
		x.problem(outcomeProblem(res, x.call.RequestID))
		return nil
	case res.Lease == nil:
		return fmt.Errorf("gateway: the store answered %v without the lease", res.Outcome)
	}
	x.outcome = res.Outcome.String()
	return x.write(api.StatusOfOutcome(res.Outcome), x.h.json, func(buf *bytes.Buffer) ([]byte, error) {
		return api.AppendLeaseReply(buf.AvailableBuffer(), res.Outcome, res.Lease, res.Replayed)
	})
}

// outcomeProblem returns a refusal for the wire.
func outcomeProblem(res *contract.Result, requestID string) *api.Problem {
	p := api.NewProblem(api.CodeOfOutcome(res.Outcome), requestID, outcomeDetail(res))
	switch res.Outcome {
	case contract.OutcomeConflict:
		queue := api.NewQueue(res.Queue)
		p.Queue = &queue
		if res.Lease != nil {
			p.Holder = api.NewHolder(res.Lease)
		}
	case contract.OutcomeEndedExpired, contract.OutcomeEndedReleased, contract.OutcomeEndedRevoked:
		p.Replayed = res.Replayed
		if res.Lease != nil {
			p.Lease = api.NewLease(res.Lease)
		}
	default: // the code says it all
	}
	return p
}

func outcomeDetail(res *contract.Result) string {
	switch res.Outcome {
	case contract.OutcomeConflict:
		if l := res.Lease; l != nil {
			return fmt.Sprintf("%s (instance %s) holds the key, for another %d ms unless it renews or releases",
				l.Owner, l.Instance, l.ExpiresIn.Milliseconds())
		}
		return "the key is held"
	case contract.OutcomeNotFound:
		return "nothing is remembered under this id"
	case contract.OutcomeNotOwner:
		return "the lease belongs to another owner or instance"
	case contract.OutcomeStaleToken:
		return "this is not the token of the lease, or not the latest one of the key; stop what was done under it"
	case contract.OutcomeEndedExpired:
		return "the lease is over: nobody renewed it in time; acquire again under a new request id"
	case contract.OutcomeEndedReleased:
		return "the lease is over: it was released; acquire again under a new request id"
	case contract.OutcomeEndedRevoked:
		return "the lease is over: it was revoked; stop what was done under it"
	case contract.OutcomeRequestIDReused:
		return "this Idempotency-Key named a request with other contents; a new request needs a new one"
	case contract.OutcomeQuotaExceeded:
		return "the namespace's quota " + res.Limit + " is used up"
	default:
		return "the store gave an answer that the gateway does not know"
	}
}
