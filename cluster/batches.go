package cluster

import (
	"slices"
	"sync"

	"github.com/hashicorp/raft"
)

// proposal is a command on its way.
type proposal struct {
	command []byte
	answers chan answer // gets one
}

// batches hands commands to raft, one batch at a time: what comes while a batch
// is on its way to the FSM gathers for the next one.
//
// raft's main loop writes what it is given and starts the FSM on what is
// committed, in the order that chance has it when both can be done. Given
// commands at any time it would write the next batch before it passes on the one
// that is committed, every other time, and each such caller would wait for an
// fsync more.
type batches struct {
	submit func(command []byte) raft.ApplyFuture
	// done is called for each command that raft has answered.
	done func()

	mu      sync.Mutex
	queue   []*proposal
	current *flight // the batch on its way; nil when raft may be given another
}

// flight is a batch on its way to the FSM.
type flight struct {
	left int // commands that have not come to the FSM
}

// put queues a proposal and sends it at once if none is on its way.
func (b *batches) put(p *proposal) {
	b.mu.Lock()
	b.queue = append(b.queue, p)
	b.next()
}

// remove tells whether p was still in the queue, and now is not.
func (b *batches) remove(p *proposal) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	i := slices.Index(b.queue, p)
	if i < 0 {
		return false
	}
	b.queue = slices.Delete(b.queue, i, i+1)
	return true
}

// arrived is told that the FSM is about to apply so many commands.
func (b *batches) arrived(commands int) {
	b.mu.Lock()
	if b.current == nil {
		b.mu.Unlock()
		return
	}
	if b.current.left -= commands; b.current.left <= 0 {
		b.current = nil
	}
	b.next()
}

// next sends the next batch, if there is one and raft may be given it. b.mu is
// held, and released.
func (b *batches) next() {
	if b.current != nil || len(b.queue) == 0 {
		b.mu.Unlock()
		return
	}
	batch := b.queue
	b.queue = make([]*proposal, 0, cap(batch))
	f := &flight{left: len(batch)}
	b.current = f
	b.mu.Unlock()
	futures := make([]raft.ApplyFuture, len(batch))
	for i, p := range batch {
		futures[i] = b.submit(p.command)
	}
	go b.collect(f, batch, futures)
}

// collect answers the proposals of a batch as raft answers it, which is in their
// order.
//
// It and not the callers is what Close waits for: raft never answers commands
// that it still holds when it is shut down.
func (b *batches) collect(f *flight, batch []*proposal, futures []raft.ApplyFuture) {
	for i, p := range batch {
		a := answer{err: futures[i].Error()}
		if a.err == nil {
			a.response = futures[i].Response()
		}
		p.answers <- a
		b.done()
	}
	// Not all came to the FSM if raft refused some.
	b.mu.Lock()
	if b.current == f {
		b.current = nil
	}
	b.next()
}
