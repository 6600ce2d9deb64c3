package cluster

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	wal "github.com/hashicorp/raft-wal"
	"github.com/hashicorp/raft-wal/fs"
	"github.com/hashicorp/raft-wal/metadb"
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

	// fileMode: entries name owners and targets.
	fileMode = 0o600
)

// logFiles are the files of a log: a list of segments, and the segments.
type logFiles struct {
	dir     string
	logger  *raftLogger
	segment int // of a segment, in bytes; tests make small ones

	// segments are those that open found; nil before.
	segments *segments

	newList func() types.MetaStore
	vfs     types.VFS
	syncDir func(dir string) error
}

func newLogFiles(dir string, logger *raftLogger) *logFiles {
	return &logFiles{
		dir: dir, logger: logger, segment: segmentSize,
		newList: func() types.MetaStore { return new(metadb.BoltMetaDB) },
		vfs:     fs.New(),
		syncDir: syncDir,
	}
}

// extent is which entries a log has, from first to last; 0 and 0 for none.
type extent struct{ first, last uint64 }

func extentOf(log *wal.WAL) (extent, error) {
	first, errFirst := log.FirstIndex()
	last, errLast := log.LastIndex()
	return extent{first, last}, errors.Join(errFirst, errLast)
}

// open opens the log for the first time, creating what is missing.
func (f *logFiles) open() (*wal.WAL, error) {
	if err := os.MkdirAll(f.dir, dirMode); err != nil {
		return nil, err
	}
	path := filepath.Join(f.dir, logMetaFile)
	if info, err := os.Stat(path); err == nil && info.Size() == 0 {
		// bbolt would take it for a new one and forget the term and every entry.
		return nil, fmt.Errorf("%s is empty: restore the directory from a backup", path)
	}
	list := &logList{MetaStore: f.newList(), path: path}
	f.segments = newSegments(f.dir, list, &logVFS{VFS: f.vfs, syncDir: f.syncDir})
	if err := f.segments.vfs.Delete(f.dir, roomFile); err != nil {
		return nil, err
	}
	log, err := f.attempt(nil)
	if err != nil {
		// raft-wal leaves the list open, and locked.
		return nil, errors.Join(err, f.close())
	}
	return log, nil
}

// reopen opens the log beside the open one, which has the entries have. It
// creates nothing, and refuses a log that has others: of a write that failed
// more may be on disk, and it leaves them out.
func (f *logFiles) reopen(have extent) (*wal.WAL, error) {
	return f.attempt(&have)
}

// close closes the list. The log that open or reopen returned is closed before.
func (f *logFiles) close() error {
	return f.segments.list.Close()
}

func (f *logFiles) attempt(have *extent) (log *wal.WAL, err error) {
	end := f.segments.vfs.attempt()
	defer func() {
		if err != nil {
			log, err = nil, fmt.Errorf("open the log %s: %w", f.dir, err)
			f.segments.ready = nil // closed by end
		}
		end(err != nil)
	}()
	if err := f.mendTail(have); err != nil {
		return nil, err
	}
	log, err = wal.Open(f.dir, wal.WithMetaStore(f.segments), wal.WithSegmentFiler(f.segments),
		wal.WithSegmentSize(f.segment), wal.WithLogger(f.logger.Named("log")))
	if err != nil {
		return nil, err
	}
	got, err := extentOf(log)
	if err == nil && have != nil && got != *have {
		err = fmt.Errorf("it has entries %d to %d instead of %d to %d: restore the directory from a backup", got.first, got.last, have.first, have.last)
	}
	if err != nil {
		return nil, errors.Join(err, log.Close())
	}
	return log, nil
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
