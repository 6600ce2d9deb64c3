package cluster

import "github.com/hashicorp/raft-wal/types"

// fillAhead is how far at most a segment is written with zeros ahead of its last
// entry, in bytes.
const fillAhead = 256 << 10

// logFile is a segment that is appended to. raft-wal only reserves its space, and
// the first write to reserved space changes the file system's own records, for
// which the next sync has to wait as well: on ext4 that makes a sync up to twice
// as long. So every once in a while zeros are written ahead of the entries, which
// is what is read there anyway, and the syncs after that are short.
type logFile struct {
	types.WritableFile

	size   int64  // of the space that was reserved
	filled int64  // everything before it was written
	zeros  []byte // fillAhead of them
}

func newLogFile(file types.WritableFile, size int64) *logFile {
	return &logFile{WritableFile: file, size: size, zeros: make([]byte, fillAhead)}
}

// WriteAt implements types.WritableFile. raft-wal appends: nothing is kept behind
// what it writes.
func (f *logFile) WriteAt(b []byte, at int64) (int, error) {
	n, err := f.WritableFile.WriteAt(b, at)
	end := at + int64(n)
	if err != nil || end <= f.filled {
		return n, err
	}
	ahead := min(f.size-end, fillAhead)
	if ahead > 0 {
		// A failure leaves what is read there as it is.
		if _, err := f.WritableFile.WriteAt(f.zeros[:ahead], end); err != nil {
			return n, nil //nolint:nilerr // the entries are written; their sync tells what is wrong with the disk
		}
	}
	f.filled = end + max(ahead, 0)
	return n, nil
}

// Sync implements types.WritableFile. Where the platform can, it leaves out what
// reading the entries does not need: the times of the file.
func (f *logFile) Sync() error { return syncData(f.WritableFile) }
