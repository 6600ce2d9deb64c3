package cluster

import (
	"context"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// Confirm returns nil when this node led at some moment after the call began and
// the FSM has seen everything that was committed before that moment: what it
// answers then is not stale.
//
// Calls that come while a majority is being asked share the next round, never
// the running one, whose answers may be older than they are. Where this node has
// the only vote there is nobody to ask, and Confirm costs no disk access.
//
// Errors: ErrClosed; raft.ErrNotLeader and raft.ErrLeadershipLost, wrapped; the
// cause of ctx's end, wrapped.
func (n *Node) Confirm(ctx context.Context) error {
	if !n.calls.enter() {
		return ErrClosed
	}
	defer n.calls.leave()
	index, err := n.confirmed(ctx)
	if err == nil {
		err = n.machine.wait(ctx, index)
	}
	if err != nil {
		return fmt.Errorf("confirm leadership: %w", err)
	}
	return nil
}

// confirmed returns the index up to which everything was committed at a moment
// at which this node led.
func (n *Node) confirmed(ctx context.Context) (uint64, error) {
	for {
		term, changed := n.leads.get()
		switch {
		case term != 0:
			if soleVoter(n.raft, n.raftID) {
				return n.leaderIndex(term)
			}
			return n.rounds.join(ctx)
		case n.raft.State() != raft.Leader:
			return 0, raft.ErrNotLeader
		}
		// Elected, and the FSM has not caught up yet.
		select {
		case <-changed:
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		}
	}
}

// leaderIndex returns the commit index if raft still leads in term.
func (n *Node) leaderIndex(term uint64) (uint64, error) {
	// In this order: a node that leads in a later term than the one in which it
	// was asked has a no-op that the FSM may not have seen.
	index := n.raft.CommitIndex()
	if n.raft.State() != raft.Leader || n.raft.CurrentTerm() != term {
		return 0, raft.ErrNotLeader
	}
	return index, nil
}

// ask has a majority confirm that this node leads.
func (n *Node) ask() (uint64, error) {
	term, _ := n.leads.get()
	if term == 0 {
		return 0, raft.ErrNotLeader
	}
	index, err := n.leaderIndex(term)
	if err != nil {
		return 0, err
	}
	if err := n.askTerms(term); err != nil {
		return 0, err
	}
	if _, err := n.leaderIndex(term); err != nil {
		return 0, err
	}
	return index, nil
}

// askTerms returns nil when a majority has said, after the call, that it knows of
// no term later than term: nobody else had been elected before.
//
// raft's own VerifyLeader can be answered by the past. It counts any reply of a
// follower that arrives after the question, also one to a heartbeat from before; a
// leader that was stopped with a reply in its socket would confirm itself when it
// wakes, although another leads by then.
func (n *Node) askTerms(term uint64) error {
	for {
		switch sure, err := n.askTermsOnce(term); {
		case err != nil:
			return err
		case sure:
			return nil
		}
		// raft notices within leaseTimeout that there is no majority.
		if _, err := n.leaderIndex(term); err != nil {
			return raft.ErrLeadershipLost
		}
		<-time.After(termRetry) // a node that stops waits for who asks
	}
}

func (n *Node) askTermsOnce(term uint64) (bool, error) {
	ctx, cancel := context.WithTimeout(context.Background(), leaseTimeout)
	defer cancel() // also ends the questions that nobody waits for any more
	voters, said := 0, 0
	answers := make(chan uint64, len(n.raft.GetConfiguration().Configuration().Servers))
	asked := 0
	for _, s := range n.raft.GetConfiguration().Configuration().Servers {
		if s.Suffrage != raft.Voter {
			continue
		}
		voters++
		if s.ID == n.raftID {
			said++
			continue
		}
		asked++
		go func() {
			a := new(termAnswer)
			if err := n.askPeer(ctx, nodeOf(string(s.ID)), pathTerm, nil, a); err != nil || a.ServerID != string(s.ID) {
				a.Term = math.MaxUint64 // nothing was said
			}
			answers <- a.Term
		}()
	}
	for range asked {
		if said > voters/2 {
			break
		}
		select {
		case t := <-answers:
			switch {
			case t <= term:
				said++
			case t != math.MaxUint64:
				return false, raft.ErrLeadershipLost
			}
		case <-ctx.Done():
			return false, nil
		}
	}
	return said > voters/2, nil
}

// rounds lets many callers share one question to the majority.
type rounds struct {
	// ask answers for a moment between its call and its return.
	ask func() (uint64, error)
	// asking counts the goroutine that asks.
	asking *gate

	mu      sync.Mutex
	running bool
	next    *round // the one that has not started; nil when nobody waits for it
}

type round struct {
	done  chan struct{}
	index uint64
	err   error
}

// join waits for the first round that starts after the call.
func (r *rounds) join(ctx context.Context) (uint64, error) {
	mine, err := r.register()
	if err != nil {
		return 0, err
	}
	select {
	case <-mine.done:
		return mine.index, mine.err
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
}

func (r *rounds) register() (*round, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.next == nil {
		r.next = &round{done: make(chan struct{})}
	}
	mine := r.next
	if !r.running {
		if !r.asking.enter() {
			return nil, ErrClosed
		}
		r.running = true
		go func() {
			defer r.asking.leave()
			r.run()
		}()
	}
	return mine, nil
}

// run asks until nobody waits for a next round.
func (r *rounds) run() {
	for {
		r.mu.Lock()
		mine := r.next
		r.next = nil
		r.running = mine != nil
		r.mu.Unlock()
		if mine == nil {
			return
		}
		mine.index, mine.err = r.ask()
		close(mine.done)
	}
}
