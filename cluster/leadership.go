package cluster

import (
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// termRetry is the pause before a barrier that was refused is tried again.
const termRetry = 20 * time.Millisecond

// leadership is the term in which this node leads and may say so.
type leadership struct {
	mu      sync.Mutex
	term    uint64
	changed chan struct{}
	// turn counts raft's notices, so that whoever confirms a term notices that it
	// has been overtaken.
	turn uint64
}

func newLeadership() *leadership {
	return &leadership{changed: make(chan struct{})}
}

func (l *leadership) get() (term uint64, changed <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.term, l.changed
}

// begin starts a new turn, in which this node does not lead until confirm.
func (l *leadership) begin() (turn uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.turn++
	l.set(0)
	return l.turn
}

// confirm makes term known, unless turn is over.
func (l *leadership) confirm(turn, term uint64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.turn != turn {
		return false
	}
	l.set(term)
	return true
}

func (l *leadership) current(turn uint64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.turn == turn
}

func (l *leadership) set(term uint64) {
	if l.term == term {
		return
	}
	l.term = term
	close(l.changed)
	l.changed = make(chan struct{})
}

// Leadership returns the term in which this node leads, 0 when it does not lead,
// and a channel that is closed at the next change of that answer.
//
// A term is reported once the entries of all earlier terms, and the first of its
// own, were applied to the FSM. It can be out of date when it is returned:
// another node may already lead. Propose and Confirm notice, Leadership does not.
func (n *Node) Leadership() (term uint64, changed <-chan struct{}) {
	return n.leads.get()
}

// watch follows raft's notices until stop is closed. It must not wait for
// anything else: raft's main loop stands still while a notice is not taken.
func (n *Node) watch(notices <-chan bool, stop <-chan struct{}) {
	for {
		select {
		case leads := <-notices:
			before, _ := n.leads.get()
			turn := n.leads.begin()
			if before != 0 {
				n.log.Info("node leads no longer", "term", before)
			}
			if leads && n.terms.enter() {
				go func() {
					defer n.terms.leave()
					n.confirmTerm(turn)
				}()
			}
		case <-stop:
			n.leads.begin()
			return
		}
	}
}

// confirmTerm makes the term known in which this node was just elected, once the
// FSM has seen everything before it. raft reports itself leader long before
// that, while it still has a log to apply.
func (n *Node) confirmTerm(turn uint64) {
	for n.leads.current(turn) {
		before := n.raft.CurrentTerm()
		barrier := n.raft.Barrier(0)
		err := barrier.Error()
		if err == nil {
			if entry, ok := barrier.(raft.IndexFuture); ok {
				n.machine.advance(entry.Index())
			}
			// The barrier was written in some term from before to after in which this
			// node led. If there is only one, it is that one; else raft has sent
			// another notice.
			if n.raft.CurrentTerm() == before && n.leads.confirm(turn, before) {
				n.log.Info("node leads", "term", before, "applied_index", n.machine.applied.Load())
			}
			return
		}
		// Mostly leadership was lost again, and a notice ends this turn. A transfer
		// that is under way refuses barriers too, and may fail.
		n.log.Debug("barrier at the start of a term", "error", err)
		select {
		case <-time.After(termRetry):
		case <-n.stopping:
			return
		}
	}
}
