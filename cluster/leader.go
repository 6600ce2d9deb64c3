package cluster

import (
	"sync"

	"github.com/hashicorp/raft"
)

// leaderWatch knows who leads, as far as this node has heard.
type leaderWatch struct {
	raft     *raft.Raft
	observer *raft.Observer
	stop     chan struct{}
	stopped  chan struct{}

	mu      sync.Mutex
	id      string
	changed chan struct{}
}

func watchLeader(r *raft.Raft) *leaderWatch {
	// raft drops what does not fit. That loses nothing: each notice only makes the
	// leader be looked up again.
	notices := make(chan raft.Observation, 1)
	w := &leaderWatch{
		raft: r, stop: make(chan struct{}), stopped: make(chan struct{}), changed: make(chan struct{}),
		observer: raft.NewObserver(notices, false, func(o *raft.Observation) bool {
			_, ok := o.Data.(raft.LeaderObservation)
			return ok
		}),
	}
	r.RegisterObserver(w.observer)
	w.look()
	go func() {
		defer close(w.stopped)
		for {
			select {
			case <-notices:
				w.look()
			case <-w.stop:
				return
			}
		}
	}()
	return w
}

func (w *leaderWatch) look() {
	_, server := w.raft.LeaderWithID()
	id := nodeOf(string(server))
	w.mu.Lock()
	defer w.mu.Unlock()
	if id == w.id {
		return
	}
	w.id = id
	close(w.changed)
	w.changed = make(chan struct{})
}

func (w *leaderWatch) close() error {
	w.raft.DeregisterObserver(w.observer)
	close(w.stop)
	<-w.stopped
	return nil
}

// Leader returns the id of the node that leads as far as this node knows, empty
// when it knows of none, and a channel that is closed at the next change of that
// answer. The leader itself says its own id from its election on, which is before
// it has applied its log: see Leadership.
func (n *Node) Leader() (id string, changed <-chan struct{}) {
	n.leader.mu.Lock()
	defer n.leader.mu.Unlock()
	return n.leader.id, n.leader.changed
}
