package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/raft"
)

func lines(from, to int) []string {
	var out []string
	for i := from; i < to; i++ {
		out = append(out, fmt.Sprint("line ", i))
	}
	return out
}

func snapshotNames(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(dir, raftDir, snapshotDir))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// TestNode_Snapshot_restart: what a snapshot covers is deleted from the log, and
// a restart has it all the same.
func TestNode_Snapshot_restart(t *testing.T) {
	cfg := testConfig(t.TempDir())
	// As many entries stay, and the ten at the end make no snapshot due.
	cfg.Snapshot = SnapshotConfig{Entries: minTrailing, Interval: time.Hour}
	n := lead(t, cfg, new(ledger))
	propose(t, n, lines(0, minTrailing+172)...)
	if err := n.Snapshot(testContext(t)); err != nil {
		t.Fatal(err)
	}
	first, err := n.storage.log.FirstIndex()
	if err != nil {
		t.Fatal(err)
	}
	status := n.Status()
	if first < 100 || status.LastIndex-first+1 < minTrailing {
		t.Errorf("after a snapshot at %d the log begins at %d and ends at %d: want the old part deleted, and %d entries kept",
			status.SnapshotIndex, first, status.LastIndex, minTrailing)
	}
	if status.SnapshotIndex != status.LastIndex || time.Since(status.SnapshotTime) > patience {
		t.Errorf("snapshot index = %d of %d, time %v", status.SnapshotIndex, status.LastIndex, status.SnapshotTime)
	}
	propose(t, n, lines(minTrailing+172, minTrailing+182)...)
	stop(t, n)

	for range 2 {
		fsm := new(ledger)
		n = lead(t, cfg, fsm)
		if diff := cmp.Diff(lines(0, minTrailing+182), fsm.content()); diff != "" {
			t.Errorf("after a restart (-want +got):\n%s", diff)
		}
		// The time is the folder's, which is a little older.
		if got := n.Status(); got.SnapshotIndex != status.SnapshotIndex || status.SnapshotTime.Sub(got.SnapshotTime).Abs() > patience {
			t.Errorf("snapshot after a restart = %d, %v, want %d, %v", got.SnapshotIndex, got.SnapshotTime, status.SnapshotIndex, status.SnapshotTime)
		}
		stop(t, n)
	}
}

// TestNode_Snapshot_nothingNew: asking again writes nothing, also after a
// restart, whose no-op and barrier are no news.
func TestNode_Snapshot_nothingNew(t *testing.T) {
	cfg := testConfig(t.TempDir())
	n := lead(t, cfg, new(ledger))
	if err := n.Snapshot(testContext(t)); err != nil {
		t.Errorf("Snapshot of a node without commands = %v, want nil", err)
	}
	if got := snapshotNames(t, cfg.DataDir); len(got) != 0 {
		t.Errorf("snapshots of a node without commands: %v", got)
	}
	propose(t, n, "a")
	for range 3 {
		if err := n.Snapshot(testContext(t)); err != nil {
			t.Errorf("Snapshot = %v", err)
		}
	}
	want := snapshotNames(t, cfg.DataDir)
	if len(want) != 1 {
		t.Errorf("snapshots after one command and three requests: %v, want one", want)
	}
	stop(t, n)
	n = lead(t, cfg, new(ledger))
	if err := n.Snapshot(testContext(t)); err != nil {
		t.Errorf("Snapshot after a restart = %v", err)
	}
	if diff := cmp.Diff(want, snapshotNames(t, cfg.DataDir)); diff != "" {
		t.Errorf("snapshots after a restart (-want +got):\n%s", diff)
	}
}

// TestNode_Snapshot_byCount: a node takes one by itself.
func TestNode_Snapshot_byCount(t *testing.T) {
	cfg := testConfig(t.TempDir())
	cfg.Snapshot = SnapshotConfig{Entries: 20, Interval: time.Hour}
	n := lead(t, cfg, new(ledger))
	propose(t, n, lines(0, 25)...)
	eventually(t, "a snapshot after 25 commands with a threshold of 20", func() bool {
		return n.Status().SnapshotIndex >= 20
	})
}

func TestNode_Snapshot_byTime(t *testing.T) {
	cfg := testConfig(t.TempDir())
	cfg.Snapshot = SnapshotConfig{Interval: time.Millisecond}
	n := lead(t, cfg, new(ledger))
	propose(t, n, "a")
	eventually(t, "a snapshot of one command with an interval of 1ms", func() bool {
		return n.Status().SnapshotIndex > 0
	})
}

func TestSnapshotter_due(t *testing.T) {
	start := time.Now()
	tests := map[string]struct {
		command, snapshot uint64
		cost              int
		elapsed           time.Duration
		retryIn           time.Duration
		want              bool
	}{
		"nothing applied":                    {command: 0, elapsed: time.Hour},
		"nothing since the snapshot":         {command: 500, snapshot: 500, elapsed: time.Hour},
		"no-ops since the snapshot":          {command: 498, snapshot: 500, elapsed: time.Hour},
		"too few, too early":                 {command: 599, snapshot: 500, elapsed: time.Second},
		"enough":                             {command: 600, snapshot: 500, elapsed: time.Second, want: true},
		"one, after the interval":            {command: 501, snapshot: 500, elapsed: time.Minute, want: true},
		"one, just before the interval":      {command: 501, snapshot: 500, elapsed: time.Minute - 1},
		"not enough for a large state":       {command: 1499, snapshot: 500, cost: 1000, elapsed: time.Second},
		"enough for a large state":           {command: 1500, snapshot: 500, cost: 1000, elapsed: time.Second, want: true},
		"a small state changes nothing":      {command: 600, snapshot: 500, cost: 99, elapsed: time.Second, want: true},
		"a large state, after the interval":  {command: 501, snapshot: 500, cost: 1000, elapsed: time.Minute, want: true},
		"a cost that is nonsense":            {command: 600, snapshot: 500, cost: -5, elapsed: time.Second, want: true},
		"the last one failed":                {command: 600, snapshot: 500, elapsed: time.Minute, retryIn: time.Second},
		"the last one failed some time ago ": {command: 600, snapshot: 500, elapsed: time.Minute, retryIn: -time.Second, want: true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			m := newMachine(&ledger{cost: test.cost})
			m.command.Store(test.command)
			s := newSnapshotter(SnapshotConfig{Entries: 100, Interval: time.Minute}, slog.New(slog.DiscardHandler), m,
				&snapshotStore{index: test.snapshot}, nil)
			s.since = start
			now := start.Add(test.elapsed)
			if test.retryIn != 0 {
				s.retryAt = now.Add(test.retryIn)
			}
			if got := s.due(now); got != test.want {
				t.Errorf("due = %v, want %v", got, test.want)
			}
		})
	}
}

// TestSnapshotter_retry: a failure postpones the next attempt, success lifts it.
func TestSnapshotter_retry(t *testing.T) {
	broken := errors.New("disk full")
	m := newMachine(new(ledger))
	m.command.Store(5)
	answer := broken
	s := newSnapshotter(SnapshotConfig{Entries: 1, Interval: time.Minute}, slog.New(slog.DiscardHandler), m,
		new(snapshotStore), func() error { return answer })
	s.since = time.Now()
	if err := s.snapshot(); !errors.Is(err, broken) {
		t.Errorf("snapshot = %v, want %v", err, broken)
	}
	if s.due(time.Now()) || !s.due(time.Now().Add(snapshotRetry)) {
		t.Errorf("due now = %v, after %v = %v; want false, true", s.due(time.Now()), snapshotRetry, s.due(time.Now().Add(snapshotRetry)))
	}
	answer = nil
	if err := s.snapshot(); err != nil {
		t.Errorf("snapshot = %v", err)
	}
	if !s.due(time.Now()) {
		t.Error("due = false after a success, though nothing was covered")
	}
	answer = raft.ErrNothingNewToSnapshot
	if err := s.snapshot(); err != nil {
		t.Errorf("snapshot with nothing new = %v, want nil", err)
	}
}

// stubborn is a ledger whose snapshots wait, or fail, while they are written.
type stubborn struct {
	ledger

	entered chan struct{}
	outcome chan error
}

func (s *stubborn) Snapshot() (raft.FSMSnapshot, error) {
	return &stubbornSnapshot{s, s.content()}, nil
}

type stubbornSnapshot struct {
	fsm     *stubborn
	content frozen
}

func (s *stubbornSnapshot) Persist(sink raft.SnapshotSink) error {
	s.fsm.entered <- struct{}{}
	if err := <-s.fsm.outcome; err != nil {
		return err
	}
	return s.content.Persist(sink)
}

func (*stubbornSnapshot) Release() {}

// TestNode_Snapshot_beside: commands are applied while a snapshot is written, a
// caller stops waiting for it when it likes, and a failed one changes nothing.
func TestNode_Snapshot_beside(t *testing.T) {
	cfg := testConfig(t.TempDir())
	fsm := &stubborn{entered: make(chan struct{}), outcome: make(chan error)}
	n := lead(t, cfg, fsm)
	propose(t, n, "a")
	why := errors.New("caller left")
	ctx, cancel := context.WithCancelCause(context.Background())
	done := make(chan error, 1)
	go func() { done <- n.Snapshot(ctx) }()
	<-fsm.entered
	propose(t, n, "b")
	cancel(why)
	if err := <-done; !errors.Is(err, why) {
		t.Errorf("Snapshot whose caller left = %v, want %v", err, why)
	}
	broken := errors.New("disk full")
	go func() { done <- n.Snapshot(testContext(t)) }()
	fsm.outcome <- broken // the first
	<-fsm.entered
	fsm.outcome <- broken // the second
	if err := <-done; err == nil || !strings.Contains(err.Error(), broken.Error()) {
		t.Errorf("Snapshot that cannot be written = %v, want %v", err, broken)
	}
	if got := n.Status().SnapshotIndex; got != 0 {
		t.Errorf("snapshot index after two failures = %d, want 0", got)
	}

	// Close finishes the one that is being written.
	go func() { done <- n.Snapshot(testContext(t)) }()
	<-fsm.entered
	closed := make(chan error, 1)
	go func() { closed <- n.Close(testContext(t)) }()
	eventually(t, "Close has begun", func() bool {
		_, err := n.Propose(testContext(t), []byte("c"))
		return errors.Is(err, ErrClosed)
	})
	fsm.outcome <- nil
	if err := errors.Join(<-done, <-closed); err != nil {
		t.Errorf("Snapshot and Close = %v", err)
	}
	if got := snapshotNames(t, cfg.DataDir); len(got) != 1 || strings.HasSuffix(got[0], tempSuffix) {
		t.Errorf("snapshots = %v, want one that is complete", got)
	}
}

type brokenSink struct {
	raft.SnapshotSink

	err error
}

func (b *brokenSink) Close() error  { return b.err }
func (b *brokenSink) Cancel() error { return nil }

// TestSnapshotSink_Close: raft closes a sink again that the FSM has closed, and
// deletes entries when the second answer is nil.
func TestSnapshotSink_Close(t *testing.T) {
	broken := errors.New("disk full")
	inner := &brokenSink{err: broken}
	store := new(snapshotStore)
	sink := &snapshotSink{SnapshotSink: inner, store: store, index: 7}
	first := sink.Close()
	inner.err = nil
	second := sink.Close()
	if !errors.Is(first, broken) || !errors.Is(second, broken) {
		t.Errorf("Close = %v, again %v; want %v twice", first, second, broken)
	}
	if index, _ := store.latest(); index != 0 {
		t.Errorf("newest snapshot = %d, want none", index)
	}

	canceled := &snapshotSink{SnapshotSink: inner, store: store, index: 8}
	if err := canceled.Cancel(); err != nil {
		t.Errorf("Cancel = %v", err)
	}
	if err := canceled.Close(); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("Close after Cancel = %v, want %v", err, io.ErrClosedPipe)
	}
	if index, _ := store.latest(); index != 0 {
		t.Errorf("newest snapshot = %d, want none", index)
	}
}

// TestNode_Snapshot_damaged: the older snapshot and the log behind it stand in
// for one that was damaged; without them the node refuses to start.
func TestNode_Snapshot_damaged(t *testing.T) {
	cfg := testConfig(t.TempDir())
	n := lead(t, cfg, new(ledger))
	propose(t, n, lines(0, 10)...)
	if err := n.Snapshot(testContext(t)); err != nil {
		t.Fatal(err)
	}
	propose(t, n, lines(10, 20)...)
	if err := n.Snapshot(testContext(t)); err != nil {
		t.Fatal(err)
	}
	stop(t, n)
	names := snapshotNames(t, cfg.DataDir)
	if len(names) != 2 {
		t.Fatalf("snapshots = %v, want two", names)
	}
	damage := func(name string) {
		path := filepath.Join(cfg.DataDir, raftDir, snapshotDir, name, "state.bin")
		if err := os.WriteFile(path, []byte(`["something else"]`), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	damage(names[1])
	fsm := new(ledger)
	stop(t, lead(t, cfg, fsm))
	if diff := cmp.Diff(lines(0, 20), fsm.content()); diff != "" {
		t.Errorf("with a damaged newest snapshot (-want +got):\n%s", diff)
	}
	damage(names[0])
	if _, err := Open(testContext(t), cfg, new(ledger)); err == nil || !strings.Contains(err.Error(), "failed to load any existing snapshots") {
		t.Errorf("Open with two damaged snapshots = %v, want a refusal", err)
	}
}

// TestOpen_snapshotsGone: the log alone has lost its beginning.
func TestOpen_snapshotsGone(t *testing.T) {
	cfg := testConfig(t.TempDir())
	cfg.Snapshot.Entries = 1
	n := lead(t, cfg, new(ledger))
	propose(t, n, lines(0, minTrailing+72)...)
	if err := n.Snapshot(testContext(t)); err != nil {
		t.Fatal(err)
	}
	stop(t, n)
	if err := os.RemoveAll(filepath.Join(cfg.DataDir, raftDir, snapshotDir)); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(testContext(t), cfg, new(ledger)); err == nil || !strings.Contains(err.Error(), "what is between them is gone") {
		t.Errorf("Open without the snapshots = %v, want a refusal", err)
	}
}
