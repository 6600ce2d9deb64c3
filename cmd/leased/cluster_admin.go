package main

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/hashicorp/raft"

	"leased/backends/raftkv"
	"leased/cluster"
	"leased/contract"
	"leased/gateway"
	"leased/gateway/api"
)

// clusterAdmin is the node and the store on it, as the gateway's routes see them.
type clusterAdmin struct {
	node  *cluster.Node
	store *raftkv.Forwarder
}

var _ gateway.Cluster = (*clusterAdmin)(nil)

// Status implements gateway.Cluster.
func (c *clusterAdmin) Status(ctx context.Context) (*api.Cluster, error) {
	own := c.node.Status()
	out := &api.Cluster{
		ClusterID: own.ClusterID, Term: own.Term, Leader: own.LeaderID, AppliedIndex: own.AppliedIndex, Nodes: []api.ClusterNode{},
	}
	now := time.Now()
	for _, m := range c.node.Members(ctx) {
		n := api.ClusterNode{
			ID: m.ID, Address: m.Address, Role: m.Role, Voter: m.Voter, AppliedIndex: m.AppliedIndex, Healthy: m.Healthy,
			LastContactMS: max(0, m.LastContact.Milliseconds()), SnapshotIndex: m.SnapshotIndex, LogBytes: m.LogBytes, LogError: m.LogError,
		}
		if m.SnapshotIndex > 0 {
			n.SnapshotAgeMS = max(0, now.Sub(m.SnapshotTime).Milliseconds())
		}
		out.Nodes = append(out.Nodes, n)
	}
	return out, nil
}

// AddMember implements gateway.Cluster.
func (c *clusterAdmin) AddMember(ctx context.Context, r *api.AddMemberRequest) error {
	if err := checkAddress(r.Address); err != nil {
		return contract.Invalid("address", "%v", err)
	}
	return changeError(ctx, "id", c.node.AddMember(ctx, r.ID, r.Address, !r.NonVoter))
}

// RemoveMember implements gateway.Cluster.
func (c *clusterAdmin) RemoveMember(ctx context.Context, id string) error {
	return changeError(ctx, "id", c.node.RemoveMember(ctx, id))
}

// Transfer implements gateway.Cluster.
func (c *clusterAdmin) Transfer(ctx context.Context, to string) error {
	return changeError(ctx, "to", c.node.Transfer(ctx, to))
}

// changeError says what is known of a change of the cluster that failed. What it
// says is for operators: it may name nodes and their addresses. field is the one that
// names the node.
func changeError(ctx context.Context, field string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, cluster.ErrNoMember):
		return gateway.NotFound("no member has this id; GET /v1/cluster lists them")
	case errors.Is(err, cluster.ErrClosed):
		return contract.Errorf(contract.CodeClosed, err, "this node is stopping")
	case errors.Is(err, cluster.ErrInvalid):
		return contract.Invalid(field, "%v; nothing was changed", err)
	case errors.Is(err, cluster.ErrUnreachable), errors.Is(err, cluster.ErrRefused):
		return contract.Errorf(contract.CodeUnavailable, err, "%v; nothing was changed", err)
	case errors.Is(err, raft.ErrNotLeader):
		return contract.Errorf(contract.CodeUnavailable, err, "no node leads; look at the cluster's status")
	case ctx.Err() != nil:
		return contract.Errorf(contract.CodeOutcomeUnknown, err, "not done in time; look at the cluster's status before you repeat it")
	}
	return contract.Errorf(contract.CodeOutcomeUnknown, err, "%v; look at the cluster's status before you repeat it", err)
}

// Backup implements gateway.Cluster.
func (c *clusterAdmin) Backup(ctx context.Context) (*gateway.Backup, error) {
	head, write, err := c.store.Backup(ctx, c.node.Status().ClusterID)
	if err != nil {
		return nil, err
	}
	return &gateway.Backup{ClusterID: head.ClusterID, Index: head.Index, Time: head.Time, Write: write}, nil
}

// Restore implements gateway.Cluster.
func (c *clusterAdmin) Restore(ctx context.Context, from io.Reader) (*api.RestoreReply, error) {
	got, err := c.store.Restore(ctx, from)
	if err != nil {
		return nil, err
	}
	return &api.RestoreReply{
		ClusterID: got.Backup.ClusterID, Index: got.Backup.Index, BackupTime: api.NewTime(got.Backup.Time),
		EndedLeases: got.Ended, Floor: uint64(got.Floor),
	}, nil
}
