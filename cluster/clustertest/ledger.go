package clustertest

import (
	"encoding/json"
	"io"
	"slices"
	"sync"

	"github.com/hashicorp/raft"
)

// Ledger is an FSM that keeps its commands in order.
type Ledger struct {
	mu    sync.Mutex
	lines []string
}

// Apply implements raft.FSM.
func (l *Ledger) Apply(entry *raft.Log) any {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, string(entry.Data))
	return entry.Index
}

// Lines returns what was applied.
func (l *Ledger) Lines() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.lines)
}

// Snapshot implements raft.FSM.
func (l *Ledger) Snapshot() (raft.FSMSnapshot, error) { return lines(l.Lines()), nil }

// Restore implements raft.FSM.
func (l *Ledger) Restore(from io.ReadCloser) error {
	var restored []string
	if err := json.NewDecoder(from).Decode(&restored); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = restored
	return nil
}

type lines []string

// Persist implements raft.FSMSnapshot.
func (l lines) Persist(sink raft.SnapshotSink) error {
	if err := json.NewEncoder(sink).Encode([]string(l)); err != nil {
		return err
	}
	return sink.Close()
}

// Release implements raft.FSMSnapshot.
func (lines) Release() {}
