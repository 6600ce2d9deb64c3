package cluster

import (
	"context"
	"errors"
	"fmt"

	"github.com/hashicorp/raft"
)

// admit gives a node that asks for it its place in the cluster, step by step: it
// asks again until it has it. A crash between two steps leaves the configuration
// in one from which the next leader goes on.
//
// Only nodes whose id is a member's are admitted; all others an operator has to
// add. A member that comes with another folder has lost the old one, with the
// votes it had given and the entries it had confirmed. It must not be taken for
// the same voter, so it becomes another server:
//
//  1. it learns the cluster id, and whether it is to be a voter
//  2. the old server gives up its address, as two may not have the same
//  3. the new one is added without a vote
//  4. the old one is removed
//  5. the new one becomes a voter when it has the log
func (n *Node) admit(ctx context.Context, r *admitRequest) (admission, error) {
	if err := n.changing.take(ctx); err != nil {
		return admission{}, err
	}
	defer n.changing.free()
	if term, _ := n.leads.get(); term == 0 {
		return admission{}, raft.ErrNotLeader
	}
	ctx, cancel := context.WithTimeout(ctx, rpcTimeout)
	defer cancel()
	var old, mine *raft.Server
	for _, s := range n.raft.GetConfiguration().Configuration().Servers {
		switch {
		case string(s.ID) == r.ServerID:
			mine = &s
		case nodeOf(string(s.ID)) == r.NodeID:
			old = &s
		}
	}
	switch {
	case nodeOf(r.ServerID) != r.NodeID:
		return admission{}, fmt.Errorf("server %s is not of node %s", r.ServerID, r.NodeID)
	case old != nil:
		return n.readmit(ctx, r, *old, mine != nil)
	case mine == nil:
		return admission{}, &peerError{fmt.Sprintf("node %s is not a member of cluster %s, or was removed from it: add it with its id and address",
			r.NodeID, n.storage.id.get().ClusterID), ErrNoMember}
	case mine.Suffrage == raft.Voter || !r.Voter:
		return admission{"a member; it only has to hear of it"}, nil
	}
	behind, err := n.promote(ctx, r.NodeID)
	if behind != "" {
		return admission{"a voter, but not yet: " + behind}, err
	}
	return admission{"a voter"}, err
}

// readmit is for a node that lost its folder.
func (n *Node) readmit(ctx context.Context, r *admitRequest, old raft.Server, added bool) (admission, error) {
	if c, err := n.port.dial(ctx, protoMembers, string(old.ID)); err == nil {
		return admission{}, errors.Join(fmt.Errorf("another process runs as node %s, at %s: stop one of the two, or give one another id",
			r.NodeID, c.RemoteAddr()), c.Close())
	}
	if err := n.tellPeer(ctx, r.NodeID, pathJoin, &joinRequest{
		ClusterID: n.storage.id.get().ClusterID, Voter: r.Voter || old.Suffrage == raft.Voter,
	}); err != nil {
		return admission{}, err
	}
	if added { // before a crash, or before the leader changed
		return admission{"a member without its lost data"}, n.removeServer(ctx, old.ID)
	}
	return admission{"a member without its lost data"}, n.replace(ctx, old, r.ServerID, r.Address)
}

// replace puts a server in the place of an old one of the same node, without a
// vote at first.
func (n *Node) replace(ctx context.Context, old raft.Server, server, address string) error {
	if string(old.Address) != string(old.ID) {
		if err := n.set(ctx, string(old.ID), string(old.ID), old.Suffrage); err != nil {
			return err
		}
	}
	if err := n.set(ctx, server, address, raft.Nonvoter); err != nil {
		return err
	}
	if err := n.removeServer(ctx, old.ID); err != nil {
		return err
	}
	n.log.Warn("member came back without its data and starts afresh", "member", nodeOf(server), "old", old.ID, "new", server)
	return nil
}

func (n *Node) removeServer(ctx context.Context, id raft.ServerID) error {
	return n.reconfigure(ctx, func() raft.IndexFuture { return n.raft.RemoveServer(id, 0, 0) })
}
