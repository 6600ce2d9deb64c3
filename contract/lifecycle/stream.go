package lifecycle

import (
	"sync"

	"leased/contract"
)

// Stream is the life of one running Watch. A store's stream embeds it and has
// its Close.
type Stream struct {
	h     *Handle
	once  sync.Once
	ended chan struct{}
}

// Stream starts a stream, which the handle's Close ends. It refuses after Close:
// a Watch that began before must not leave a stream that nobody ends.
func (h *Handle) Stream() (*Stream, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return nil, Closed()
	}
	s := &Stream{h: h, ended: make(chan struct{})}
	h.streams[s] = struct{}{}
	return s, nil
}

// Ended returns a channel that is closed when the stream has ended.
func (s *Stream) Ended() <-chan struct{} { return s.ended }

// Err returns what Next answers once the stream has ended, and nil before.
func (s *Stream) Err() error {
	select {
	case <-s.ended:
		return contract.Errorf(contract.CodeClosed, nil, "the stream is closed")
	default:
		return nil
	}
}

// Close ends the stream, and may be called again.
func (s *Stream) Close() {
	s.end()
	s.h.mu.Lock()
	defer s.h.mu.Unlock()
	delete(s.h.streams, s)
}

func (s *Stream) end() { s.once.Do(func() { close(s.ended) }) }
