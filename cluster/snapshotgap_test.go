package cluster

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/raft"
)

// heldLedger is a ledger that stands still when it is given a snapshot.
type heldLedger struct {
	ledger

	holding, wait chan struct{}
}

func (l *heldLedger) Restore(from io.ReadCloser) error {
	close(l.holding)
	<-l.wait
	return l.ledger.Restore(from)
}

// TestNode_killedBehindSnapshot kills a node that has a snapshot from outside and has
// not deleted its log yet, which ends far below it. raft deletes it only after the
// FSM has read the snapshot, which can take long.
func TestNode_killedBehindSnapshot(t *testing.T) {
	cfg := testConfig(t.TempDir())
	fsm := &heldLedger{wait: make(chan struct{}), holding: make(chan struct{})}
	n := lead(t, cfg, fsm)
	propose(t, n, "a", "b")
	snapshot := `["from the snapshot"]`
	done := make(chan error, 1)
	go func() {
		meta := &raft.SnapshotMeta{Version: raft.SnapshotVersionMax, Index: 1000, Size: int64(len(snapshot))}
		done <- n.raft.Restore(meta, strings.NewReader(snapshot), 0)
	}()
	<-fsm.holding
	dead := t.TempDir() // what the disk has at the kill
	if err := os.CopyFS(dead, os.DirFS(cfg.DataDir)); err != nil {
		t.Fatal(err)
	}
	close(fsm.wait)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	stop(t, n)

	cfg.DataDir = dead
	want := []string{"from the snapshot"}
	for _, line := range []string{"c", "d"} { // and it can be started again
		again := new(ledger)
		n = lead(t, cfg, again)
		propose(t, n, line)
		want = append(want, line)
		if diff := cmp.Diff(want, again.content()); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		if s := n.Status(); s.LogError != "" || s.LastIndex <= 1000 {
			t.Errorf("got the status %+v, want entries above 1000 and no trouble", s)
		}
		stop(t, n)
	}
}

// TestLogStore_gap: the log is only given up where a snapshot has all up to the new
// entry.
func TestLogStore_gap(t *testing.T) {
	s, err := newLogStore(newLogFiles(t.TempDir(), newRaftLogger(testLogger(t))))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	store := func(index uint64) error { return s.StoreLog(&raft.Log{Index: index, Term: 1, Data: []byte("x")}) }
	for index := range uint64(5) {
		if err := store(index + 1); err != nil {
			t.Fatal(err)
		}
	}
	s.covered.Store(8)
	if err := store(10); err == nil {
		t.Error("entry 10 was stored, and neither log nor snapshot has 9")
	}
	if last, err := s.LastIndex(); last != 5 || err != nil {
		t.Errorf("after that the log ends at %d, error %v, want 5", last, err)
	}
	s.covered.Store(9)
	if err := store(10); err != nil {
		t.Errorf("entry 10 behind a snapshot up to 9: %v", err)
	}
	if first, err := s.FirstIndex(); first != 10 || err != nil {
		t.Errorf("the log begins at %d, error %v, want 10", first, err)
	}
}

// TestNode_olderSnapshot: the log keeps what follows the older snapshot, with which
// the node starts when the newest one is damaged.
func TestNode_olderSnapshot(t *testing.T) {
	cfg := testConfig(t.TempDir())
	cfg.Snapshot = SnapshotConfig{Entries: minTrailing, Interval: time.Hour}
	n := lead(t, cfg, new(ledger))
	const step = minTrailing + 200
	for i := range 3 {
		propose(t, n, lines(step*i, step*(i+1))...)
		if err := n.Snapshot(testContext(t)); err != nil {
			t.Fatal(err)
		}
	}
	first, err := n.storage.log.FirstIndex()
	if err != nil || first < step {
		t.Errorf("the log begins at %d, error %v: what both snapshots cover is still there", first, err)
	}
	stop(t, n)
	damageNewest(t, cfg.DataDir, "state.bin")
	fsm := new(ledger)
	n = lead(t, cfg, fsm)
	if diff := cmp.Diff(lines(0, 3*step), fsm.content()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	// And its next snapshot is whole again.
	propose(t, n, lines(3*step, 3*step+10)...)
	if err := n.Snapshot(testContext(t)); err != nil {
		t.Error(err)
	}
}

// damageNewest changes a byte in a file of the newest snapshot.
func damageNewest(t *testing.T, dataDir, file string) {
	t.Helper()
	names := snapshotNames(t, dataDir)
	path := filepath.Join(dataDir, raftDir, snapshotDir, names[len(names)-1], file)
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	content[len(content)/2] ^= 0x80
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestOpen_forgotten: a node that was sent a snapshot has an empty log until the next
// entry. If it cannot read that snapshot it does not start with the one before, with
// which it would have forgotten what it confirmed.
func TestOpen_forgotten(t *testing.T) {
	cfg := testConfig(t.TempDir())
	n := lead(t, cfg, new(ledger))
	for i := range 2 {
		propose(t, n, lines(10*i, 10*(i+1))...)
		if err := n.Snapshot(testContext(t)); err != nil {
			t.Fatal(err)
		}
	}
	first, err := n.storage.log.FirstIndex()
	if err != nil {
		t.Fatal(err)
	}
	last, err := n.storage.log.LastIndex()
	if err != nil {
		t.Fatal(err)
	}
	if err := n.storage.log.DeleteRange(first, last); err != nil { // as raft does with a snapshot that it was sent
		t.Fatal(err)
	}
	sent := t.TempDir() // what the disk has at a kill
	if err := os.CopyFS(sent, os.DirFS(cfg.DataDir)); err != nil {
		t.Fatal(err)
	}
	stop(t, n)
	for _, file := range []string{"state.bin", "meta.json"} {
		t.Run(file, func(t *testing.T) {
			cfg := testConfig(t.TempDir())
			if err := os.CopyFS(cfg.DataDir, os.DirFS(sent)); err != nil {
				t.Fatal(err)
			}
			damageNewest(t, cfg.DataDir, file)
			for range 2 { // and it stays so
				fsm := new(ledger)
				again, err := Open(testContext(t), cfg, fsm)
				if err == nil {
					stop(t, again)
					t.Fatalf("it started with %d of 20 lines", len(fsm.content()))
				}
				if want := fmt.Sprintf("up to entry %d, cannot be read", last); !strings.Contains(err.Error(), want) {
					t.Errorf("Open = %v, want …%s…", err, want)
				}
			}
		})
	}
	t.Run("whole", func(t *testing.T) {
		fsm := new(ledger)
		lead(t, testConfig(sent), fsm)
		if diff := cmp.Diff(lines(0, 20), fsm.content()); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}
