package raftkv

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/hashicorp/raft"
)

// batch is what came of applying some entries: what the node that leads has to
// tell somebody about.
type batch struct {
	served []served
	events []event
}

// FSM is the replicated state machine. It implements raft.FSM and
// raft.BatchingFSM and is given to the node that runs the log; Engine reads it.
type FSM struct {
	codec codec
	rings rings
	// texts and incoming are used by ApplyBatch, Restore and Snapshot, which raft
	// calls one at a time.
	texts    *interner
	incoming *incoming // nil except between the parts of a restore
	// restoring tells everybody else that incoming is not nil.
	restoring atomic.Bool

	mu    sync.RWMutex
	state *state
	// heard is called after each batch, in order and without the lock.
	heard func(batch)
	// restored is called after the state was replaced, without the lock.
	restored func()
}

var (
	_ raft.FSM         = (*FSM)(nil)
	_ raft.BatchingFSM = (*FSM)(nil)
)

// NewFSM returns an empty state machine.
func NewFSM() *FSM {
	return &FSM{codec: newCodec(), state: newState(), rings: newRings(ringSize), texts: newInterner()}
}

// listen makes f the one that hears of what is applied, and of a state that takes
// the place of this one.
func (f *FSM) listen(heard func(batch), restored func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.heard, f.restored = heard, restored
}

// Apply carries out one entry.
func (f *FSM) Apply(l *raft.Log) any { return f.ApplyBatch([]*raft.Log{l})[0] }

// ApplyBatch carries out entries in order. An entry that this release does not
// know stops the process: to skip it would let this node diverge from those
// that do know it. The remedy is to run the release that wrote it.
func (f *FSM) ApplyBatch(logs []*raft.Log) []any {
	entries := make([]decoded, len(logs))
	for i, l := range logs {
		if l.Type != raft.LogCommand {
			continue
		}
		h, body, err := f.codec.decode(l.Data)
		if err != nil {
			panic(fmt.Sprintf("raftkv: log entry %d cannot be applied: %v. "+
				"It was written by another release of leased; run that release or a later one on this data.", l.Index, err))
		}
		if c, ok := body.(*acquireCmd); ok {
			f.texts.acquire(c)
		}
		entries[i] = decoded{h, body}
	}

	answers := make([]any, len(logs))
	for i := 0; i < len(logs); {
		if c, ok := entries[i].body.(*restoreCmd); ok {
			answers[i] = f.applyRestore(logs[i], entries[i].header, c)
			i++
			continue
		}
		end := i + 1
		for end < len(logs) && entries[end].header.kind != kindRestore {
			end++
		}
		f.applyAll(logs[i:end], entries[i:end], answers[i:end])
		i = end
	}
	return answers
}

// decoded is an entry; its body is nil where the log has something of its own.
type decoded struct {
	header header
	body   any
}

// applyAll carries out entries that are no parts of a restore.
func (f *FSM) applyAll(logs []*raft.Log, entries []decoded, answers []any) {
	var b batch
	f.mu.Lock()
	for i, l := range logs {
		if entries[i].body == nil {
			continue
		}
		st := step{state: f.state}
		answers[i] = st.apply(l.Index, l.Term, entries[i].header, entries[i].body)
		if entries[i].header.kind == kindTakeover {
			f.giveUp() // who sent its parts sends no more
		}
		b.events = append(b.events, st.events...)
		b.served = append(b.served, st.served...)
	}
	f.rings.append(b.events, f.state.index)
	heard := f.heard
	f.mu.Unlock()

	if heard != nil && (len(b.events) > 0 || len(b.served) > 0) {
		heard(b)
	}
}

// SnapshotCost returns the number of records that a snapshot would write.
func (f *FSM) SnapshotCost() int {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.state.keys.Len() + f.state.ended.Len() + f.state.answers.Len() + f.state.bulked + f.state.queue.Len()
}

// agenda is what the sweeper needs to know.
type agenda struct {
	now      int64 // the state's clock
	offset   int64
	expiry   int64 // the earliest expiry; 0 = no lease is active
	cleaning int64 // the earliest instant at which something can be forgotten; 0 = none
}

func (f *FSM) agenda() agenda {
	f.mu.RLock()
	defer f.mu.RUnlock()
	s := f.state
	a := agenda{now: s.now, offset: s.offset}
	if d, ok := s.expiries.Min(); ok {
		a.expiry = d.at
	}
	consider := func(at int64) {
		if a.cleaning == 0 || at < a.cleaning {
			a.cleaning = at
		}
	}
	if d, ok := s.nextAnswerDrop(); ok {
		consider(d.at)
	}
	if d, ok := s.endedDrops.Min(); ok {
		consider(d.at)
	}
	if d, ok := s.placeDrops.Min(); ok {
		consider(d.at)
	}
	return a
}

// Clock returns where the replicated clock stands, in nanoseconds.
func (f *FSM) Clock() int64 { return f.agenda().now }

// index returns the newest entry of the state.
func (f *FSM) index() uint64 {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.state.index
}
