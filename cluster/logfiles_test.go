package cluster

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/raft"
	"github.com/hashicorp/raft-wal/types"
)

// TestLogFiles_noSpace: what could not be made whole is taken away.
func TestLogFiles_noSpace(t *testing.T) {
	for seed := range int64(8) {
		disk := newFaults(seed)
		files := disk.log(t)
		s := openFiles(t, files)
		storeEntries(t, s, 3)
		before := segmentNames(t, files.dir)
		files.segments.vfs.VFS = noSpace{disk}
		if err := s.DeleteRange(1, 3); !errors.Is(err, errInjected) {
			t.Fatalf("DeleteRange = %v, want %v", err, errInjected)
		}
		// The copy of entries 1 to 2 cannot be made either.
		s.broken = true
		if _, err := files.reopen(extent{1, 2}); !errors.Is(err, errInjected) {
			t.Fatalf("reopen = %v, want %v", err, errInjected)
		}
		if diff := cmp.Diff(before, segmentNames(t, files.dir)); diff != "" {
			t.Errorf("segments (-before +after):\n%s", diff)
		}
	}
}

// noSpace fails to make files and leaves a part of them, as fallocate on ext4.
type noSpace struct{ types.VFS }

func (noSpace) Create(dir, name string, _ uint64) (types.WritableFile, error) {
	return nil, errors.Join(errInjected, os.WriteFile(filepath.Join(dir, name), make([]byte, 100), fileMode))
}

// TestLogFiles_modes: entries name owners and targets.
func TestLogFiles_modes(t *testing.T) {
	files, _ := twoSegments(t)
	names, err := os.ReadDir(files.dir)
	if err != nil || len(names) != 3 {
		t.Fatalf("files = %v, %v, want a list and two segments", names, err)
	}
	for _, name := range names {
		if info, err := name.Info(); err != nil || info.Mode() != fileMode {
			t.Errorf("%s has mode %v, %v, want %v", name, info.Mode(), err, os.FileMode(fileMode))
		}
	}
}

// openFilesVFS counts the open files.
type openFilesVFS struct {
	types.VFS

	open int
}

type countedReader struct {
	types.ReadableFile

	vfs *openFilesVFS
}

type countedWriter struct {
	types.WritableFile

	vfs *openFilesVFS
}

func (v *openFilesVFS) OpenReader(dir, name string) (types.ReadableFile, error) {
	file, err := v.VFS.OpenReader(dir, name)
	v.open++
	return countedReader{file, v}, err
}

func (v *openFilesVFS) OpenWriter(dir, name string) (types.WritableFile, error) {
	file, err := v.VFS.OpenWriter(dir, name)
	v.open++
	return countedWriter{file, v}, err
}

func (r countedReader) Close() error { r.vfs.open--; return r.ReadableFile.Close() }
func (w countedWriter) Close() error { w.vfs.open--; return w.WritableFile.Close() }

// TestOpenLog_closesFiles: raft-wal leaves the files open that it has opened when
// it meets one that it cannot open.
func TestOpenLog_closesFiles(t *testing.T) {
	files, _ := twoSegments(t)
	counted := &openFilesVFS{VFS: files.vfs}
	files.vfs = counted
	if err := overwrite(filepath.Join(files.dir, segmentNames(t, files.dir)[0]), 0, []byte{1}); err != nil {
		t.Fatal(err)
	}
	if _, err := newLogStore(files); err == nil {
		t.Fatal("a damaged segment was opened")
	}
	if counted.open != 0 {
		t.Errorf("%d files are open after the log could not be opened", counted.open)
	}
}

// TestOpenLog_tornOnlyBatch: the only write to a segment filled it and was torn:
// nothing is copied, and that is what is said.
func TestOpenLog_tornOnlyBatch(t *testing.T) {
	var out bytes.Buffer
	files := newLogFiles(filepath.Join(t.TempDir(), logDir), newRaftLogger(slog.New(slog.NewTextHandler(&out, nil))))
	files.segment = 4 << 10
	var fail atomic.Bool
	files.newList = func() types.MetaStore { return &failingList{fail: &fail} }
	s := openFiles(t, files)
	fail.Store(true)
	if err := errors.Join(s.StoreLog(&raft.Log{Index: 1, Data: make([]byte, 5000)}), s.Close()); err != nil {
		t.Fatal(err)
	}
	fail.Store(false)
	// The next segment was not listed. Whether its file was begun before the log
	// was closed is raft-wal's to choose.
	for _, next := range segmentNames(t, files.dir)[1:] {
		if err := os.Remove(filepath.Join(files.dir, next)); err != nil {
			t.Fatal(err)
		}
	}
	changeSegment(t, files.dir, func(b []byte) { b[200] ^= 1 })
	s = openFiles(t, files)
	wantExtent(t, s, 0, 0)
	if got := out.String(); !strings.Contains(got, " entries=0 ") {
		t.Errorf("logged:\n%s\nwant entries=0", got)
	}
}
