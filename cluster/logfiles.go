package cluster

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	wal "github.com/hashicorp/raft-wal"
	"github.com/hashicorp/raft-wal/fs"
	"github.com/hashicorp/raft-wal/metadb"
	"github.com/hashicorp/raft-wal/segment"
	"github.com/hashicorp/raft-wal/types"
)

const (
	// logMetaFile is what raft-wal calls the file that lists the log's segments
	// and keeps raft's term and vote. It appears whole or not at all, see
	// raft-wal's metadb.
	logMetaFile = metadb.FileName

	// segmentSuffix is how the names of raft-wal's segments end.
	segmentSuffix = ".wal"

	// segmentSize is the size of a segment in bytes, which it has from the start.
	segmentSize = 64 << 20

	// mendBatch is how many entries are copied with one fsync.
	mendBatch = 256
)

// logFiles are the files of a log: a list of segments, and the segments.
type logFiles struct {
	dir     string
	logger  *raftLogger
	segment int // of a segment, in bytes; tests make small ones

	newList func() types.MetaStore
}

func newLogFiles(dir string, logger *raftLogger) logFiles {
	return logFiles{
		dir: dir, logger: logger, segment: segmentSize,
		newList: func() types.MetaStore { return new(metadb.BoltMetaDB) },
	}
}

// open opens the log, creating what is missing. The list is closed with the log.
func (f *logFiles) open() (*wal.WAL, types.MetaStore, error) {
	if err := os.MkdirAll(f.dir, dirMode); err != nil {
		return nil, nil, err
	}
	path := filepath.Join(f.dir, logMetaFile)
	if info, err := os.Stat(path); err == nil && info.Size() == 0 {
		// bbolt would take it for a new one and forget the term and every entry.
		return nil, nil, fmt.Errorf("%s is empty: restore the directory from a backup", path)
	}
	list := f.newList()
	if err := f.mendTail(list); err != nil {
		return nil, nil, errors.Join(fmt.Errorf("open the log %s: %w", f.dir, err), list.Close())
	}
	log, err := wal.Open(f.dir, wal.WithMetaStore(list), wal.WithSegmentSize(f.segment), wal.WithLogger(f.logger.Named("log")))
	if err != nil {
		// raft-wal leaves the list open, and locked, when it fails further on.
		return nil, nil, errors.Join(fmt.Errorf("open the log %s: %w", f.dir, err), list.Close())
	}
	return log, list, nil
}

// mendTail copies the last segment into a larger one if nothing can be appended
// to it any more.
//
// raft-wal marks a segment as full in the write that fills it and lists the next
// one afterwards. Killed between the two, or without space for the next one,
// raft-wal 0.4.1 opens the full one as the one to append to and then refuses
// every write. The same happens when a crash tore the write that filled it, and
// then the mark is not to be trusted: so its entries are copied, whichever it
// was.
func (f *logFiles) mendTail(list types.MetaStore) error {
	state, err := list.Load(f.dir)
	if err != nil || len(state.Segments) == 0 {
		return err
	}
	tail := &state.Segments[len(state.Segments)-1]
	if !tail.SealTime.IsZero() {
		return nil
	}
	filer := segment.NewFiler(f.dir, fs.New())
	full, err := filer.RecoverTail(*tail)
	if errors.Is(err, os.ErrNotExist) {
		return nil // listed and not made yet: raft-wal makes it
	}
	if err != nil {
		return err
	}
	defer func() { _ = full.Close() }() // nothing was written to it
	if marked, _, err := full.Sealed(); err != nil || !marked {
		return err
	}
	larger := *tail
	larger.ID = state.NextSegmentID
	larger.BaseIndex = max(tail.BaseIndex, tail.MinIndex)
	larger.MinIndex = larger.BaseIndex
	larger.SizeLimit += larger.SizeLimit / 8
	if err := copySegment(filer, larger, full); err != nil {
		return err
	}
	f.logger.Warn("the last segment of the log was full and no next one was listed: copied it", "entries", full.LastIndex()+1-larger.BaseIndex)
	*tail = larger
	state.NextSegmentID++
	// From here on the copy is the log; wal.Open deletes what is not listed.
	return list.CommitState(state)
}

// copySegment makes the segment to with the entries of from.
func copySegment(filer *segment.Filer, to types.SegmentInfo, from types.SegmentWriter) (err error) {
	// An earlier attempt may have left one.
	if err := filer.Delete(to.BaseIndex, to.ID); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	copied, err := filer.Create(to)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, copied.Close()) }()
	for next := to.BaseIndex; next <= from.LastIndex(); {
		var batch []types.LogEntry
		for ; next <= from.LastIndex() && len(batch) < mendBatch; next++ {
			entry, err := from.GetLog(next)
			if err != nil {
				return fmt.Errorf("index %d: %w", next, err)
			}
			batch = append(batch, types.LogEntry{Index: next, Data: append([]byte(nil), entry.Bs...)})
			if err := entry.Close(); err != nil {
				return err
			}
		}
		if err := copied.Append(batch); err != nil {
			return err
		}
	}
	if marked, _, err := copied.Sealed(); err != nil || marked {
		return errors.Join(errors.New("the larger segment is full too"), err)
	}
	return nil
}

// size returns how much of the disk the files have, in bytes, and 0 when that
// cannot be asked.
func (f *logFiles) size() int64 {
	files, err := os.ReadDir(f.dir)
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

// wholeLog reports whether the files of a log have both parts: the list of its
// segments, and a segment.
func wholeLog(files []string) bool {
	var list, segment bool
	for _, path := range files {
		list = list || filepath.Base(path) == logMetaFile
		segment = segment || filepath.Ext(path) == segmentSuffix
	}
	return list && segment
}
