package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"leased/test/proc"

	"github.com/hashicorp/raft"
)

// patience bounds what a test waits for; no test takes a small part of it.
const patience = 20 * time.Second

// ledger is an FSM that keeps its commands in order.
type ledger struct {
	mu    sync.Mutex
	lines []string
	cost  int
	// hold, when set, is received from before each Apply; entered, when set, is
	// sent to at its begin.
	hold    <-chan struct{}
	entered chan<- struct{}
}

func (l *ledger) Apply(entry *raft.Log) any {
	l.mu.Lock()
	hold, entered := l.hold, l.entered
	l.mu.Unlock()
	if entered != nil {
		entered <- struct{}{}
	}
	if hold != nil {
		<-hold
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if string(entry.Data) == "panic" {
		panic("ledger: unknown command")
	}
	l.lines = append(l.lines, string(entry.Data))
	return entry.Index
}

func (l *ledger) content() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]string{}, l.lines...)
}

func (l *ledger) SnapshotCost() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.cost
}

func (l *ledger) Snapshot() (raft.FSMSnapshot, error) {
	return frozen(l.content()), nil
}

func (l *ledger) Restore(from io.ReadCloser) error {
	var lines []string
	if err := json.NewDecoder(from).Decode(&lines); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = lines
	return nil
}

type frozen []string

func (f frozen) Persist(sink raft.SnapshotSink) error {
	if err := json.NewEncoder(sink).Encode([]string(f)); err != nil {
		return err
	}
	return sink.Close()
}

func (frozen) Release() {}

func testContext(tb testing.TB) context.Context {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	tb.Cleanup(cancel)
	return ctx
}

func testConfig(dir string) Config {
	return Config{NodeID: "n1", DataDir: dir}
}

// start opens a node that is closed at the end of the test.
func start(tb testing.TB, cfg Config, fsm raft.FSM) *Node {
	tb.Helper()
	n, err := Open(testContext(tb), cfg, fsm)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		// A test that closed the node itself looked at the answer; this is the same.
		_ = n.Close(ctx)
	})
	return n
}

func stop(tb testing.TB, n *Node) {
	tb.Helper()
	if err := n.Close(testContext(tb)); err != nil {
		tb.Fatal(err)
	}
}

// waitLeader returns the term in which n leads.
func waitLeader(tb testing.TB, n *Node) uint64 {
	tb.Helper()
	ctx := testContext(tb)
	for {
		term, changed := n.Leadership()
		if term != 0 {
			return term
		}
		select {
		case <-changed:
		case <-ctx.Done():
			tb.Fatalf("node %s does not lead after %v; status: %+v", n.cfg.NodeID, patience, n.Status())
		}
	}
}

// lead starts a node and waits until it leads.
func lead(tb testing.TB, cfg Config, fsm raft.FSM) *Node {
	tb.Helper()
	n := start(tb, cfg, fsm)
	waitLeader(tb, n)
	return n
}

func propose(tb testing.TB, n *Node, commands ...string) {
	tb.Helper()
	for _, command := range commands {
		if _, err := n.Propose(testContext(tb), []byte(command)); err != nil {
			tb.Fatalf("propose %q: %v", command, err)
		}
	}
}

// eventually waits for what nothing signals.
func eventually(tb testing.TB, what string, ok func() bool) {
	tb.Helper()
	proc.Until(tb, what, patience, ok)
}

// testLogger shows a node's lines in the test's output.
func testLogger(tb testing.TB) *slog.Logger {
	tb.Helper()
	return slog.New(slog.NewTextHandler(tb.Output(), &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// folder changes what is in a node's folder while no node runs there.
type folder struct {
	t   *testing.T
	cfg Config
}

func (f *folder) path(name string) string {
	return filepath.Join(f.cfg.DataDir, raftDir, name)
}

func (f *folder) remove(name string) {
	f.t.Helper()
	if err := os.RemoveAll(f.path(name)); err != nil {
		f.t.Fatal(err)
	}
}

func (f *folder) truncate(name string) {
	f.t.Helper()
	if err := os.Truncate(f.path(name), 0); err != nil {
		f.t.Fatal(err)
	}
}

// write also creates the folders above.
func (f *folder) write(name, content string) {
	f.t.Helper()
	if err := os.MkdirAll(filepath.Dir(f.path(name)), 0o700); err != nil {
		f.t.Fatal(err)
	}
	if err := os.WriteFile(f.path(name), []byte(content), 0o600); err != nil {
		f.t.Fatal(err)
	}
}

// writeLog creates a log with what fill puts there.
func (f *folder) writeLog(fill func(*logStore) error) {
	f.t.Helper()
	store, err := openLog(f.path(logDir), newRaftLogger(testLogger(f.t)))
	if err != nil {
		f.t.Fatal(err)
	}
	if err := errors.Join(fill(store), store.Close()); err != nil {
		f.t.Fatal(err)
	}
}

func openLog(dir string, logger *raftLogger) (*logStore, error) {
	return newLogStore(newLogFiles(dir, logger))
}
