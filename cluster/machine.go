package cluster

import (
	"context"
	"io"
	"sync"
	"sync/atomic"

	"github.com/hashicorp/raft"
)

var _ raft.BatchingFSM = (*machine)(nil)

// machine is the FSM that raft sees. It hands commands to the real one and knows
// how far that has come: raft's own AppliedIndex counts what was sent to the
// FSM, not what the FSM has done.
//
// It is a BatchingFSM whatever it wraps, for two reasons beyond speed. raft
// answers the caller of an Apply that panics with success before the panic ends
// the process, but not the callers of an ApplyBatch. And for an FSM that takes
// single entries raft does not count configuration entries as applied, after
// which snapshots fail until the next command.
type machine struct {
	fsm   raft.FSM
	batch raft.BatchingFSM // nil when fsm takes entries one by one

	// applied is the index up to which the FSM has seen everything. Entries that
	// raft keeps to itself (no-ops, barriers) are counted when a later entry
	// arrives or a barrier returns, see advance.
	applied atomic.Uint64
	// command is the index of the last command applied, or of the restored
	// snapshot: a snapshot later than that holds nothing new.
	command atomic.Uint64

	// arriving is told how many commands are about to be applied.
	arriving func(commands int)
	// covered is told up to which index the FSM was given a snapshot.
	covered func(index uint64)

	waiting atomic.Int64
	mu      sync.Mutex
	moved   chan struct{} // closed at the next advance; nil when nobody waits
}

func newMachine(fsm raft.FSM) *machine {
	m := &machine{fsm: fsm}
	m.batch, _ = fsm.(raft.BatchingFSM)
	return m
}

// ApplyBatch implements raft.BatchingFSM. The wrapped FSM gets commands only.
func (m *machine) ApplyBatch(entries []*raft.Log) []any {
	if len(entries) == 0 {
		return nil
	}
	commands := onlyCommands(entries)
	if m.arriving != nil {
		m.arriving(len(commands))
	}
	answers := m.apply(commands)
	if len(commands) > 0 {
		m.command.Store(commands[len(commands)-1].Index)
	}
	m.advance(entries[len(entries)-1].Index)
	if len(commands) == len(entries) {
		return answers
	}
	spread := make([]any, len(entries))
	for i, next := 0, 0; i < len(entries); i++ {
		if entries[i].Type == raft.LogCommand {
			spread[i], next = answers[next], next+1
		}
	}
	return spread
}

func (m *machine) apply(commands []*raft.Log) []any {
	if m.batch != nil {
		if len(commands) == 0 {
			return nil
		}
		return m.batch.ApplyBatch(commands)
	}
	answers := make([]any, len(commands))
	for i, command := range commands {
		answers[i] = m.fsm.Apply(command)
	}
	return answers
}

// onlyCommands returns entries itself when they all are commands, which is
// nearly always.
func onlyCommands(entries []*raft.Log) []*raft.Log {
	n := 0
	for _, e := range entries {
		if e.Type == raft.LogCommand {
			n++
		}
	}
	if n == len(entries) {
		return entries
	}
	commands := make([]*raft.Log, 0, n)
	for _, e := range entries {
		if e.Type == raft.LogCommand {
			commands = append(commands, e)
		}
	}
	return commands
}

// Apply implements raft.FSM. raft calls ApplyBatch.
func (m *machine) Apply(entry *raft.Log) any {
	return m.ApplyBatch([]*raft.Log{entry})[0]
}

// Snapshot implements raft.FSM.
func (m *machine) Snapshot() (raft.FSMSnapshot, error) {
	return m.fsm.Snapshot()
}

// Restore implements raft.FSM. The FSM is not told which index a snapshot has,
// but the reader is this package's, below the one with which raft counts bytes.
func (m *machine) Restore(from io.ReadCloser) error {
	inner := from
	if w, ok := from.(raft.ReadCloserWrapper); ok {
		inner = w.WrappedReadCloser()
	}
	if err := m.fsm.Restore(from); err != nil {
		return err
	}
	if s, ok := inner.(*snapshotReader); ok {
		if m.covered != nil {
			m.covered(s.index)
		}
		m.command.Store(s.index)
		m.advance(s.index)
	}
	return nil
}

// advance records that the FSM has seen everything up to index.
func (m *machine) advance(index uint64) {
	for {
		applied := m.applied.Load()
		if index <= applied {
			return
		}
		if m.applied.CompareAndSwap(applied, index) {
			break
		}
	}
	// A waiter counts itself before it looks at applied, so either it sees the new
	// value or it is seen here.
	if m.waiting.Load() == 0 {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.moved != nil {
		close(m.moved)
		m.moved = nil
	}
}

// wait returns nil when the FSM has seen everything up to index, or the cause of
// ctx's end.
func (m *machine) wait(ctx context.Context, index uint64) error {
	if m.applied.Load() >= index {
		return nil
	}
	m.waiting.Add(1)
	defer m.waiting.Add(-1)
	for {
		m.mu.Lock()
		if m.moved == nil {
			m.moved = make(chan struct{})
		}
		moved := m.moved
		m.mu.Unlock()
		if m.applied.Load() >= index {
			return nil
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
