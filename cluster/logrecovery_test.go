package cluster

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/raft"
	"github.com/hashicorp/raft-wal/types"
)

func kilobyte(index uint64) *raft.Log {
	return &raft.Log{Index: index, Term: 1, Data: make([]byte, 1000)}
}

func openFiles(t *testing.T, files *logFiles) *logStore {
	t.Helper()
	s, err := newLogStore(files)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() }) // most tests have closed it
	return s
}

// twoSegments returns the files of a closed log with n entries in two segments.
func twoSegments(t *testing.T) (files *logFiles, n uint64) {
	t.Helper()
	files = newLogFiles(filepath.Join(t.TempDir(), logDir), newRaftLogger(testLogger(t)))
	files.segment = 64 << 10
	s := openFiles(t, files)
	for n = 1; n <= 90; n++ {
		if err := s.StoreLog(kilobyte(n)); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(s.SetUint64([]byte("term"), 7), s.Close()); err != nil {
		t.Fatal(err)
	}
	return files, n - 1
}

func segmentNames(t *testing.T, dir string) (names []string) {
	t.Helper()
	all, err := namesIn(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range all {
		if strings.HasSuffix(name, segmentSuffix) {
			names = append(names, name)
		}
	}
	return names
}

func wantExtent(t *testing.T, s *logStore, first, last uint64) {
	t.Helper()
	got, err := extentOf(s.log)
	if want := (extent{first, last}); got != want || err != nil {
		t.Errorf("the log has %v, %v, want %v", got, err, want)
	}
}

// TestOpenLog_damage: what is damaged is refused, each time in the same words
// that say what to do, and nothing is deleted that could help.
func TestOpenLog_damage(t *testing.T) {
	segment := func(dir string, i int) string { return filepath.Join(dir, segmentNames(t, dir)[i]) }
	tests := map[string]struct {
		damage func(dir string) error
		want   string
	}{
		"the newest segment is gone": {
			func(dir string) error { return os.Remove(segment(dir, 1)) },
			"is listed and not there: restore the directory from a backup",
		},
		"the oldest segment is gone": {
			func(dir string) error { return os.Remove(segment(dir, 0)) },
			"is listed and not there: restore the directory from a backup",
		},
		"the list names another segment": {
			func(dir string) error {
				path := filepath.Join(dir, logMetaFile)
				list, err := os.ReadFile(path)
				list = bytes.ReplaceAll(list, []byte(`"ID":1`), []byte(`"ID":3`))
				return errors.Join(err, os.WriteFile(path, list, fileMode))
			},
			"is listed and not there: restore the directory from a backup",
		},
		"the list is gone": {
			func(dir string) error { return os.Remove(filepath.Join(dir, logMetaFile)) },
			"names no segment: restore the directory from a backup",
		},
		"the older segment's header is damaged": {
			func(dir string) error { return overwrite(segment(dir, 0), 0, []byte{1}) },
			"restore the directory from a backup",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			files, _ := twoSegments(t)
			if err := test.damage(files.dir); err != nil {
				t.Fatal(err)
			}
			before := segmentNames(t, files.dir)
			_, err := newLogStore(files)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Fatalf("open = %v, want an error with %q", err, test.want)
			}
			if _, again := newLogStore(files); again == nil || again.Error() != err.Error() {
				t.Errorf("second open = %v, want %v", again, err)
			}
			if diff := cmp.Diff(before, segmentNames(t, files.dir)); diff != "" {
				t.Errorf("segments (-before +after):\n%s", diff)
			}
		})
	}
}

// TestOpenLog_damagedList: whichever page of the list is damaged, and wherever it
// is cut short, the log opens with all its entries or is refused; bbolt's panics
// and faults do not get out.
func TestOpenLog_damagedList(t *testing.T) {
	files, n := twoSegments(t)
	path := filepath.Join(files.dir, logMetaFile)
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	refused := 0
	try := func(what string, off int, content []byte) {
		// A new file: bbolt keeps one locked, until the garbage collector closes it,
		// if it panics while it opens it.
		if err := errors.Join(os.Remove(path), os.WriteFile(path, content, fileMode)); err != nil {
			t.Fatal(err)
		}
		s, err := newLogStore(files)
		if err != nil {
			refused++
			if got := err.Error(); !strings.Contains(got, logMetaFile) {
				t.Errorf("%s at %d: %v does not name %s", what, off, err, logMetaFile)
			}
			return
		}
		wantExtent(t, s, 1, n)
		_, _ = s.GetUint64([]byte("term")) // must not panic
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	for off := 0; off < len(good); off += os.Getpagesize() {
		bad := bytes.Clone(good)
		clear(bad[off : off+os.Getpagesize()])
		try("a damaged page", off, bad)
		try("cut short", off+1, good[:off+1])
	}
	if refused == 0 {
		t.Error("no damage was refused")
	}
}

// TestLogStore_largeLastBatch: the write that fills a segment may be as large as
// it likes.
func TestLogStore_largeLastBatch(t *testing.T) {
	var fail atomic.Bool
	files := newLogFiles(filepath.Join(t.TempDir(), logDir), newRaftLogger(testLogger(t)))
	files.segment = 64 << 10
	files.newList = func() types.MetaStore { return &failingList{fail: &fail} }
	s := openFiles(t, files)
	var batch []*raft.Log
	for i := uint64(1); i <= 150; i++ {
		batch = append(batch, kilobyte(i))
	}
	if err := s.StoreLogs(batch[:50]); err != nil {
		t.Fatal(err)
	}
	fail.Store(true)
	if err := s.StoreLogs(batch[50:]); err != nil {
		t.Fatal(err)
	}
	if err := s.StoreLog(kilobyte(151)); err == nil {
		t.Fatal("an entry was stored although no segment could be made for it")
	}
	fail.Store(false)
	wantEntries(t, s, 150)
}

// TestLogStore_renewsNothingElse: a log whose files were damaged or taken away
// while it was open is not begun again under the node. What is open can be read,
// and raft can store its term.
func TestLogStore_renewsNothingElse(t *testing.T) {
	tests := map[string]struct {
		damage func(dir string) error
		want   string
	}{
		"a damaged frame": {
			func(dir string) error {
				return overwrite(filepath.Join(dir, segmentNames(t, dir)[0]), 32, []byte{0x77})
			},
			"are gone: restore the directory from a backup",
		},
		"the folder is gone": {os.RemoveAll, "is listed and not there: restore the directory from a backup"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var fail atomic.Bool
			files, s, n := fullTail(t, &fail)
			fail.Store(false)
			if err := test.damage(files.dir); err != nil {
				t.Fatal(err)
			}
			before := segmentNames(t, files.dir)
			before = before[:min(len(before), 1)] // the next one was never listed
			for range 2 {
				if err := s.StoreLog(kilobyte(n + 1)); err == nil || !strings.Contains(err.Error(), test.want) {
					t.Fatalf("StoreLog = %v, want an error with %q", err, test.want)
				}
			}
			wantExtent(t, s, 1, n)
			if err := s.GetLog(n, new(raft.Log)); err != nil {
				t.Errorf("GetLog(%d) = %v", n, err)
			}
			if err := s.SetUint64([]byte("term"), 8); err != nil {
				t.Errorf("SetUint64 = %v", err)
			}
			if diff := cmp.Diff(before, segmentNames(t, files.dir)); diff != "" {
				t.Errorf("segments (-before +after):\n%s", diff)
			}
		})
	}
}

// TestLogStore_failedChange: a change that failed did not happen, the next one
// does, and a restart changes nothing.
func TestLogStore_failedChange(t *testing.T) {
	tests := map[string]struct {
		from   uint64 // entries from here to 20 are there
		change func(*logStore) error
		want   extent
		next   uint64
	}{
		"delete all":      {1, func(s *logStore) error { return s.DeleteRange(1, 20) }, extent{}, 21},
		"delete the old":  {1, func(s *logStore) error { return s.DeleteRange(1, 10) }, extent{11, 20}, 21},
		"delete the new":  {1, func(s *logStore) error { return s.DeleteRange(15, 20) }, extent{1, 14}, 15},
		"append":          {1, func(s *logStore) error { return s.StoreLog(kilobyte(21)) }, extent{1, 21}, 22},
		"append far away": {21, func(s *logStore) error { return s.StoreLog(kilobyte(5000)) }, extent{5000, 5000}, 5001},
	}
	for name, test := range tests {
		for seed := range int64(8) { // fails before or after it did something
			t.Run(fmt.Sprint(name, "/", seed), func(t *testing.T) {
				disk := newFaults(seed)
				files := disk.log(t)
				files.segment = 64 << 10
				s := openFiles(t, files)
				storeEntries(t, s, 20)
				if err := s.DeleteRange(1, test.from-1); err != nil {
					t.Fatal(err)
				}
				had, err := extentOf(s.log)
				if err != nil {
					t.Fatal(err)
				}
				for range 2 {
					disk.plan(1, -1)
					if err := test.change(s); err == nil {
						t.Fatal("it did not fail")
					}
					wantExtent(t, s, had.first, had.last)
				}
				disk.plan(0, -1)
				if err := test.change(s); err != nil {
					t.Fatalf("repeated: %v", err)
				}
				wantExtent(t, s, test.want.first, test.want.last)
				first, last := test.want.first, test.next+100
				if first == 0 {
					first = test.next
				}
				wantGoesOn(t, files, s, first, test.next, last)
			})
		}
	}
}

// wantGoesOn wants that entries from next to last can be stored, and that those
// from first on are there, now and after a restart.
func wantGoesOn(t *testing.T, files *logFiles, s *logStore, first, next, last uint64) {
	t.Helper()
	for ; next <= last; next++ {
		if err := s.StoreLog(kilobyte(next)); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		wantExtent(t, s, first, last)
		for i := first; i <= last; i++ {
			if err := s.GetLog(i, new(raft.Log)); err != nil {
				t.Errorf("GetLog(%d) = %v", i, err)
			}
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		s = openFiles(t, files)
	}
}

// TestOpenLog_makesDurable: what a log has after it was opened survives a power
// cut, also if the process that wrote it was killed before it synced.
func TestOpenLog_makesDurable(t *testing.T) {
	for seed := range int64(8) {
		disk := newFaults(seed)
		files := disk.log(t)
		s := openFiles(t, files)
		storeEntries(t, s, 3)
		disk.plan(0, 1) // killed when it syncs
		if err := s.StoreLog(kilobyte(4)); err == nil {
			t.Fatal("a process that was killed stored an entry")
		}
		_ = s.Close() // it is dead
		disk.restart(t, false)
		s = openFiles(t, files)
		wantExtent(t, s, 1, 4)
		_ = s.Close() // nothing was written
		disk.restart(t, true)
		s = openFiles(t, files)
		wantExtent(t, s, 1, 4)
	}
}
