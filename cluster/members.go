package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/hashicorp/raft"
)

const (
	// promoteLag is how many entries a node may lack when it becomes a voter: what
	// it lacks it gets in less than a heartbeat.
	promoteLag = 1024

	doAdd      = "add"
	doRemove   = "remove"
	doTransfer = "transfer"
)

// ErrNoMember says that no node with this id is in the cluster.
var ErrNoMember = errors.New("no such member")

// ErrUnreachable says that a node could not be made a member because it does not
// answer. Nothing was changed.
var ErrUnreachable = errors.New("it cannot be reached")

// ErrInvalid says that a change of the members makes no sense, and ErrRefused that it
// could not be made as the cluster was. Nothing was changed.
var (
	ErrInvalid = errors.New("invalid change")
	ErrRefused = errors.New("change refused")
)

// refusedError is an error of one of these kinds with a text of its own.
type refusedError struct {
	kind error
	err  error
}

// Error implements error.
func (e *refusedError) Error() string { return e.err.Error() }

// Unwrap returns the kind, and why.
func (e *refusedError) Unwrap() []error { return []error{e.kind, e.err} }

func invalidChange(format string, args ...any) error {
	return &refusedError{ErrInvalid, fmt.Errorf(format, args...)}
}

func refusedChange(format string, args ...any) error {
	return &refusedError{ErrRefused, fmt.Errorf(format, args...)}
}

// halfDone hides what kind of error ended a change of which a step was made: that
// this node does not lead, say, means no longer that nothing was changed.
func halfDone(node string, err error) error {
	return fmt.Errorf("node %s was added, and is not a voter yet: %s", node, err.Error())
}

// AddMember makes the node with this id, which must run at address with an empty
// folder or one of this cluster, a member. It can be asked of any node and is done
// by the leader. A voter votes once it has the log; AddMember waits for that. When
// ctx ends first the node has been added or not, see Members, and a node that was
// added becomes a voter by itself. For a member it changes the address, or makes a
// voter of it.
func (n *Node) AddMember(ctx context.Context, id, address string, voter bool) error {
	return n.changeAt(ctx, &changeRequest{Do: doAdd, NodeID: id, Address: address, Voter: voter})
}

// RemoveMember takes a node out of the cluster, which it keeps out of: its process
// goes on and says so. It is refused when most of the voters that would be left do
// not answer, because nothing could be decided afterwards.
func (n *Node) RemoveMember(ctx context.Context, id string) error {
	return n.changeAt(ctx, &changeRequest{Do: doRemove, NodeID: id})
}

// Transfer hands leadership to the voter with this id, or to the one that is best
// prepared when id is empty. It returns nil once that node leads, or leads already.
// Until it returns, Propose at the leader can answer
// raft.ErrLeadershipTransferInProgress, which certainly was not applied.
func (n *Node) Transfer(ctx context.Context, id string) error {
	return n.changeAt(ctx, &changeRequest{Do: doTransfer, NodeID: id})
}

// changeAt has the leader do c.
func (n *Node) changeAt(ctx context.Context, c *changeRequest) error {
	leader, _ := n.Leader()
	var err error
	switch leader {
	case "":
		err = fmt.Errorf("no leader is known: %w", raft.ErrNotLeader)
	case n.cfg.NodeID:
		err = n.changeHere(ctx, c)
	default:
		err = n.askPeer(ctx, leader, pathChange, c, new(struct{}))
	}
	switch {
	case err == nil:
		return nil
	case c.NodeID == "": // a transfer to whoever is best placed
		return fmt.Errorf("%s: %w", c.Do, err)
	}
	return fmt.Errorf("%s member %s: %w", c.Do, c.NodeID, err)
}

// changeHere does c, one after the other.
func (n *Node) changeHere(ctx context.Context, c *changeRequest) error {
	if err := n.changing.take(ctx); err != nil {
		return err
	}
	defer n.changing.free()
	if term, _ := n.leads.get(); term == 0 {
		return raft.ErrNotLeader
	}
	switch c.Do {
	case doAdd:
		return n.add(ctx, c)
	case doRemove:
		return n.remove(ctx, c.NodeID)
	case doTransfer:
		return n.transfer(ctx, c.NodeID)
	default:
		return fmt.Errorf("unknown change %q", c.Do)
	}
}

// server returns a node's entry in raft's newest configuration.
func (n *Node) server(node string) (raft.Server, bool) {
	for _, s := range n.raft.GetConfiguration().Configuration().Servers {
		if nodeOf(string(s.ID)) == node {
			return s, true
		}
	}
	return raft.Server{}, false
}

// reconfigure waits for a change of raft's configuration, until ctx ends; raft
// itself goes on with it.
func (n *Node) reconfigure(ctx context.Context, change func() raft.IndexFuture) error {
	if !n.calls.enter() {
		return ErrClosed
	}
	done := make(chan error, 1)
	go func() {
		defer n.calls.leave()
		done <- change().Error()
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// set gives a server an address and, if it is new or is to vote, a suffrage.
func (n *Node) set(ctx context.Context, server, address string, suffrage raft.ServerSuffrage) error {
	moves := n.moves(raft.ServerID(server), raft.ServerAddress(address))
	if moves {
		n.moving.begin(ctx, raft.ServerID(server), raft.ServerAddress(address))
	}
	err := n.reconfigure(ctx, func() raft.IndexFuture {
		if suffrage == raft.Voter {
			return n.raft.AddVoter(raft.ServerID(server), raft.ServerAddress(address), 0, 0)
		}
		return n.raft.AddNonvoter(raft.ServerID(server), raft.ServerAddress(address), 0, 0)
	})
	if moves && err != nil && ctx.Err() == nil { // otherwise raft goes on with it
		n.moving.abort(raft.ServerID(server), raft.ServerAddress(address))
	}
	return err
}

// moves tells whether a member to which this node sends entries gets another address.
func (n *Node) moves(server raft.ServerID, address raft.ServerAddress) bool {
	return server != n.raftID && slices.ContainsFunc(n.raft.GetConfiguration().Configuration().Servers, func(s raft.Server) bool {
		return s.ID == server && s.Address != address
	})
}

func (n *Node) add(ctx context.Context, c *changeRequest) error {
	if err := checkNodeID(c.NodeID); err != nil {
		return invalidChange("node.id %w", err)
	}
	if c.NodeID == n.cfg.NodeID {
		return invalidChange("node %s is a member: it leads", c.NodeID)
	}
	if n.port == nil {
		return fmt.Errorf("node %s: %w: %w", c.NodeID, ErrUnreachable, errNoPeerPort)
	}
	n.book.tell(c.NodeID, c.Address)
	r := n.survey(ctx, []string{c.NodeID})[c.NodeID]
	if r.err != nil {
		return fmt.Errorf("node %s at %s: %w: %w", c.NodeID, c.Address, ErrUnreachable, r.err)
	}
	if err := n.installSelf(ctx); err != nil {
		return err
	}
	if old, ok := n.server(c.NodeID); ok && string(old.ID) == r.ServerID && old.Suffrage == raft.Voter && !c.Voter {
		return invalidChange("node %s votes: remove it, and add it without a vote when it has an empty folder", c.NodeID)
	}
	for _, s := range n.raft.GetConfiguration().Configuration().Servers {
		if other := nodeOf(string(s.ID)); other != c.NodeID && string(s.Address) == c.Address {
			return invalidChange("node %s has the address %s", other, c.Address) // raft would refuse it
		}
	}
	if n.knowsLess(&r) {
		return refusedChange("node %s runs an earlier release than node %s, which leads: it may not know what is in the log", c.NodeID, n.cfg.NodeID)
	}
	join := &joinRequest{ClusterID: n.storage.id.get().ClusterID, Voter: c.Voter}
	if err := n.tellPeer(ctx, c.NodeID, pathJoin, join); err != nil {
		if _, ok := errors.AsType[*peerError](err); ok {
			return refusedChange("%w", err)
		}
		// It may have stored the cluster's id, for ever.
		return fmt.Errorf("node %s did not say whether it belongs to the cluster now; to add it again is safe: %s", c.NodeID, err.Error())
	}
	if old, ok := n.server(c.NodeID); ok && string(old.ID) != r.ServerID {
		if err := n.replace(ctx, old, r.ServerID, c.Address); err != nil {
			return fmt.Errorf("node %s is being replaced: %s", c.NodeID, err.Error())
		}
	}
	if err := n.set(ctx, r.ServerID, c.Address, raft.Nonvoter); err != nil {
		return err
	}
	n.log.Info("member added", "member", c.NodeID, "address", c.Address, "voter", c.Voter)
	for c.Voter {
		behind, err := n.promote(ctx, c.NodeID)
		switch {
		case err != nil:
			return halfDone(c.NodeID, err)
		case behind == "":
			return nil
		}
		select {
		case <-time.After(settlePause):
		case <-ctx.Done():
			return fmt.Errorf("it was added and is not a voter yet, but becomes one by itself (%s): %w", behind, context.Cause(ctx))
		}
	}
	return nil
}

// promote makes a voter of a node that has the log. It returns how far behind it
// is otherwise.
func (n *Node) promote(ctx context.Context, node string) (behind string, err error) {
	s, ok := n.server(node)
	if !ok {
		return "", ErrNoMember
	}
	if s.Suffrage == raft.Voter {
		return "", nil
	}
	commit := n.raft.CommitIndex()
	r := n.survey(ctx, []string{node})[node]
	switch {
	case r.err != nil:
		return r.err.Error(), nil //nolint:nilerr // it is how far the node is
	case r.ServerID != string(s.ID):
		return "", fmt.Errorf("node %s is %s now, not %s", node, r.ServerID, s.ID)
	case n.knowsLess(&r): // it would stop at the first command that it does not know
		return "it runs an earlier release than node " + n.cfg.NodeID + ", which leads", nil
	case !r.has(commit) || r.AppliedIndex == 0:
		return fmt.Sprintf("applied %d of %d entries", r.AppliedIndex, commit), nil
	}
	if err := n.set(ctx, string(s.ID), string(s.Address), raft.Voter); err != nil {
		return "", err
	}
	n.log.Info("member is a voter", "member", node)
	return "", nil
}

// installSelf corrects this node's own address before others join: that of a node
// which was alone may be one that nobody can reach.
func (n *Node) installSelf(ctx context.Context) error {
	s, ok := n.server(n.cfg.NodeID)
	if !ok || string(s.Address) == n.address {
		return nil
	}
	return n.set(ctx, string(s.ID), n.address, s.Suffrage)
}

// reconcile writes addresses into the configuration that nodes have told since
// they moved. It is the leader's work.
func (n *Node) reconcile(ctx context.Context) {
	if term, _ := n.leads.get(); term == 0 || n.port == nil {
		return
	}
	select {
	case n.changing <- struct{}{}:
		defer n.changing.free()
	default:
		return // what is being changed may be this
	}
	for _, s := range n.raft.GetConfiguration().Configuration().Servers {
		address := n.book.toldBy(string(s.ID))
		if s.ID == n.raftID {
			address = n.address
		}
		if address == "" || address == string(s.Address) {
			continue
		}
		if err := n.set(ctx, string(s.ID), address, s.Suffrage); err != nil {
			n.log.Warn("the new address of a member cannot be stored", "member", nodeOf(string(s.ID)), "address", address, "error", err)
			return
		}
		n.log.Info("member has moved", "member", nodeOf(string(s.ID)), "address", address)
	}
}

// remove takes a node out, if those that stay can go on.
func (n *Node) remove(ctx context.Context, node string) error {
	s, ok := n.server(node)
	if !ok {
		return ErrNoMember
	}
	if s.Suffrage == raft.Voter {
		voters, alive := 0, 0
		commit := n.raft.CommitIndex()
		reports := n.survey(ctx, n.others())
		for _, other := range n.raft.GetConfiguration().Configuration().Servers {
			if other.Suffrage != raft.Voter || other.ID == s.ID {
				continue
			}
			voters++
			r := reports[nodeOf(string(other.ID))]
			if other.ID == n.raftID || r.err == nil && r.ServerID == string(other.ID) && r.LogError == "" && r.has(commit) {
				alive++
			}
		}
		if voters == 0 {
			return refusedChange("it is the only one that votes")
		}
		if alive <= voters/2 {
			return refusedChange("%d of the %d voters that would be left answer, can write and have the log: without a majority nothing can be decided", alive, voters)
		}
	}
	err := n.removeServer(ctx, s.ID)
	if err == nil {
		n.log.Info("member removed", "member", node)
	}
	return err
}
