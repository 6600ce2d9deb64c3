package cluster

import (
	"encoding/binary"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/raft"
	"go.etcd.io/bbolt"
	bbolterrors "go.etcd.io/bbolt/errors"
)

// storeEntries fills the log at path with commands 1 to n.
func storeEntries(t *testing.T, s *logStore, n uint64) {
	t.Helper()
	var entries []*raft.Log
	for i := uint64(1); i <= n; i++ {
		entries = append(entries, &raft.Log{Index: i, Term: 1, Type: raft.LogCommand, Data: fmt.Appendf(nil, "command %d", i)})
	}
	if err := s.StoreLogs(entries); err != nil {
		t.Fatal(err)
	}
}

func openTestLog(t *testing.T, path string) *logStore {
	t.Helper()
	s, err := openLog(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// updateFile changes a log file behind raft-boltdb's back, while it is closed.
func updateFile(t *testing.T, path string, change func(entries *bbolt.Bucket) error) {
	t.Helper()
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{Timeout: logLockWait, NoFreelistSync: true})
	if err != nil {
		t.Fatal(err)
	}
	err = db.Update(func(tx *bbolt.Tx) error { return change(tx.Bucket([]byte("logs"))) })
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
}

func entryKey(index uint64) []byte {
	return binary.BigEndian.AppendUint64(nil, index)
}

// fileContent returns the first and the last index in a closed log file, how many
// entries it has, and how many transactions were written to it.
func fileContent(t *testing.T, path string) (bounds [3]uint64, transactions int) {
	t.Helper()
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{Timeout: logLockWait, ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	err = db.View(func(tx *bbolt.Tx) error {
		transactions = tx.ID()
		return tx.Bucket([]byte("logs")).ForEach(func(k, _ []byte) error {
			index := binary.BigEndian.Uint64(k)
			if bounds[2] == 0 {
				bounds[0] = index
			}
			bounds[1] = index
			bounds[2]++
			return nil
		})
	})
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
	return bounds, transactions
}

// TestLogStore_DeleteRange: what is deleted, and in how many transactions, because
// a crash can fall between two of them. At the old end that leaves a shorter log,
// anywhere else a hole.
func TestLogStore_DeleteRange(t *testing.T) {
	const n = 3*deletePiece + 17
	tests := map[string]struct {
		first, last  uint64
		want         [3]uint64
		transactions int
	}{
		"one old entry":          {1, 1, [3]uint64{2, n, n - 1}, 1},
		"old, one piece exactly": {1, deletePiece, [3]uint64{deletePiece + 1, n, n - deletePiece}, 1},
		"old, one more":          {1, deletePiece + 1, [3]uint64{deletePiece + 2, n, n - deletePiece - 1}, 2},
		"old, from before":       {0, 10, [3]uint64{11, n, n - 10}, 1},
		"all":                    {1, n, [3]uint64{}, 4},
		"all and more":           {0, 1<<64 - 1, [3]uint64{}, 4},
		"new":                    {10, n, [3]uint64{1, 9, 9}, 1},
		"new and more":           {n, 1 << 63, [3]uint64{1, n - 1, n - 1}, 1},
		"in the middle":          {10, 2*deletePiece + 9, [3]uint64{1, n, n - 2*deletePiece}, 1},
		"beyond the last":        {n + 1, n + 10, [3]uint64{1, n, n}, 1},
		"before the first":       {0, 0, [3]uint64{1, n, n}, 0},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), logFile)
			s := openTestLog(t, path)
			storeEntries(t, s, n)
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			_, before := fileContent(t, path)
			s = openTestLog(t, path)
			if err := errors.Join(s.DeleteRange(test.first, test.last), s.Close()); err != nil {
				t.Fatal(err)
			}
			got, after := fileContent(t, path)
			if got != test.want {
				t.Errorf("first, last and number of entries = %v, want %v", got, test.want)
			}
			// Opening writes one of its own.
			if got := after - before - 1; got != test.transactions {
				t.Errorf("transactions = %d, want %d", got, test.transactions)
			}
		})
	}
}

func TestLogStore_DeleteRange_empty(t *testing.T) {
	s := openTestLog(t, filepath.Join(t.TempDir(), logFile))
	if err := s.DeleteRange(0, 1<<64-1); err != nil {
		t.Errorf("DeleteRange of an empty log = %v", err)
	}
}

// TestLogStore_roundTrip: the library's codec keeps each field that raft uses, its
// words for what is missing are the ones that raft compares, and nothing of the
// caller's memory is kept.
func TestLogStore_roundTrip(t *testing.T) {
	path := filepath.Join(t.TempDir(), logFile)
	s := openTestLog(t, path)
	data := []byte("acquire")
	want := raft.Log{
		Index: 1<<63 + 7, Term: 1<<63 + 3, Type: raft.LogConfiguration, Data: []byte("acquire"),
		Extensions: []byte("ext"), AppendedAt: time.Unix(1700000000, 123456789).UTC(),
	}
	stored := want
	stored.Data = data
	if err := s.StoreLog(&stored); err != nil {
		t.Fatal(err)
	}
	clear(data)
	if _, err := s.GetUint64([]byte("term")); err == nil || err.Error() != "not found" {
		t.Errorf("GetUint64 of a missing value = %v; raft asks for the text %q", err, "not found")
	}
	if err := errors.Join(s.SetUint64([]byte("term"), 1<<63), s.Close()); err != nil {
		t.Fatal(err)
	}

	s = openTestLog(t, path)
	var got raft.Log
	if err := s.GetLog(want.Index, &got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("entry after reopening (-want +got):\n%s", diff)
	}
	if got, err := s.GetUint64([]byte("term")); err != nil || got != 1<<63 {
		t.Errorf("GetUint64 = %d, %v, want %d", got, err, uint64(1)<<63)
	}
	if err := s.GetLog(1, new(raft.Log)); err != raft.ErrLogNotFound { //nolint:errorlint // as raft does
		t.Errorf("GetLog of a missing entry = %v, want %v itself", err, raft.ErrLogNotFound)
	}
}

func TestOpenLog_inUse(t *testing.T) {
	path := filepath.Join(t.TempDir(), logFile)
	openTestLog(t, path)
	if _, err := openLog(path); !errors.Is(err, bbolterrors.ErrTimeout) || !strings.Contains(err.Error(), path) {
		t.Errorf("second openLog = %v, want %v and the path", err, bbolterrors.ErrTimeout)
	}
}

// TestOpen_damagedLog: raft panics when it cannot read an entry at its start,
// and the panic does not say what to do.
func TestOpen_damagedLog(t *testing.T) {
	tests := map[string]struct {
		damage func(entries *bbolt.Bucket) error
		want   string
	}{
		"an entry that is none": {
			func(b *bbolt.Bucket) error { return b.Put(entryKey(4), []byte("\xc1garbage")) },
			"log.db: index 4: entry cannot be read",
		},
		"an empty entry": {
			func(b *bbolt.Bucket) error { return b.Put(entryKey(4), nil) },
			"log.db: index 4: entry cannot be read",
		},
		"a cut entry": {
			func(b *bbolt.Bucket) error {
				whole := b.Get(entryKey(4))
				return b.Put(entryKey(4), append([]byte{}, whole[:len(whole)/2]...))
			},
			"log.db: index 4: entry cannot be read",
		},
		"another index's entry": {
			func(b *bbolt.Bucket) error { return b.Put(entryKey(4), append([]byte{}, b.Get(entryKey(5))...)) },
			"log.db: index 4: entry cannot be read: it is entry 5",
		},
		"the last entry": {
			func(b *bbolt.Bucket) error { return b.Put(entryKey(6), []byte("\xc1garbage")) },
			"log.db: index 6: entry cannot be read",
		},
		"a hole": {
			func(b *bbolt.Bucket) error { return b.Delete(entryKey(4)) },
			"the log is damaged: log not found; restore the directory from a backup",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			cfg := testConfig(t.TempDir())
			n := lead(t, cfg, new(ledger))
			propose(t, n, "a", "b", "c") // entries 4 to 6
			stop(t, n)
			updateFile(t, (&folder{t, cfg}).path(logFile), test.damage)
			_, err := Open(testContext(t), cfg, new(ledger))
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Fatalf("Open = %v, want an error with %q", err, test.want)
			}
			// In the same words again: nothing was left that holds the folder.
			if _, again := Open(testContext(t), cfg, new(ledger)); again == nil || again.Error() != err.Error() {
				t.Errorf("second Open = %v, want %v", again, err)
			}
		})
	}
}

func TestLogStore_size(t *testing.T) {
	s := openTestLog(t, filepath.Join(t.TempDir(), logFile))
	storeEntries(t, s, 5000)
	full, freeBefore := s.size()
	if err := s.DeleteRange(1, 4900); err != nil {
		t.Fatal(err)
	}
	file, free := s.size()
	if file != full || file < 5000*50 {
		t.Errorf("file size = %d, then %d after deleting: want both equal and above %d", full, file, 5000*50)
	}
	if free < freeBefore+4000*50 {
		t.Errorf("free = %d, then %d after deleting 4900 entries", freeBefore, free)
	}
}
