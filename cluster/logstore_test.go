package cluster

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/raft"
	wal "github.com/hashicorp/raft-wal"
	"github.com/hashicorp/raft-wal/metadb"
	"github.com/hashicorp/raft-wal/types"
)

// storeEntries fills an empty log with commands 1 to n.
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

func openTestLog(t *testing.T, dir string) *logStore {
	t.Helper()
	s, err := openLog(dir, newRaftLogger(testLogger(t)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() }) // most tests have closed it
	return s
}

// logSegment returns the only segment of the log in dir.
func logSegment(t *testing.T, dir string) string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, "*"+segmentSuffix))
	if err != nil || len(paths) != 1 {
		t.Fatalf("segments in %s = %q, %v; want one", dir, paths, err)
	}
	return paths[0]
}

// changeSegment changes the only segment of the log in dir behind raft-wal's
// back, while it is closed.
func changeSegment(t *testing.T, dir string, change func(content []byte)) {
	t.Helper()
	path := logSegment(t, dir)
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	change(content)
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestLogStore_DeleteRange: raft deletes at either end, and what is left after a
// restart has no hole.
func TestLogStore_DeleteRange(t *testing.T) {
	const n = 100
	tests := map[string]struct {
		first, last         uint64
		wantFirst, wantLast uint64
		refused             bool
	}{
		"one old entry":    {first: 1, last: 1, wantFirst: 2, wantLast: n},
		"old, from before": {first: 0, last: 10, wantFirst: 11, wantLast: n},
		"all":              {first: 1, last: n},
		"all and more":     {first: 0, last: math.MaxUint64 - 1},
		"new":              {first: 10, last: n, wantFirst: 1, wantLast: 9},
		"new and more":     {first: n, last: 1 << 63, wantFirst: 1, wantLast: n - 1},
		"in the middle":    {first: 10, last: 20, wantFirst: 1, wantLast: n, refused: true},
		"beyond the last":  {first: n + 1, last: n + 10, wantFirst: 1, wantLast: n},
		"before the first": {first: 0, last: 0, wantFirst: 1, wantLast: n},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), logDir)
			s := openTestLog(t, dir)
			storeEntries(t, s, n)
			if err := s.DeleteRange(test.first, test.last); (err != nil) != test.refused {
				t.Fatalf("DeleteRange = %v, want refused: %t", err, test.refused)
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			s = openTestLog(t, dir)
			first, errFirst := s.FirstIndex()
			last, errLast := s.LastIndex()
			if err := errors.Join(errFirst, errLast); err != nil {
				t.Fatal(err)
			}
			if first != test.wantFirst || last != test.wantLast {
				t.Errorf("after reopening the log has %d to %d, want %d to %d", first, last, test.wantFirst, test.wantLast)
			}
			for i := uint64(1); i <= n; i++ {
				err := s.GetLog(i, new(raft.Log))
				if want := test.wantFirst <= i && i <= test.wantLast; want != (err == nil) {
					t.Errorf("GetLog(%d) = %v, want an entry: %t", i, err, want)
				}
			}
		})
	}
}

func TestLogStore_DeleteRange_empty(t *testing.T) {
	s := openTestLog(t, filepath.Join(t.TempDir(), logDir))
	if err := s.DeleteRange(0, math.MaxUint64-1); err != nil {
		t.Errorf("DeleteRange of an empty log = %v", err)
	}
}

// TestLogStore_roundTrip: each field that raft uses is kept, what is missing is
// said in the words that raft compares, and nothing of the caller's memory is
// kept.
func TestLogStore_roundTrip(t *testing.T) {
	dir := filepath.Join(t.TempDir(), logDir)
	s := openTestLog(t, dir)
	data := []byte("acquire")
	want := raft.Log{
		Index: 1<<52 + 7, Term: 1<<63 + 3, Type: raft.LogConfiguration, Data: []byte("acquire"),
		Extensions: []byte("ext"), AppendedAt: time.Unix(1700000000, 123456789).UTC(),
	}
	stored := want
	stored.Data = data
	if err := s.StoreLog(&stored); err != nil {
		t.Fatal(err)
	}
	clear(data)
	if got, err := s.GetUint64([]byte("term")); got != 0 || err != nil {
		t.Errorf("GetUint64 of a missing value = %d, %v, want 0", got, err)
	}
	if err := errors.Join(s.SetUint64([]byte("term"), 1<<63), s.Close()); err != nil {
		t.Fatal(err)
	}

	s = openTestLog(t, dir)
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

// TestOpen_damagedLog: raft panics when it cannot read an entry at its start,
// and the panic does not say what to do.
func TestOpen_damagedLog(t *testing.T) {
	tests := map[string]struct {
		damage func(segment []byte)
		want   string
	}{
		"a flipped bit in an entry": {
			func(b []byte) { b[bytes.Index(b, []byte("bravo"))] ^= 1 },
			"log: index 5: entry cannot be read: its checksum does not match",
		},
		"a flipped bit in its checksum": {
			func(b []byte) { b[bytes.Index(b, []byte("bravo"))+len("bravo")+1] ^= 1 },
			"log: index 5: entry cannot be read: its checksum does not match",
		},
		"a length that nothing has": {
			func(b []byte) {
				copy(b[bytes.Index(b, []byte("bravo"))-1:], "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff")
			},
			"log: index 5: entry cannot be read: decode: ",
		},
		"another index's entry": {
			func(b []byte) {
				// Before the data: index, term, type and length, a byte each. Behind it:
				// the extensions' length, the checksum, and the time in 15 bytes.
				five, six := bytes.Index(b, []byte("bravo")), bytes.Index(b, []byte("delta"))
				const start, end = 4, 5 + 1 + checksumSize + 15
				copy(b[five-start:five+end], b[six-start:six+end])
			},
			"log: index 5: entry cannot be read: it is entry 6",
		},
		"another segment's name": {
			func(b []byte) { b[8] ^= 1 },
			"open the log",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			cfg := testConfig(t.TempDir())
			n := lead(t, cfg, new(ledger))
			propose(t, n, "alpha", "bravo", "delta", "gamma") // entries 4 to 7
			stop(t, n)
			changeSegment(t, (&folder{t, cfg}).path(logDir), test.damage)
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

// TestOpen_tornLog: a write that a crash cut short was not acknowledged, and is
// not there.
func TestOpen_tornLog(t *testing.T) {
	cfg := testConfig(t.TempDir())
	n := lead(t, cfg, new(ledger))
	propose(t, n, "alpha", "bravo")
	stop(t, n)
	changeSegment(t, (&folder{t, cfg}).path(logDir), func(b []byte) {
		clear(b[bytes.Index(b, []byte("bravo"))+2:])
	})
	fsm := new(ledger)
	n = lead(t, cfg, fsm)
	propose(t, n, "delta")
	stop(t, n)
	if diff := cmp.Diff([]string{"alpha", "delta"}, fsm.content()); diff != "" {
		t.Errorf("after a torn write (-want +got):\n%s", diff)
	}
}

// TestLogStore_size: entries below a snapshot give their segments back.
func TestLogStore_size(t *testing.T) {
	s := openTestLog(t, filepath.Join(t.TempDir(), logDir))
	empty := s.size()
	const each, n = 1 << 20, 160
	for i := uint64(1); i <= n; i++ {
		if err := s.StoreLog(&raft.Log{Index: i, Term: 1, Data: make([]byte, each)}); err != nil {
			t.Fatal(err)
		}
	}
	full := s.size()
	if full < n*each {
		t.Errorf("size with %d MiB of entries = %d", n, full)
	}
	if err := s.DeleteRange(1, n-1); err != nil {
		t.Fatal(err)
	}
	if got := s.size(); got > empty+each {
		t.Errorf("size = %d empty, %d full and %d after deleting all but one entry", empty, full, got)
	}
}

// failingList is a list of segments that refuses changes while told to, as on a
// full disk.
type failingList struct {
	metadb.BoltMetaDB

	fail *atomic.Bool
}

func (l *failingList) CommitState(s types.PersistentState) error {
	if l.fail.Load() {
		return errors.New("no space left on device")
	}
	return l.BoltMetaDB.CommitState(s)
}

// fullTail returns the files of a log whose last segment is full and whose list
// refuses the next one for as long as fail says so, and how many entries it has.
func fullTail(t *testing.T, fail *atomic.Bool) (*logFiles, *logStore, uint64) {
	t.Helper()
	files := newLogFiles(filepath.Join(t.TempDir(), logDir), newRaftLogger(slog.New(slog.DiscardHandler)))
	files.segment = 64 << 10
	files.newList = func() types.MetaStore { return &failingList{fail: fail} }
	s, err := newLogStore(files)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	fail.Store(true)
	for i := uint64(1); ; i++ {
		err := s.StoreLog(&raft.Log{Index: i, Term: 1, Data: make([]byte, 1000)})
		if err == nil {
			continue
		}
		if i < 50 || !errors.Is(err, wal.ErrSealed) {
			t.Fatalf("entry %d of 1000 bytes in a segment of 64 KiB: %v", i, err)
		}
		return files, s, i - 1
	}
}

// wantEntries wants entries 1 to n, and that the log goes on.
func wantEntries(t *testing.T, s *logStore, n uint64) {
	t.Helper()
	for i := uint64(1); i <= n; i++ {
		if err := s.GetLog(i, new(raft.Log)); err != nil {
			t.Fatalf("entry %d of %d: %v", i, n, err)
		}
	}
	for i := n + 1; i <= n+200; i++ {
		if err := s.StoreLog(&raft.Log{Index: i, Term: 1, Data: make([]byte, 1000)}); err != nil {
			t.Fatalf("storing entry %d after %d: %v", i, n, err)
		}
	}
	if last, err := s.LastIndex(); last != n+200 || err != nil {
		t.Errorf("LastIndex = %d, %v, want %d", last, err, n+200)
	}
}

// TestLogStore_fullDiskAtNextSegment: when the next segment cannot be made
// nothing can be stored, and once it can everything is as before.
func TestLogStore_fullDiskAtNextSegment(t *testing.T) {
	var fail atomic.Bool
	_, s, n := fullTail(t, &fail)
	for range 3 {
		if err := s.StoreLog(&raft.Log{Index: n + 1, Term: 1}); err == nil {
			t.Fatal("an entry was stored although no segment could be made for it")
		}
	}
	fail.Store(false)
	wantEntries(t, s, n)
}

// TestOpenLog_killedBeforeNextSegment: killed between the write that filled a
// segment and the list's change, a log opens and goes on.
func TestOpenLog_killedBeforeNextSegment(t *testing.T) {
	var fail atomic.Bool
	files, s, n := fullTail(t, &fail)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	fail.Store(false)
	s, err := newLogStore(files)
	if err != nil {
		t.Fatal(err)
	}
	wantEntries(t, s, n)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if s, err = newLogStore(files); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	wantEntries(t, s, n+200)
}

// TestOpenLog_tornFullSegment: a crash tore the write that filled the segment:
// what was acknowledged before it is there and the log goes on.
func TestOpenLog_tornFullSegment(t *testing.T) {
	var fail atomic.Bool
	files, s, n := fullTail(t, &fail)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	fail.Store(false)
	// The commit mark is the last thing that is written: eight bytes. Before it
	// stands the index, which the torn write left behind.
	// A copy that was not listed is in the way of looking for the segment only.
	copies, err := filepath.Glob(filepath.Join(files.dir, "*1"+segmentSuffix))
	if err != nil || len(copies) != 1 {
		t.Fatalf("copies = %q, %v", copies, err)
	}
	if err := os.Remove(copies[0]); err != nil {
		t.Fatal(err)
	}
	changeSegment(t, files.dir, func(b []byte) {
		end := len(bytes.TrimRight(b, "\x00"))
		clear(b[end-8 : end])
	})
	s, err = newLogStore(files)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	wantEntries(t, s, n-1)
}
