package memstore

import (
	"context"
	"sync"

	"leased/contract"
)

// stream reads the namespace's newest events from its own cursor on. It holds
// none, so that a reader who stops costs nothing and blocks nobody.
type stream struct {
	s       *Store
	request contract.WatchRequest
	cursor  uint64

	once   sync.Once
	closed chan struct{}
}

// Next implements contract.Stream.
func (st *stream) Next(ctx context.Context) (contract.Event, error) {
	b := st.s.b
	for {
		select {
		case <-st.closed:
			return contract.Event{}, contract.Errorf(contract.CodeClosed, nil, "the stream is closed")
		default:
		}
		b.mu.Lock()
		changed := b.changed
		b.mu.Unlock()
		a, err := b.do(st.s, Read{Request: st.request, Cursor: st.cursor})
		if err != nil {
			return contract.Event{}, err
		}
		st.cursor = a.Cursor
		if a.Event != nil {
			return *a.Event, nil
		}
		select {
		case <-changed:
		case <-st.closed:
		case <-ctx.Done():
			return contract.Event{}, contract.Errorf(contract.CodeTimeout, context.Cause(ctx), "no event before the deadline")
		}
	}
}

// Cursor implements contract.Stream.
func (st *stream) Cursor() string { return eventID(st.cursor) }

// Close implements contract.Stream.
func (st *stream) Close() { st.once.Do(func() { close(st.closed) }) }
