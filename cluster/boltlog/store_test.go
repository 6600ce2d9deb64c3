package boltlog

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/raft"
	"go.etcd.io/bbolt"
	bbolterrors "go.etcd.io/bbolt/errors"
)

func openStore(t *testing.T, path string) *Store {
	t.Helper()
	s, err := Open(path, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func command(index uint64) *raft.Log {
	return &raft.Log{Index: index, Term: 1, Type: raft.LogCommand, Data: fmt.Appendf(nil, "command %d", index)}
}

func store(t *testing.T, s *Store, n uint64) {
	t.Helper()
	var entries []*raft.Log
	for i := uint64(1); i <= n; i++ {
		entries = append(entries, command(i))
	}
	if err := s.StoreLogs(entries); err != nil {
		t.Fatal(err)
	}
}

// bounds returns the first and the last index and how many entries there are.
func bounds(t *testing.T, s *Store) [3]uint64 {
	t.Helper()
	first, err := s.FirstIndex()
	if err != nil {
		t.Fatal(err)
	}
	last, err := s.LastIndex()
	if err != nil {
		t.Fatal(err)
	}
	var n uint64
	err = s.db.View(func(tx *bbolt.Tx) error {
		return logs(tx).ForEach(func(_, _ []byte) error { n++; return nil })
	})
	if err != nil {
		t.Fatal(err)
	}
	return [3]uint64{first, last, n}
}

func TestStore_logs(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	s := openStore(t, path)
	if got, want := bounds(t, s), ([3]uint64{}); got != want {
		t.Errorf("bounds of a new store = %v, want %v", got, want)
	}
	store(t, s, 300)
	if err := s.StoreLog(command(301)); err != nil {
		t.Fatal(err)
	}
	replaced := command(301)
	replaced.Term, replaced.Data = 2, []byte("of another leader")
	if err := s.StoreLog(replaced); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}

	s = openStore(t, path)
	if got, want := bounds(t, s), ([3]uint64{1, 301, 301}); got != want {
		t.Errorf("bounds after reopening = %v, want %v", got, want)
	}
	for _, want := range []*raft.Log{command(1), command(150), replaced} {
		var got raft.Log
		if err := s.GetLog(want.Index, &got); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(*want, got); diff != "" {
			t.Errorf("entry %d (-want +got):\n%s", want.Index, diff)
		}
	}
	if err := s.GetLog(302, new(raft.Log)); !errors.Is(err, raft.ErrLogNotFound) {
		t.Errorf("GetLog of a missing entry = %v, want %v", err, raft.ErrLogNotFound)
	}
}

// TestStore_keepsNothingOfTheCaller: raft keeps the entries it stored and gives
// away the ones it read, in both cases while the store works on.
func TestStore_keepsNothingOfTheCaller(t *testing.T) {
	s := openStore(t, filepath.Join(t.TempDir(), "log"))
	log := command(1)
	if err := s.StoreLog(log); err != nil {
		t.Fatal(err)
	}
	clear(log.Data)
	var read raft.Log
	if err := s.GetLog(1, &read); err != nil {
		t.Fatal(err)
	}
	store(t, s, 200)
	if got, want := string(read.Data), "command 1"; got != want {
		t.Errorf("data = %q, want %q", got, want)
	}
}

func TestStore_DeleteRange(t *testing.T) {
	const n = 3*deleteChunk + 17
	tests := map[string]struct {
		first, last uint64
		want        [3]uint64
	}{
		"one old entry":           {1, 1, [3]uint64{2, n, n - 1}},
		"old, several chunks":     {1, 2*deleteChunk + 5, [3]uint64{2*deleteChunk + 6, n, n - 2*deleteChunk - 5}},
		"old, one chunk exactly":  {1, deleteChunk, [3]uint64{deleteChunk + 1, n, n - deleteChunk}},
		"old, before the first":   {0, 10, [3]uint64{11, n, n - 10}},
		"new, several chunks":     {10, n, [3]uint64{1, 9, 9}},
		"in the middle":           {10, 2000, [3]uint64{1, n, n - 1991}},
		"all":                     {1, n, [3]uint64{}},
		"beyond the last":         {n + 1, n + 10, [3]uint64{1, n, n}},
		"from the last to beyond": {n, 1 << 63, [3]uint64{1, n - 1, n - 1}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			s := openStore(t, filepath.Join(t.TempDir(), "log"))
			store(t, s, n)
			if err := s.DeleteRange(test.first, test.last); err != nil {
				t.Fatal(err)
			}
			if got := bounds(t, s); got != test.want {
				t.Errorf("first, last and number of entries = %v, want %v", got, test.want)
			}
		})
	}
}

// TestStore_DeleteRange_transactions: a crash can fall between two transactions.
// When the old end is deleted that leaves a shorter log, otherwise a hole.
func TestStore_DeleteRange_transactions(t *testing.T) {
	const n = 4 * deleteChunk
	for what, test := range map[string]struct{ first, last, want uint64 }{
		"the old end, in chunks":   {1, n - 100, 4},
		"the new end, in one":      {2, n, 1},
		"in the middle, in one":    {2, n - 1, 1},
		"a small part of the old":  {1, 10, 1},
		"nothing, in one and done": {n + 1, n + 2, 1},
	} {
		s := openStore(t, filepath.Join(t.TempDir(), "log"))
		store(t, s, n)
		before := lastTransaction(t, s)
		if err := s.DeleteRange(test.first, test.last); err != nil {
			t.Fatal(err)
		}
		if got := lastTransaction(t, s) - before; got != test.want {
			t.Errorf("deleting %s: %d transactions, want %d", what, got, test.want)
		}
	}
}

func lastTransaction(t *testing.T, s *Store) (id uint64) {
	t.Helper()
	err := s.db.View(func(tx *bbolt.Tx) error {
		id = uint64(tx.ID())
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func TestStore_values(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	s := openStore(t, path)
	if _, err := s.Get([]byte("vote")); err == nil || err.Error() != "not found" {
		t.Errorf("Get of a missing value = %v; raft asks for the text %q", err, "not found")
	}
	if _, err := s.GetUint64([]byte("term")); err == nil || err.Error() != "not found" {
		t.Errorf("GetUint64 of a missing value = %v; raft asks for the text %q", err, "not found")
	}
	if err := errors.Join(s.Set([]byte("vote"), []byte("n1")), s.SetUint64([]byte("term"), 1<<63)); err != nil {
		t.Fatal(err)
	}
	s.Close()

	s = openStore(t, path)
	if got, err := s.Get([]byte("vote")); err != nil || string(got) != "n1" {
		t.Errorf("Get = %q, %v, want n1", got, err)
	}
	if got, err := s.GetUint64([]byte("term")); err != nil || got != 1<<63 {
		t.Errorf("GetUint64 = %d, %v, want %d", got, err, uint64(1)<<63)
	}
	if _, err := s.GetUint64([]byte("vote")); err == nil {
		t.Error("GetUint64 of a value of two bytes succeeded")
	}
}

// TestOpen_writesNothing: opening a store again must work on a full disk.
func TestOpen_writesNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	s := openStore(t, path)
	store(t, s, 3)
	want := lastTransaction(t, s)
	s.Close()
	if got := lastTransaction(t, openStore(t, path)); got != want {
		t.Errorf("last transaction = %d, after opening again %d", want, got)
	}
}

func TestOpen_inUse(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	openStore(t, path)
	if _, err := Open(path, 100*time.Millisecond); !errors.Is(err, bbolterrors.ErrTimeout) {
		t.Errorf("second Open = %v, want %v", err, bbolterrors.ErrTimeout)
	}
}

// TestOpen_damaged changes one byte of the file inside an entry.
func TestOpen_damaged(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	s := openStore(t, path)
	err := s.db.Update(func(tx *bbolt.Tx) error {
		key := entryKey(4)
		value, err := appendEntry(nil, command(4))
		if err != nil {
			return err
		}
		value[headerSize] ^= 1
		return logs(tx).Put(key[:], value)
	})
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
	got, err := Open(path, time.Second)
	if !errors.Is(err, ErrDamaged) {
		t.Fatalf("Open = %v, %v, want %v", got, err, ErrDamaged)
	}
	// The file must be free again.
	if _, err := Open(path, time.Second); !errors.Is(err, ErrDamaged) {
		t.Errorf("Open again = %v, want %v", err, ErrDamaged)
	}
}

// TestStore_failedCommit: the file is closed under the store, which is what a
// disk that went away looks like.
func TestStore_failedCommit(t *testing.T) {
	var file *os.File
	s, err := open(filepath.Join(t.TempDir(), "log"), &bbolt.Options{
		OpenFile: func(name string, flag int, mode os.FileMode) (*os.File, error) {
			f, err := os.OpenFile(name, flag, mode)
			file = f
			return f, err
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	store(t, s, 3)
	if err := s.Failure(); err != nil {
		t.Errorf("Failure of a healthy store = %v, want none", err)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	first := s.StoreLog(command(4))
	if first == nil {
		t.Fatal("StoreLog on a closed file succeeded")
	}
	for what, err := range map[string]error{
		"Failure":     s.Failure(),
		"StoreLog":    s.StoreLog(command(4)),
		"Set":         s.Set([]byte("vote"), []byte("n1")),
		"DeleteRange": s.DeleteRange(1, 2),
	} {
		if !errors.Is(err, os.ErrClosed) || err.Error() != first.Error() {
			t.Errorf("%s after a failed commit = %v, want %v", what, err, first)
		}
	}
}

func TestStore_commitFailed(t *testing.T) {
	tests := map[string]struct {
		err   error
		final bool
	}{
		"write without space":  {&fs.PathError{Op: "write", Err: syscall.ENOSPC}, false},
		"write beyond quota":   {&fs.PathError{Op: "write", Err: syscall.EDQUOT}, false},
		"write error":          {&fs.PathError{Op: "write", Err: syscall.EIO}, true},
		"fsync error":          {syscall.EIO, true},
		"fsync without space":  {syscall.ENOSPC, true},
		"growing the file":     {errors.New("file resize error: no space left on device"), true},
		"another thing":        {errors.New("bug"), true},
		"wrapped, still known": {fmt.Errorf("commit: %w", &fs.PathError{Op: "write", Err: syscall.ENOSPC}), false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			s := &Store{path: "log"}
			if got := s.commitFailed(test.err); !errors.Is(got, test.err) {
				t.Errorf("commitFailed = %v, does not wrap %v", got, test.err)
			}
			if got := s.Failure() != nil; got != test.final {
				t.Errorf("store has failed for good = %v, want %v", got, test.final)
			}
		})
	}
}

func TestStore_Size(t *testing.T) {
	s := openStore(t, filepath.Join(t.TempDir(), "log"))
	store(t, s, 5000)
	full, freeBefore, err := s.Size()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.DeleteRange(1, 4900); err != nil {
		t.Fatal(err)
	}
	file, free, err := s.Size()
	if err != nil {
		t.Fatal(err)
	}
	if file != full || file < 5000*50 {
		t.Errorf("file size = %d, then %d after deleting: want both equal and above %d", full, file, 5000*50)
	}
	if free < freeBefore+4000*50 {
		t.Errorf("free = %d, then %d after deleting 4900 entries", freeBefore, free)
	}
}

func BenchmarkStoreLogs(b *testing.B) {
	for _, n := range []int{1, 64} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			s, err := Open(filepath.Join(b.TempDir(), "log"), time.Second)
			if err != nil {
				b.Fatal(err)
			}
			defer s.Close()
			entries := make([]*raft.Log, n)
			for i := range entries {
				entries[i] = &raft.Log{Term: 1, Type: raft.LogCommand, Data: make([]byte, 200)}
			}
			index := uint64(0)
			b.ReportAllocs()
			for b.Loop() {
				for _, e := range entries {
					index++
					e.Index = index
				}
				if err := s.StoreLogs(entries); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkDeleteRange(b *testing.B) {
	const n = 8192
	s, err := Open(filepath.Join(b.TempDir(), "log"), time.Second)
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	entries := make([]*raft.Log, n)
	index := uint64(0)
	b.ReportAllocs()
	for b.Loop() {
		b.StopTimer()
		for i := range entries {
			index++
			entries[i] = &raft.Log{Index: index, Term: 1, Type: raft.LogCommand, Data: make([]byte, 200)}
		}
		if err := s.StoreLogs(entries); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
		if err := s.DeleteRange(index-n+1, index-10); err != nil {
			b.Fatal(err)
		}
	}
}
