package cluster

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"

	"github.com/hashicorp/raft"
	wal "github.com/hashicorp/raft-wal"
	"github.com/hashicorp/raft-wal/metadb"
)

// logMetaFile is what raft-wal calls the file that lists the log's segments and
// keeps raft's term and vote. It appears whole or not at all, see raft-wal's
// metadb.
const logMetaFile = "wal-meta.db"

// segmentSuffix is how the names of raft-wal's segments end.
const segmentSuffix = ".wal"

// checksumSize is the size of an entry's checksum in bytes.
const checksumSize = 4

// errUnreadable says that the log has something under an index, but not an entry
// with that index.
var errUnreadable = errors.New("entry cannot be read")

var (
	_ raft.LogStore          = (*logStore)(nil)
	_ raft.StableStore       = (*logStore)(nil)
	_ raft.MonotonicLogStore = (*logStore)(nil)
)

// logStore is raft-wal's log with two things it leaves out: an entry has a
// checksum of its own, and is believed only if its index is the one under which
// it was found.
type logStore struct {
	*wal.WAL

	dir string
}

// openLog opens the log in the folder dir and creates both if they are missing.
// It waits for ever while another process has the log open: the node's folder is
// locked before.
func openLog(dir string, logger *raftLogger) (*logStore, error) {
	if err := os.MkdirAll(dir, dirMode); err != nil {
		return nil, err
	}
	meta := filepath.Join(dir, logMetaFile)
	if info, err := os.Stat(meta); err == nil && info.Size() == 0 {
		// bbolt would take it for a new one and forget the term and every entry.
		return nil, fmt.Errorf("%s is empty: restore the directory from a backup", meta)
	}
	list := new(metadb.BoltMetaDB)
	log, err := wal.Open(dir, wal.WithMetaStore(list), wal.WithLogger(logger.Named("log")))
	if err != nil {
		// raft-wal leaves it open, and locked, when it fails further on.
		return nil, errors.Join(fmt.Errorf("open the log %s: %w", dir, err), list.Close())
	}
	return &logStore{log, dir}, nil
}

// StoreLog stores entry. Both return after fsync.
func (s *logStore) StoreLog(entry *raft.Log) error {
	return s.StoreLogs([]*raft.Log{entry})
}

// StoreLogs stores entries, all or none.
func (s *logStore) StoreLogs(entries []*raft.Log) error {
	sums := make([]*raft.Log, len(entries))
	for i, entry := range entries {
		sums[i] = sealed(entry)
	}
	return s.WAL.StoreLogs(sums)
}

// GetLog fills entry with the entry at index. It returns raft.ErrLogNotFound,
// which raft compares with ==, when there is none, and errUnreadable, with the
// folder and the index, when there is something else.
func (s *logStore) GetLog(index uint64, entry *raft.Log) error {
	err := s.read(index, entry)
	if err == nil || errors.Is(err, raft.ErrLogNotFound) {
		return err
	}
	return fmt.Errorf("%s: index %d: %w: %w", s.dir, index, errUnreadable, err)
}

func (s *logStore) read(index uint64, entry *raft.Log) (err error) {
	// raft-wal's decoder slices by lengths that it reads.
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("decode: %v", p)
		}
	}()
	if err := s.WAL.GetLog(index, entry); err != nil {
		return err
	}
	if err := unseal(entry); err != nil {
		return err
	}
	if entry.Index != index {
		return fmt.Errorf("it is entry %d", entry.Index)
	}
	return nil
}

// IsMonotonic tells raft that the log has no holes: before it appends at another
// index than the next one it deletes what is there.
func (s *logStore) IsMonotonic() bool { return true }

// size returns how much of the disk the log has, in bytes, and 0 when that
// cannot be asked. A segment has its full size from the start.
func (s *logStore) size() int64 {
	files, err := os.ReadDir(s.dir)
	if err != nil {
		return 0
	}
	var sum int64
	for _, file := range files {
		if info, err := file.Info(); err == nil {
			sum += info.Size()
		}
	}
	return sum
}

// sealed returns a copy of entry with its checksum behind its extensions.
// raft-wal's own checksums are one for each write, and only that of the last
// write is compared, when the log is opened. A codec with checksums would be
// plainer, but raft-wal 0.4.1 names its own in each segment and then refuses to
// open a log with another.
func sealed(entry *raft.Log) *raft.Log {
	c := *entry
	c.Extensions = make([]byte, 0, len(entry.Extensions)+checksumSize)
	c.Extensions = append(c.Extensions, entry.Extensions...)
	c.Extensions = binary.LittleEndian.AppendUint32(c.Extensions, checksum(&c))
	return &c
}

// unseal takes the checksum off entry and returns an error if the entry is not
// as it was stored.
func unseal(entry *raft.Log) error {
	end := len(entry.Extensions) - checksumSize
	if end < 0 {
		return errors.New("it has no checksum")
	}
	sum := binary.LittleEndian.Uint32(entry.Extensions[end:])
	// nil and not empty, as raft stored it.
	entry.Extensions = append([]byte(nil), entry.Extensions[:end]...)
	if checksum(entry) != sum {
		return errors.New("its checksum does not match")
	}
	return nil
}

// checksum returns the CRC-32C of what raft and the FSM decide by; when a leader
// appended the entry is not part of that.
func checksum(entry *raft.Log) uint32 {
	var head [25]byte
	binary.LittleEndian.PutUint64(head[0:], entry.Index)
	binary.LittleEndian.PutUint64(head[8:], entry.Term)
	head[16] = byte(entry.Type)
	// The length keeps data and extensions apart.
	binary.LittleEndian.PutUint64(head[17:], uint64(len(entry.Data)))
	table := crc32.MakeTable(crc32.Castagnoli)
	sum := crc32.Update(0, table, head[:])
	sum = crc32.Update(sum, table, entry.Data)
	return crc32.Update(sum, table, entry.Extensions)
}
