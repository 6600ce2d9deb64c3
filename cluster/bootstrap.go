package cluster

import (
	"fmt"

	"github.com/hashicorp/raft"
)

// found writes the first configuration into an empty log, once in the life of a
// folder, and refuses a log that lost it.
//
// Crash-safe in each step: until Founded is on disk the next start deletes the
// log and begins again, with the cluster id that is already written.
func (s *storage) found(conf *raft.Config, server raft.ServerID, address raft.ServerAddress, trans raft.Transport, several bool) error {
	id := s.id.get()
	if id.member() {
		has, err := raft.HasExistingState(s.cache, s.log, s.snapshots)
		if err != nil {
			return err
		}
		if has {
			return s.checkComplete()
		}
		if id.Joined { // and has not heard from the leader since
			return nil
		}
		return fmt.Errorf("the log of node %q in %s is empty: restore the directory from a backup; "+
			"starting with an empty one would issue fencing tokens a second time", id.NodeID, s.dataDir)
	}
	if several {
		return nil // see settler
	}
	// Several members must not simply each write the same configuration, as raft's
	// documentation proposes: a node whose disk was replaced would found the cluster
	// again, and two of them would outvote the one that still has the data.
	first := raft.Configuration{Servers: []raft.Server{{Suffrage: raft.Voter, ID: server, Address: address}}}
	if err := raft.BootstrapCluster(conf, s.cache, s.log, s.snapshots, trans, first); err != nil {
		return fmt.Errorf("write the first configuration: %w", err)
	}
	return s.id.change(func(id *identity) error {
		id.Founded, id.Voter = true, true
		return nil
	})
}

// checkComplete refuses a log whose beginning was deleted below a snapshot that
// is no longer there: raft would panic. And it keeps raft from starting with an older
// snapshot than the newest where the log does not lead up to that one: a node that
// was sent a snapshot has an empty log until the next entry, and would have forgotten,
// without a word, what it had confirmed.
func (s *storage) checkComplete() error {
	first, err := s.log.FirstIndex()
	if err != nil {
		return err
	}
	if snapshot, _ := s.snapshots.latest(); first > snapshot+1 {
		return fmt.Errorf("%s: the log begins at entry %d and the newest snapshot in %s ends at %d: what is between them is gone; restore the directory from a backup",
			s.dataDir, first, s.path(snapshotDir), snapshot)
	}
	last, err := s.log.LastIndex()
	if err != nil {
		return err
	}
	newest, err := newestNamed(s.path(snapshotDir))
	if err != nil || newest <= last {
		return err
	}
	if listed, _ := s.snapshots.latest(); listed < newest {
		return s.forgotten(newest)
	}
	s.snapshots.onlyFrom(newest)
	return nil
}

// forgotten says that the newest snapshot, which nothing can replace, cannot be read.
func (s *storage) forgotten(newest uint64) error {
	return fmt.Errorf("%s: the newest snapshot in %s, up to entry %d, cannot be read, and the log does not have what it covers: "+
		"restore the directory from a backup; starting with an older snapshot would issue fencing tokens a second time",
		s.dataDir, s.path(snapshotDir), newest)
}
