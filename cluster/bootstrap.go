package cluster

import (
	"errors"
	"fmt"
	"net"

	"github.com/hashicorp/raft"
)

// found writes the first configuration into an empty log, once in the life of a
// folder, and refuses a log that lost it.
//
// Crash-safe in each step: until Founded is on disk the next start deletes the
// log and begins again, with the cluster id that is already written.
func (s *storage) found(conf *raft.Config, cfg Config, trans raft.Transport) error {
	if s.id.Founded {
		has, err := raft.HasExistingState(s.cache, s.log, s.snapshots)
		if err != nil {
			return err
		}
		if has {
			return s.checkComplete()
		}
		return fmt.Errorf("the log of node %q in %s is empty: restore the directory from a backup; "+
			"starting with an empty one would issue fencing tokens a second time", s.id.NodeID, s.dataDir)
	}
	first, err := firstConfiguration(cfg, trans.LocalAddr())
	if err != nil {
		return err
	}
	if err := raft.BootstrapCluster(conf, s.cache, s.log, s.snapshots, trans, first); err != nil {
		return fmt.Errorf("write the first configuration: %w", err)
	}
	s.id.Founded = true
	return s.id.write(s.path(identityFile))
}

// checkComplete refuses a log whose beginning was deleted below a snapshot that
// is no longer there. raft would panic.
func (s *storage) checkComplete() error {
	first, err := s.log.FirstIndex()
	if err != nil {
		return err
	}
	if snapshot, _ := s.snapshots.latest(); first > snapshot+1 {
		return fmt.Errorf("%s: the log begins at entry %d and the newest snapshot in %s ends at %d: what is between them is gone; restore the directory from a backup",
			s.dataDir, first, s.path(snapshotDir), snapshot)
	}
	return nil
}

// firstConfiguration returns who forms the cluster: this node, alone.
//
// Several members must not simply each write the same configuration, as raft's
// documentation proposes: a node whose disk was replaced would found the cluster
// again, and two of them would outvote the one that still has the data.
func firstConfiguration(cfg Config, local raft.ServerAddress) (raft.Configuration, error) {
	address := local
	switch len(cfg.Members) {
	case 0:
	case 1:
		member, ok := cfg.Members[cfg.NodeID]
		if !ok {
			return raft.Configuration{}, fmt.Errorf("cluster.members does not name this node, %q", cfg.NodeID)
		}
		if _, _, err := net.SplitHostPort(member); err != nil {
			return raft.Configuration{}, fmt.Errorf("cluster.members: address of %q: %w", cfg.NodeID, err)
		}
		address = raft.ServerAddress(member)
	default:
		return raft.Configuration{}, errors.New("cluster.members names several nodes: this release runs single nodes; leave cluster.members out")
	}
	return raft.Configuration{Servers: []raft.Server{{
		Suffrage: raft.Voter,
		ID:       raft.ServerID(cfg.NodeID),
		Address:  address,
	}}}, nil
}
