package lifecycle

import (
	"context"
	"sync"

	"leased/contract"
)

// Handle counts a store's calls and ends with it. New makes it.
type Handle struct {
	closing chan struct{} // closed by Close
	idle    chan struct{} // closed when the last call has ended after Close
	ended   chan struct{} // closed when the first Close has answered
	err     error         // its answer; read after ended

	mu      sync.Mutex
	closed  bool
	running int
	streams map[*Stream]struct{}
}

// New returns the handle of a store that opens.
func New() *Handle {
	return &Handle{
		closing: make(chan struct{}), idle: make(chan struct{}), ended: make(chan struct{}),
		streams: make(map[*Stream]struct{}),
	}
}

// Closed is the error of what is asked of a store that has ended.
func Closed() *contract.Error {
	return contract.Errorf(contract.CodeClosed, nil, "the store is closed")
}

// Closing returns a channel that Close closes first: calls that wait must leave.
// Die does not: its waiters vanish without leaving.
func (h *Handle) Closing() <-chan struct{} { return h.closing }

// Begin starts a call: it refuses after Close, validates, refuses a context that
// is over, and sets the deadline. The returned function ends the call, and is
// called once.
func (h *Handle) Begin(ctx context.Context, validate func() error) (context.Context, func(), error) {
	h.mu.Lock()
	if h.closed {
		h.mu.Unlock()
		return nil, nil, Closed()
	}
	h.running++
	h.mu.Unlock()
	err := validate()
	if err == nil && ctx.Err() != nil {
		err = contract.NotSubmitted(ctx)
	}
	if err != nil {
		h.end()
		return nil, nil, err
	}
	ctx, cancel := contract.WithDeadline(ctx)
	return ctx, func() { cancel(); h.end() }, nil
}

// end ends a call.
func (h *Handle) end() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.running--; h.closed && h.running == 0 {
		close(h.idle)
	}
}

// Close refuses what begins later, tells who waits, ends the streams, and waits
// for the calls that run until ctx ends. Then it calls goodbye, which may be nil,
// with the same context, and answers the first thing that went wrong. Another
// Close waits for the first one and answers the same; its own context changes
// nothing, since the first one's bounds both.
func (h *Handle) Close(ctx context.Context, goodbye func(context.Context) error) error {
	if !h.close() {
		<-h.ended
		return h.err
	}
	defer close(h.ended)
	select {
	case <-h.idle: // looked at alone: a context that is over must not hide that nothing runs
	default:
		select {
		case <-h.idle:
		case <-ctx.Done():
			h.err = contract.Errorf(contract.CodeTimeout, ctx.Err(), "calls were still running when the store was closed")
		}
	}
	if goodbye != nil {
		if err := goodbye(ctx); err != nil && h.err == nil {
			h.err = err
		}
	}
	return h.err
}

// close begins the end and tells whether this is the first to do so.
func (h *Handle) close() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return false
	}
	h.closed = true
	close(h.closing)
	for s := range h.streams {
		s.end()
	}
	if h.running == 0 {
		close(h.idle)
	}
	return true
}

// Die ends the handle as the death of its process would: nothing begins any
// more, and nobody is told or waited for. A later Close has nothing to do; one
// that runs goes on.
func (h *Handle) Die() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return
	}
	h.closed = true
	if h.running == 0 {
		close(h.idle)
	}
	close(h.ended)
}
