package cluster

import (
	"errors"
	"log/slog"
	"maps"
	"math/rand"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/hashicorp/raft-wal/fs"
	"github.com/hashicorp/raft-wal/types"
)

var errInjected = errors.New("injected")

// faults are a disk under a log, in memory what concerns durability: operations
// fail, before or after they did something, a process is killed, and a power cut
// takes away what was not synced.
type faults struct {
	types.VFS

	mu    sync.Mutex // raft-wal changes segments in the background
	rand  *rand.Rand
	prob  float64 // with which an operation fails
	left  int     // operations until the process is killed, negative for never
	dead  bool    // it was killed: nothing works
	hits  int     // operations that failed
	named map[string]bool
	undo  map[string][]unsynced
	list  memList
}

// unsynced is what a write to a file replaced.
type unsynced struct {
	off int64
	old []byte
}

func newFaults(seed int64) *faults {
	return &faults{
		VFS: fs.New(), rand: rand.New(rand.NewSource(seed)), left: -1,
		named: map[string]bool{}, undo: map[string][]unsynced{},
	}
}

// log returns the files of a log on the disk.
func (d *faults) log(tb testing.TB) *logFiles {
	tb.Helper()
	files := newLogFiles(filepath.Join(tb.TempDir(), logDir), newRaftLogger(slog.New(slog.DiscardHandler)))
	files.segment = 4 << 10
	files.vfs, files.syncDir = d, d.syncDir
	files.newList = func() types.MetaStore { return &faultyList{d} }
	return files
}

// plan says what fails from now on.
func (d *faults) plan(prob float64, left int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.prob, d.left, d.hits = prob, left, 0
}

func (d *faults) state() (hits int, dead bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.hits, d.dead
}

// fault is how an operation fails.
type fault int

const (
	none   fault = iota
	before       // it did nothing
	after        // it did it, or a part of it
)

// next returns how the next operation fails. It is called with mu held.
func (d *faults) next() fault {
	switch {
	case d.dead:
		return before
	case d.left == 0:
		d.dead = true
	case d.rand.Float64() >= d.prob:
		d.left--
		return none
	}
	d.hits++
	return before + fault(d.rand.Intn(2))
}

// restart makes a new process, after a power cut or not.
func (d *faults) restart(tb testing.TB, cut bool) {
	tb.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.dead, d.prob, d.left = false, 0, -1
	if !cut {
		return
	}
	d.list.state = d.list.durable
	for path, writes := range d.undo {
		// What reached the disk was written in this order. The last one may be torn.
		kept, torn := d.rand.Intn(len(writes)+1), d.rand.Intn(2) == 0
		for i := len(writes) - 1; i >= kept; i-- {
			w := writes[i]
			from := 0
			if torn && i == kept {
				from = d.rand.Intn(len(w.old) + 1)
			}
			if err := overwrite(path, w.off+int64(from), w.old[from:]); err != nil {
				tb.Fatal(err)
			}
		}
	}
	clear(d.undo)
	for path, durable := range d.named {
		if !durable {
			if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
				tb.Fatal(err)
			}
			delete(d.named, path)
		}
	}
}

// overwrite changes a part of a file.
func overwrite(path string, off int64, with []byte) error {
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	_, err = file.WriteAt(with, off)
	return errors.Join(err, file.Close())
}

func (d *faults) syncDir(string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.next() != none {
		return errInjected
	}
	for path := range maps.Clone(d.named) {
		d.named[path] = true
	}
	return nil
}

func (d *faults) Create(dir, name string, size uint64) (types.WritableFile, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	how := d.next()
	if how == before {
		return nil, errInjected
	}
	path := filepath.Join(dir, name)
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o644) // as raft-wal does
	if err != nil {
		return nil, err
	}
	d.named[path] = false
	if how == after {
		size /= 3 // there was space for so much
	}
	err = file.Truncate(int64(size))
	if how == after {
		return nil, errors.Join(errInjected, err, file.Close())
	}
	return &faultyFile{file, d, path}, err
}

func (d *faults) OpenWriter(dir, name string) (types.WritableFile, error) {
	file, err := d.VFS.OpenWriter(dir, name)
	if err != nil {
		return nil, err
	}
	return &faultyFile{file, d, filepath.Join(dir, name)}, nil
}

func (d *faults) Delete(dir, name string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	how := d.next()
	if how == before {
		return errInjected
	}
	path := filepath.Join(dir, name)
	if err := os.Remove(path); err != nil {
		return err
	}
	delete(d.named, path)
	delete(d.undo, path)
	if how == after {
		return errInjected
	}
	return nil
}

type faultyFile struct {
	types.WritableFile

	disk *faults
	path string
}

func (f *faultyFile) WriteAt(b []byte, off int64) (int, error) {
	d := f.disk
	d.mu.Lock()
	defer d.mu.Unlock()
	how := d.next()
	if how == before {
		return 0, errInjected
	}
	if how == after {
		b = b[:d.rand.Intn(len(b)+1)]
	}
	old := make([]byte, len(b))
	_, _ = f.ReadAt(old, off) // zeroes beyond the end
	d.undo[f.path] = append(d.undo[f.path], unsynced{off, old})
	n, err := f.WritableFile.WriteAt(b, off)
	if how == after {
		err = errInjected
	}
	return n, err
}

func (f *faultyFile) Sync() error {
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	if f.disk.next() != none {
		return errInjected
	}
	delete(f.disk.undo, f.path)
	if _, made := f.disk.named[f.path]; made {
		f.disk.named[f.path] = true
	}
	return nil
}

// memList is what a list of segments has stored.
type memList struct {
	state, durable types.PersistentState
	stable         map[string][]byte
}

// faultyList is a handle on the disk's list.
type faultyList struct{ disk *faults }

func (l *faultyList) Load(dir string) (types.PersistentState, error) {
	l.disk.mu.Lock()
	defer l.disk.mu.Unlock()
	return copyState(l.disk.list.state), os.WriteFile(filepath.Join(dir, logMetaFile), []byte("in memory"), 0o600)
}

func (l *faultyList) CommitState(s types.PersistentState) error {
	l.disk.mu.Lock()
	defer l.disk.mu.Unlock()
	switch l.disk.next() {
	case before:
		return errInjected
	case after: // it failed at its last fsync: it can be read, and gone after a power cut
		l.disk.list.state = copyState(s)
		return errInjected
	}
	l.disk.list.state, l.disk.list.durable = copyState(s), copyState(s)
	return nil
}

func (l *faultyList) GetStable(key []byte) ([]byte, error) {
	l.disk.mu.Lock()
	defer l.disk.mu.Unlock()
	return l.disk.list.stable[string(key)], nil
}

func (l *faultyList) SetStable(key, value []byte) error {
	l.disk.mu.Lock()
	defer l.disk.mu.Unlock()
	if l.disk.list.stable == nil {
		l.disk.list.stable = map[string][]byte{}
	}
	l.disk.list.stable[string(key)] = value
	return nil
}

func (l *faultyList) Close() error { return nil }
