package cluster

import (
	"errors"
	"io"
	"os"
	"path/filepath"

	"github.com/hashicorp/raft-wal/types"
)

// logVFS is raft-wal's way to its files without the halves that the library
// leaves: a file is made whole and durable or not at all, and what is opened to
// be appended to is durable before anybody believes it.
type logVFS struct {
	types.VFS

	syncDir func(dir string) error

	// opened are the files that an attempt to open the log has opened so far.
	// raft-wal keeps them when it fails half-way.
	opened    []io.Closer
	attempted bool // an attempt is going on
}

// attempt begins an attempt to open the log. The function that it returns ends
// it, and closes the attempt's files if it failed.
func (v *logVFS) attempt() (end func(failed bool)) {
	v.attempted = true
	return func(failed bool) {
		if failed {
			for _, file := range v.opened {
				_ = file.Close() // may have been closed before
			}
		}
		v.opened, v.attempted = nil, false
	}
}

func (v *logVFS) remember(file io.Closer) {
	if v.attempted {
		v.opened = append(v.opened, file)
	}
}

// Create makes a file of the size, whatever has its name, so that after it
// returned nil neither a crash nor a full disk takes the file away. raft-wal's
// own leaves that to the first write.
func (v *logVFS) Create(dir, name string, size uint64) (types.WritableFile, error) {
	// What has the name was made for a segment that was never listed.
	if err := v.Delete(dir, name); err != nil {
		return nil, err
	}
	file, err := v.VFS.Create(dir, name, size)
	if err == nil {
		err = errors.Join(os.Chmod(filepath.Join(dir, name), fileMode), file.Sync())
		if err == nil {
			v.remember(file)
			return newLogFile(file, int64(size)), nil
		}
		err = errors.Join(err, file.Close())
	}
	// Without space ext4 keeps the part of the file that it found space for.
	return nil, errors.Join(err, v.Delete(dir, name))
}

// OpenWriter opens a file that was written before. Entries that a killed process
// wrote and did not sync are in it, and are counted as stored from now on; its
// name may not be durable either.
func (v *logVFS) OpenWriter(dir, name string) (types.WritableFile, error) {
	file, err := v.VFS.OpenWriter(dir, name)
	if err != nil {
		return nil, err
	}
	info, err := os.Stat(filepath.Join(dir, name))
	if err := errors.Join(err, file.Sync(), v.syncDir(dir)); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	v.remember(file)
	return newLogFile(file, info.Size()), nil
}

// OpenReader opens a file to read it.
func (v *logVFS) OpenReader(dir, name string) (types.ReadableFile, error) {
	file, err := v.VFS.OpenReader(dir, name)
	if err == nil {
		v.remember(file)
	}
	return file, err
}

// Delete removes the file if it is there.
func (v *logVFS) Delete(dir, name string) error {
	if err := v.VFS.Delete(dir, name); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}
