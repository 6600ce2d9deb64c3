package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/hashicorp/raft"
)

const (
	// dirMode: commands and snapshots name owners and targets.
	dirMode = 0o700

	raftDir      = "raft"
	lockFile     = "lock"
	identityFile = "identity.json"
	logDir       = "log"
	snapshotDir  = "snapshots" // the name that raft's file snapshot store uses
	tempSuffix   = ".tmp"      // and the suffix of its unfinished snapshots

	// retainSnapshots: raft falls back to the older one when the newer one cannot
	// be read. The log keeps what follows it, see logStore.DeleteRange.
	retainSnapshots = 2

	// cachedEntries is how many of the newest entries are kept in memory for
	// followers that are nearly up to date.
	cachedEntries = 512
)

// storage is what a node has on disk.
type storage struct {
	dataDir   string // as configured, for messages
	dir       string
	id        *identityKeeper
	log       *logStore
	terms     *termStore
	cache     *raft.LogCache
	snapshots *snapshotStore
}

func (s *storage) path(name string) string {
	return filepath.Join(s.dir, name)
}

// openStorage locks the node's folder and opens what is in it, creating what a
// first start needs. What it opened is pushed to undo.
func openStorage(ctx context.Context, cfg Config, logger *raftLogger, undo *cleanup) (*storage, error) {
	s := &storage{dataDir: cfg.DataDir, dir: filepath.Join(cfg.DataDir, raftDir)}
	if err := makeDirs(s.dir); err != nil {
		return nil, err
	}
	lock, err := lockDir(ctx, s.path(lockFile), cfg.DataDir)
	if err != nil {
		return nil, err
	}
	undo.push("data directory", lock.unlock)

	if err := s.identify(cfg.NodeID); err != nil {
		return nil, err
	}
	if err := s.removeLeftovers(); err != nil {
		return nil, err
	}
	files := newLogFiles(s.path(logDir), logger)
	if cfg.logFiles != nil {
		cfg.logFiles(files)
	}
	if s.log, err = newLogStore(files); err != nil {
		return nil, err
	}
	s.terms = newTermStore(s.log)
	undo.push("log", s.log.Close)
	if s.cache, err = raft.NewLogCache(cachedEntries, s.log); err != nil {
		return nil, err
	}
	snapshots, err := raft.NewFileSnapshotStoreWithLogger(s.dir, retainSnapshots, logger)
	if err != nil {
		return nil, err
	}
	if s.snapshots, err = newSnapshotStore(snapshots, s.path(snapshotDir)); err != nil {
		return nil, err
	}
	s.log.keepAbove = s.snapshots.olderIndex
	// The names of the log's folder and of the snapshot folder must survive a power cut.
	if err := syncDir(s.dir); err != nil {
		return nil, err
	}
	return s, nil
}

// makeDirs creates the node's folder and the one around it, durably.
func makeDirs(dir string) error {
	if err := os.MkdirAll(dir, dirMode); err != nil {
		return err
	}
	parent := filepath.Dir(dir)
	return errors.Join(syncDir(parent), syncDir(filepath.Dir(parent)))
}

// identify reads whose folder this is, or writes it at the first start. It
// refuses to run on another node's folder and on remains.
func (s *storage) identify(nodeID string) error {
	path := s.path(identityFile)
	id, err := readIdentity(path)
	if err != nil {
		return err
	}
	log, err := namesIn(s.path(logDir))
	if err != nil {
		return err
	}
	switch {
	case id == nil && len(log) > 0:
		// The identity is written first, so no crash does this.
		return fmt.Errorf("%s has a log but %s is missing: restore it from a backup, or start with an empty data directory", s.dir, path)
	case id == nil, !id.member() && id.NodeID != nodeID:
		// In a folder where nothing was founded yet the name may still change.
		id = newIdentity(nodeID)
		if err := id.write(path); err != nil {
			return fmt.Errorf("write %s: %w", path, err)
		}
	case id.NodeID != nodeID:
		return fmt.Errorf("%s belongs to node %q, not to %q: set node.id to %q, or give node %q a data directory of its own",
			s.dataDir, id.NodeID, nodeID, id.NodeID, nodeID)
	case id.member() && !wholeLog(log):
		// raft-wal takes a missing file for one that it did not get to create.
		return fmt.Errorf("%s belongs to node %q but its log %s is gone: restore the directory from a backup; "+
			"starting with an empty one would issue fencing tokens a second time", s.dataDir, id.NodeID, s.path(logDir))
	}
	s.id = &identityKeeper{path: path}
	s.id.current.Store(id)
	return nil
}

// removeLeftovers deletes what a crash left: unfinished snapshots, which raft
// ignores but never deletes, and a log from a first start that was cut short.
// The latter may be anything from a half-written file, which cannot be opened,
// to a term without a configuration, with which raft would wait for ever.
func (s *storage) removeLeftovers() error {
	for _, dir := range []string{s.dir, s.path(snapshotDir)} {
		names, err := namesIn(dir)
		if err != nil {
			return err
		}
		for _, name := range names {
			if !strings.HasSuffix(name, tempSuffix) {
				continue
			}
			if err := os.RemoveAll(filepath.Join(dir, name)); err != nil {
				return err
			}
		}
	}
	if s.id.get().member() {
		return nil
	}
	if err := os.RemoveAll(s.path(logDir)); err != nil {
		return err
	}
	return syncDir(s.dir)
}

// namesIn returns the names in a folder, none if it is missing. Not by
// filepath.Glob, for which a path can be a pattern.
func namesIn(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	var names []string
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return names, nil
}
