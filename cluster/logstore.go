package cluster

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	"go.etcd.io/bbolt"
)

const (
	// logLockWait is for a tool that looks into the log file; other nodes are
	// kept out by the folder's lock.
	logLockWait = time.Second

	// logMmapSize is address space, not memory or disk. While the file is smaller,
	// growing it never has to remap, which would wait for every reader.
	logMmapSize = 128 << 20

	// deletePiece bounds how long a deletion keeps StoreLogs waiting. raft-boltdb
	// deletes a range in one transaction: dropping 500,000 entries below a
	// snapshot stopped all writes for 1.5 s, in pieces of 4,096 for 0.06 s.
	deletePiece = 4096
)

// errUnreadable says that the log has something under an index, but not an entry
// with that index.
var errUnreadable = errors.New("entry cannot be read")

var (
	_ raft.LogStore    = (*logStore)(nil)
	_ raft.StableStore = (*logStore)(nil)
)

// logStore is raft-boltdb's store with two things it leaves out: old entries are
// deleted in pieces, and an entry is believed only if its index is the one under
// which it was found.
type logStore struct {
	*raftboltdb.BoltStore

	path string
}

// openLog opens the log file at path and creates it if it is missing.
func openLog(path string) (*logStore, error) {
	store, err := raftboltdb.New(raftboltdb.Options{
		Path: path,
		BoltOptions: &bbolt.Options{
			Timeout:         logLockWait,
			InitialMmapSize: logMmapSize,
			// Writing the list of free pages with each commit made every write slow
			// after a peak had left many of them; it is rebuilt at the next start
			// instead.
			NoFreelistSync: true,
			FreelistType:   bbolt.FreelistMapType,
		},
		// Zero would write times in a format that only this codec's old releases
		// need.
		MsgpackUseNewTimeFormat: true,
	})
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	return &logStore{store, path}, nil
}

// GetLog fills entry with the entry at index. It returns raft.ErrLogNotFound,
// which raft compares with ==, when there is none, and errUnreadable, with the
// file and the index, when there is something else.
func (s *logStore) GetLog(index uint64, entry *raft.Log) error {
	err := s.BoltStore.GetLog(index, entry)
	if err == nil && entry.Index != index {
		err = fmt.Errorf("it is entry %d", entry.Index)
	}
	if err == nil || errors.Is(err, raft.ErrLogNotFound) {
		return err
	}
	return fmt.Errorf("%s: index %d: %w: %w", s.path, index, errUnreadable, err)
}

// DeleteRange deletes the entries from first to last, both included.
//
// raft calls it to drop what a snapshot covers, from the oldest entry on, and to
// drop entries of a deposed leader at the other end. The former may happen in
// several transactions, oldest first: a crash between them leaves the log
// shorter. The latter may not: between two of them the log would have a hole.
func (s *logStore) DeleteRange(first, last uint64) error {
	oldest, err := s.FirstIndex()
	if err != nil {
		return err
	}
	newest, err := s.LastIndex()
	if err != nil {
		return err
	}
	if first > oldest {
		return s.BoltStore.DeleteRange(first, last)
	}
	for last = min(last, newest); oldest <= last; oldest += deletePiece {
		if err := s.BoltStore.DeleteRange(oldest, min(last, oldest+deletePiece-1)); err != nil {
			return err
		}
	}
	return nil
}

// size returns the size of the file, 0 when it cannot be asked, and how much of
// it is free for reuse, both in bytes. It waits for no transaction.
func (s *logStore) size() (file, free int64) {
	if info, err := os.Stat(s.path); err == nil {
		file = info.Size()
	}
	return file, int64(s.Stats().FreeAlloc)
}
