package raftkv

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// maxCarried bounds the calls that travel together, maxCarriedBytes the sum of
	// their requests: whatever fits alone fits.
	maxCarried      = 256
	maxCarriedBytes = maxCall
	// carryPause is after how long the next batch is sent although calls of the last
	// one have no answer: it must not wait for one that takes its time.
	carryPause = 5 * time.Millisecond
)

// carriers gather calls to the node that leads and send them together: an HTTP/2
// request for each cost more than all else that a forwarded call does.
//
// One batch at a time is on its way: the leader's log takes one batch at a time as
// well, where a call that came earlier would wait.
type carriers struct {
	engine *Engine

	mu sync.Mutex
	to map[string]*carrier // by leader
}

// carrier has the calls to one node.
type carrier struct {
	queue []*parcel
	busy  bool // a batch is being made or is on its way
}

// parcel is a call on its way.
type parcel struct {
	verb     string
	deadline time.Time
	body     []byte
	answers  chan parcelAnswer // gets one, unless nobody waits for it any more
	flight   *flight           // nil while it is in the queue
	// counted: it is off flight.left. An answer can come while its caller gives up.
	counted atomic.Bool
}

// over takes the call off those that its flight is for, and tells whether it was the
// last of them.
func (p *parcel) over() bool {
	return p.counted.CompareAndSwap(false, true) && p.flight.left.Add(-1) == 0
}

type parcelAnswer struct {
	status int
	body   []byte
	err    error
}

// flight is a batch that was sent. It is given up when nobody waits for any of it.
type flight struct {
	left   atomic.Int64 // calls without an answer for which somebody waits
	cancel context.CancelFunc
}

func newCarriers(e *Engine) *carriers {
	return &carriers{engine: e, to: make(map[string]*carrier)}
}

// unsentError is why a call did not leave this node.
type unsentError struct{ cause error }

func (e *unsentError) Error() string { return "the call was not sent: " + e.cause.Error() }
func (e *unsentError) Unwrap() error { return e.cause }

// NotSent tells that it is certain.
func (e *unsentError) NotSent() bool { return true }

// errAnswer is an answer that nobody asked for.
var errAnswer error = constError("an answer that was not to be expected")

// giveUp says what is known of a call of which the answer is waited for no longer.
func (c *carriers) giveUp(leader string, p *parcel, cause error) parcelAnswer {
	if c.remove(leader, p) {
		return parcelAnswer{err: &unsentError{cause}}
	}
	// Without one it was answered in the queue, as the engine closed.
	if p.flight != nil && p.over() {
		p.flight.cancel()
	}
	select {
	case a := <-p.answers: // both were ready
		return a
	default:
		return parcelAnswer{err: cause}
	}
}

// put queues a call. It returns false when the engine is closed.
func (c *carriers) put(leader string, p *parcel) bool {
	p.answers = make(chan parcelAnswer, 1)
	c.mu.Lock()
	defer c.mu.Unlock()
	to := c.to[leader]
	if to == nil {
		to = new(carrier)
		c.to[leader] = to
	}
	to.queue = append(to.queue, p)
	if to.busy {
		return true
	}
	to.busy = c.engine.start(func() { c.run(leader) })
	if !to.busy {
		to.queue = nil
	}
	return to.busy
}

// remove tells whether p was still in the queue, and now is not.
func (c *carriers) remove(leader string, p *parcel) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	to := c.to[leader]
	i := slices.Index(to.queue, p)
	if i < 0 {
		return false
	}
	to.queue = slices.Delete(to.queue, i, i+1)
	return true
}

// run sends what is in the queue. Whoever can run now runs first: on a busy node
// those who are about to call get into this batch, on an idle one it is nobody.
func (c *carriers) run(leader string) {
	runtime.Gosched()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	batch := c.take(leader, cancel)
	next := sync.OnceFunc(func() { c.next(leader) })
	defer next()
	if len(batch) == 0 {
		return // they gave up meanwhile
	}
	defer time.AfterFunc(carryPause, next).Stop()
	answered, err := c.send(ctx, leader, batch)
	for i, p := range batch {
		if !answered[i] {
			p.answers <- parcelAnswer{err: err}
		}
	}
}

// take returns the next batch.
func (c *carriers) take(leader string, cancel context.CancelFunc) []*parcel {
	c.mu.Lock()
	defer c.mu.Unlock()
	to := c.to[leader]
	n, size := 0, 0
	for ; n < min(len(to.queue), maxCarried); n++ {
		if size += len(to.queue[n].body); n > 0 && size > maxCarriedBytes {
			break
		}
	}
	batch := slices.Clone(to.queue[:n])
	to.queue = slices.Delete(to.queue, 0, n)
	f := &flight{cancel: cancel}
	f.left.Store(int64(n))
	for _, p := range batch {
		p.flight = f
	}
	return batch
}

// next sends the next batch if there is one.
func (c *carriers) next(leader string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	to := c.to[leader]
	to.busy = len(to.queue) > 0 && c.engine.start(func() { c.run(leader) })
	if to.busy {
		return
	}
	for _, p := range to.queue { // the engine is closed
		p.answers <- parcelAnswer{err: &unsentError{errCallerGone}}
	}
	to.queue = nil
}

// send sends a batch and hands its answers out as they come. It returns which
// calls have theirs, and what is known of the others.
func (c *carriers) send(ctx context.Context, leader string, batch []*parcel) (answered []bool, err error) {
	answered = make([]bool, len(batch))
	count := 0
	answer := func(i int, a parcelAnswer) {
		answered[i] = true
		count++
		if p := batch[i]; p.over() && count < len(batch) {
			p.flight.cancel() // the callers of the rest have gone
		}
		batch[i].answers <- a
	}
	calls := make([]carriedCall, len(batch))
	for i, p := range batch {
		calls[i] = carriedCall{Verb: p.verb, TimeLeft: microsLeft(p.deadline), Body: p.body}
	}
	w := &c.engine.wire
	body := new(bytes.Buffer)
	if err := w.enc.MarshalToBuffer(calls, body); err != nil {
		return answered, &unsentError{err}
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+leader+callsPath+carryVerb, bytes.NewReader(body.Bytes()))
	if err != nil {
		return answered, &unsentError{err}
	}
	r.Header.Set("Content-Type", callMediaType)
	res, err := c.engine.peers.Transport().RoundTrip(r)
	if err != nil {
		return answered, err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		for i := range batch {
			answer(i, parcelAnswer{status: res.StatusCode})
		}
		return answered, nil
	}
	d := w.answers.NewDecoder(io.LimitReader(res.Body, maxAnswer))
	for {
		var a carriedAnswer
		switch err := d.Decode(&a); {
		case errors.Is(err, io.EOF):
			return answered, io.ErrUnexpectedEOF // for those without
		case err != nil:
			return answered, err
		case a.Call >= uint32(len(batch)) || answered[a.Call]:
			return answered, fmt.Errorf("%w: to call %d of %d", errAnswer, a.Call, len(batch))
		}
		answer(int(a.Call), parcelAnswer{status: a.Status, body: a.Body})
	}
}
