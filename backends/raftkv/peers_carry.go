package raftkv

import (
	"bytes"
	"context"
	"net/http"
	"runtime"
	"runtime/debug"
	"time"
)

// peerCall carries out a call of a peer. It returns the status, as of HTTP, and
// with 200 the answer.
type peerCall func(ctx context.Context, timeLeft time.Duration, body []byte) (status int, answer []byte)

// carry carries out calls that came together, and answers each as soon as its
// answer is there.
func (p *PeerHandler) carry(w http.ResponseWriter, r *http.Request) {
	body, ok := p.body(w, r, maxCall+maxCarriedBytes)
	var calls []carriedCall
	if !ok || !p.decode(w, r, body, &calls) {
		return
	}
	answers := make(chan carriedAnswer, len(calls))
	for i := range calls {
		go func() {
			answers <- p.carryOne(r.Context(), uint32(i), &calls[i])
		}()
	}
	w.Header().Set("Content-Type", callMediaType)
	flusher := http.NewResponseController(w)
	buf := new(bytes.Buffer)
	for left := len(calls); left > 0; {
		p.encode(buf, <-answers)
		left--
		// The log answers many at once, and what is ready goes in one frame.
		runtime.Gosched()
		for range len(answers) {
			p.encode(buf, <-answers)
			left--
		}
		_, _ = w.Write(buf.Bytes()) // a client that went away will not read it
		buf.Reset()
		if left > 0 {
			_ = flusher.Flush() // as above
		}
	}
}

func (p *PeerHandler) carryOne(ctx context.Context, i uint32, c *carriedCall) (a carriedAnswer) {
	defer func() {
		// As net/http does for a call that came alone: unknown, for whoever asked.
		if cause := recover(); cause != nil {
			p.engine.log.Error("raftkv: a call of a peer panicked", "call", c.Verb, "cause", cause, "stack", string(debug.Stack()))
			a = carriedAnswer{Call: i, Status: http.StatusInternalServerError}
		}
	}()
	call := p.calls[c.Verb]
	if call == nil {
		return carriedAnswer{Call: i, Status: http.StatusNotFound}
	}
	if !isTimeLeft(c.TimeLeft) {
		return carriedAnswer{Call: i, Status: http.StatusBadRequest}
	}
	status, body := call(ctx, time.Duration(c.TimeLeft)*time.Microsecond, c.Body)
	return carriedAnswer{Call: i, Status: status, Body: body}
}

func (p *PeerHandler) encode(to *bytes.Buffer, a carriedAnswer) {
	if err := p.engine.wire.enc.MarshalToBuffer(a, to); err != nil {
		p.engine.log.Error("raftkv: an answer cannot be encoded", "err", err)
		panic(http.ErrAbortHandler) // unknown, for whoever asked
	}
}
