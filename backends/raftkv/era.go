package raftkv

import (
	"context"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// Peers is what the store needs of the cluster that its node is a member of.
type Peers interface {
	// Leader returns the id of the node that leads as far as this one knows, ""
	// when it knows of none, and a channel that is closed when that changes.
	Leader() (id string, changed <-chan struct{})
	// Transport sends a request for http://<node id>/<path> to the PeerHandler of
	// that node. Errors from before anything was sent have a method NotSent() bool
	// that tells true.
	Transport() http.RoundTripper
}

// answerGrace is how long an answer of a leader that leads no longer is waited
// for: it may be on its way.
const answerGrace = 100 * time.Millisecond

// era is the time in which one node leads, as far as this one knows.
type era struct {
	leader string // "" while nobody is known to lead
	// over is closed when it ends, gone is done answerGrace later.
	over chan struct{}
	gone context.Context //nolint:containedctx // the life of a leader, for context.AfterFunc
	end  context.CancelFunc
	// refused tells that its leader refused a call, and that this was logged.
	refused atomic.Bool
}

// eras follows who leads, for all calls of a node.
type eras struct {
	mu  sync.Mutex
	now *era
}

func newEras() *eras { return &eras{now: newEra("")} }

func newEra(leader string) *era {
	gone, end := context.WithCancel(context.Background())
	return &era{leader: leader, over: make(chan struct{}), gone: gone, end: end}
}

func (s *eras) get() *era {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now
}

// follow works until ctx ends.
func (s *eras) follow(ctx context.Context, leads func() (string, <-chan struct{})) {
	for {
		leader, changed := leads()
		s.turn(leader)
		select {
		case <-changed:
		case <-ctx.Done():
			// Nobody is left: stores are closed before the engine.
			s.get().end()
			return
		}
	}
}

func (s *eras) turn(leader string) {
	s.mu.Lock()
	before := s.now
	if before.leader == leader {
		s.mu.Unlock()
		return
	}
	s.now = newEra(leader)
	s.mu.Unlock()
	close(before.over)
	time.AfterFunc(answerGrace, before.end)
}
