package raftkv

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"leased/contract"
)

// lateGrace is how long after its end a call waits for the answer of the leader,
// which knows the deadline too: it says more than "unknown". It is less than
// contract.AnswerSlack.
const lateGrace = contract.AnswerSlack * 3 / 4

// Why the answer of a leader is waited for no longer.
var (
	errLate       error = constError("the leader did not answer in time")
	errLeaderGone error = constError("the leader leads no longer and did not answer")
	errCallerGone error = constError("the caller went away")
)

// errRefused says that the leader does not take a call.
var errRefused error = constError("the leader refuses the call")

type constError string

func (e constError) Error() string { return string(e) }

// ask has the node that leads in era carry out the call.
func (o *operation[R, T]) ask(ctx context.Context, era *era) (T, error) {
	var none T
	e := o.f.engine
	body, err := e.wire.encode(o.request())
	if err != nil {
		return none, contract.Errorf(contract.CodeInternal, err, "the call cannot be encoded")
	}
	status, answer, err := o.send(ctx, era, body)
	switch {
	case isNotSent(err):
		return none, unavailable(err, "the node that leads cannot be reached")
	case err != nil || status >= http.StatusInternalServerError:
		if err == nil {
			err = fmt.Errorf("status %d", status)
		}
		return none, o.lost(ctx, err)
	case status == http.StatusMisdirectedRequest:
		return none, notLeading()
	case status != http.StatusOK:
		if !era.refused.Swap(true) { // one line, not one a call
			e.log.Warn("raftkv: the leader refuses a call: is it of another release?",
				"leader", era.leader, "call", o.verb, "status", status, "reason", strings.TrimSpace(string(answer)))
		}
		return none, unavailable(errRefused, "the node that leads does not take this call; are all nodes of the same release?")
	}
	var a wireAnswer[T]
	if err := e.wire.answers.Unmarshal(answer, &a); err != nil {
		return none, o.lost(ctx, fmt.Errorf("read the leader's answer: %w", err))
	}
	return a.Answer, o.verdict(&a)
}

// send sends a call: one that waits, or of which the answer may be large, alone,
// so that it holds up nobody.
func (o *operation[R, T]) send(ctx context.Context, era *era, body []byte) (status int, answer []byte, err error) {
	e := o.f.engine
	if !o.waits && !o.large {
		return o.carried(ctx, era, body)
	}
	h := http.Header{timeLeftHeader: {timeLeft(ctx)}, "Content-Type": {callMediaType}}
	id := ""
	if o.waits {
		id = rand.Text()
		h.Set(callIDHeader, id)
	}
	patient, done := o.patience(ctx, era, id)
	defer done()
	return e.send(patient, era.leader, o.verb, h, body)
}

// carried sends a call with others. Its answer is waited for as long as patience
// has it, without what a context of its own would cost.
func (o *operation[R, T]) carried(ctx context.Context, era *era, body []byte) (status int, answer []byte, err error) {
	deadline, _ := ctx.Deadline() // begin has set one
	p := &parcel{verb: o.verb, deadline: deadline, body: body}
	c := o.f.engine.carriers
	if !c.put(era.leader, p) {
		return 0, nil, &unsentError{errCallerGone}
	}
	over := ctx.Done()
	var late <-chan time.Time
	var cause error
	for cause == nil {
		select {
		case a := <-p.answers:
			return a.status, a.body, a.err
		case <-era.gone.Done():
			cause = errLeaderGone
		case <-o.f.cut.Done():
			cause = errCallerGone
		case <-late:
			cause = errLate
		case <-over:
			if isGone(ctx) {
				cause = errCallerGone
				break
			}
			over = nil
			late = time.After(time.Until(deadline) + lateGrace)
		}
	}
	a := c.giveUp(era.leader, p, cause)
	return a.status, a.body, a.err
}

func timeLeft(ctx context.Context) string {
	deadline, _ := ctx.Deadline() // begin has set one
	return strconv.FormatInt(microsLeft(deadline), 10)
}

func microsLeft(deadline time.Time) int64 {
	return min(max(0, time.Until(deadline)), contract.MaxDuration).Microseconds()
}

// verdict reads the error of an answer.
func (o *operation[R, T]) verdict(a *wireAnswer[T]) error {
	switch {
	case a.Err == nil && o.waits && o.f.closing.Err() != nil && isConflict(a.Answer):
		return contract.Errorf(contract.CodeClosed, nil,
			"the store closed while this call waited; repeat it with the same request id to keep the place")
	case a.Err != nil && a.Err.Code == contract.CodeClosed:
		// The leader's store, not this one: the next leader's is open.
		return unavailable(a.Err.err(), "the node that leads is stopping")
	}
	return a.Err.err()
}

func isConflict(answer any) bool {
	r, ok := answer.(contract.Result)
	return ok && r.Outcome == contract.OutcomeConflict
}

// lost says what is known of a call whose answer did not come.
func (o *operation[R, T]) lost(ctx context.Context, cause error) error {
	switch {
	case !o.reads && ctx.Err() != nil:
		return contract.Errorf(contract.CodeOutcomeUnknown, cause, "no answer before the deadline; repeat it with the same request id")
	case !o.reads:
		e := contract.Errorf(contract.CodeOutcomeUnknown, cause,
			"the answer of the node that leads was lost; repeat it with the same request id")
		e.RetryAfter = retryAfter
		return e
	case ctx.Err() != nil:
		return contract.Errorf(contract.CodeTimeout, cause, "the deadline passed before the read was answered")
	}
	return unavailable(cause, "the answer of the node that leads was lost")
}

// patience returns the context of a request to the leader of era: it does not end
// with the call, but a little later, so that the leader can say what came of it,
// and it ends when that leader is gone. done must be called after the request.
func (o *operation[R, T]) patience(ctx context.Context, era *era, id string) (patient context.Context, done func()) {
	f := o.f
	patient, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	deadline, _ := ctx.Deadline() // begin has set one
	leave := func() { cancel(errCallerGone) }
	ends := []func() bool{
		context.AfterFunc(era.gone, func() { cancel(errLeaderGone) }),
		context.AfterFunc(f.cut, func() { cancel(errCallerGone) }),
		time.AfterFunc(time.Until(deadline)+lateGrace, func() { cancel(errLate) }).Stop,
	}
	if o.waits {
		leave = func() {
			f.engine.departures.add(era.leader, departure{ID: id, Gone: true})
			time.AfterFunc(lateGrace, func() { cancel(errCallerGone) })
		}
		over := deadline
		if o.over.Before(over) {
			over = o.over
		}
		ends = append(ends, context.AfterFunc(f.closing, leave), time.AfterFunc(time.Until(over)+overGrace, func() {
			f.engine.departures.add(era.leader, departure{ID: id})
		}).Stop)
	}
	ends = append(ends, context.AfterFunc(ctx, func() {
		if isGone(ctx) {
			leave()
		}
	}))
	return patient, func() {
		for _, end := range ends {
			end()
		}
		cancel(nil)
	}
}

// send sends a call to a node and reads the answer whole.
func (e *Engine) send(ctx context.Context, node, verb string, h http.Header, body []byte) (status int, answer []byte, err error) {
	return e.stream(ctx, node, verb, h, bytes.NewReader(body))
}

func (e *Engine) stream(ctx context.Context, node, verb string, h http.Header, body io.Reader) (status int, answer []byte, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+node+callsPath+verb, body)
	if err != nil {
		return 0, nil, err
	}
	r.Header = h
	res, err := e.peers.Transport().RoundTrip(r)
	if err != nil {
		return 0, nil, because(ctx, err)
	}
	defer res.Body.Close()
	if res.ContentLength > maxAnswer {
		return 0, nil, fmt.Errorf("an answer of %d bytes", res.ContentLength)
	}
	buf := new(bytes.Buffer)
	if res.ContentLength > 0 {
		buf.Grow(int(res.ContentLength) + bytes.MinRead)
	}
	switch n, err := buf.ReadFrom(io.LimitReader(res.Body, maxAnswer+1)); {
	case err != nil:
		return 0, nil, because(ctx, err)
	case n > maxAnswer:
		return 0, nil, errors.New("an answer that does not end")
	}
	return res.StatusCode, buf.Bytes(), nil
}

// because prefers the reason for which a request was given up.
func because(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("%w (%w)", context.Cause(ctx), err)
	}
	return err
}

// isNotSent tells that a request certainly did not leave this node.
func isNotSent(err error) bool {
	var e interface{ NotSent() bool }
	return errors.As(err, &e) && e.NotSent()
}
