package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/hashicorp/raft"
)

// handOverTimeout bounds how long a stopping leader tries to hand leadership over.
const handOverTimeout = time.Second

var errNoSuccessor = errors.New("there is no other voter")

// transfer hands leadership over. raft refuses commands from its start until it
// has succeeded or everything that it started has ended, also long after it gave
// up; so it is only started towards a node that answers, and what it started is
// cut when it fails.
func (n *Node) transfer(ctx context.Context, node string) error {
	target, err := n.successor(ctx, node)
	if err != nil {
		return err
	}
	if target.ID == n.raftID {
		return nil
	}
	if !n.calls.enter() {
		return ErrClosed
	}
	term, _ := n.leads.get()
	done := make(chan error, 1)
	go func() {
		defer n.calls.leave()
		err := n.raft.LeadershipTransferToServer(target.ID, target.Address).Error()
		if err != nil {
			n.port.cut(nodeOf(string(target.ID)))
		}
		done <- err
	}()
	select {
	case err = <-done:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if err != nil {
		return fmt.Errorf("node %s did not take over: %w", nodeOf(string(target.ID)), err)
	}
	return n.waitLeader(ctx, nodeOf(string(target.ID)), term)
}

// successor returns the voter to hand leadership to: node, or the one that has
// most of the log when node is empty. It takes half of ctx's time at most, so that
// a member that is silent leaves some for the transfer.
func (n *Node) successor(ctx context.Context, node string) (raft.Server, error) {
	var best raft.Server
	var have uint64
	found := false
	others := n.others()
	if node != "" {
		others = slices.DeleteFunc(others, func(id string) bool { return id != node })
	}
	commit := n.raft.CommitIndex()
	half, cancel := halfOf(ctx)
	reports := n.survey(half, others)
	cancel()
	why := errNoSuccessor
	for _, s := range n.raft.GetConfiguration().Configuration().Servers {
		id := nodeOf(string(s.ID))
		if node != "" && id != node || node == "" && s.ID == n.raftID {
			continue
		}
		if s.Suffrage != raft.Voter {
			if node != "" {
				return best, invalidChange("node %s is not a voter", node)
			}
			continue
		}
		if s.ID == n.raftID {
			return s, nil
		}
		r := reports[id]
		if r.err == nil && r.ServerID != string(s.ID) {
			r.err = errors.New("its folder was lost")
		}
		if r.err == nil && r.LogError != "" {
			r.err = errors.New("its log cannot be written: " + r.LogError)
		}
		if r.err == nil && !r.has(commit) {
			r.err = fmt.Errorf("it has applied %d of %d entries", r.AppliedIndex, commit)
		}
		if r.err != nil {
			why = fmt.Errorf("node %s cannot take over: %w", id, r.err)
			continue
		}
		if !found || r.LastIndex > have {
			best, have, found = s, r.LastIndex, true
		}
	}
	switch {
	case found:
		return best, nil
	case node != "" && errors.Is(why, errNoSuccessor):
		return best, ErrNoMember
	default:
		return best, refusedChange("%w", why)
	}
}

// halfOf returns a context that ends when half of ctx's time is over.
func halfOf(ctx context.Context) (context.Context, context.CancelFunc) {
	if deadline, ok := ctx.Deadline(); ok {
		return context.WithTimeout(ctx, time.Until(deadline)/2)
	}
	return context.WithCancel(ctx)
}

// waitLeader waits until node leads, as this node hears it, which led in term
// before. raft says that it handed leadership over whenever it lost it.
func (n *Node) waitLeader(ctx context.Context, node string, before uint64) error {
	for {
		leader, changed := n.Leader()
		term, led := n.leads.get()
		switch {
		case term > before:
			return fmt.Errorf("node %s did not take over: this node was elected again", node)
		case leader == node:
			return nil
		case leader != "" && leader != n.cfg.NodeID:
			return fmt.Errorf("node %s was elected instead", leader)
		}
		select {
		case <-changed:
		case <-led:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// handOver is what a leader does before it stops, so that the others need not
// notice its absence first.
func (n *Node) handOver(ctx context.Context) {
	if term, _ := n.leads.get(); term == 0 || soleVoter(n.raft, n.raftID) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, handOverTimeout)
	defer cancel()
	if err := n.changeHere(ctx, &changeRequest{Do: doTransfer}); err != nil {
		n.log.Warn("leadership was not handed over before the stop", "error", err)
	}
}
