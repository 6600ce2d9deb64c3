package cluster

import (
	"runtime"
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
// fsync more. An fsync and the goroutines that it wakes cost more than ten
// commands do, so that larger batches are worth a moment, see send.
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

// put queues a proposal, and sends it if none is on its way.
func (b *batches) put(p *proposal) {
	b.mu.Lock()
	b.queue = append(b.queue, p)
	b.move()
}

// move sends the next batch if it is time for one. b.mu is held, and released.
func (b *batches) move() {
	f := b.claim()
	b.mu.Unlock()
	if f != nil {
		b.send(f)
	}
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
	f := b.claim()
	b.mu.Unlock()
	if f != nil {
		go b.send(f) // the FSM shall not wait for it
	}
}

// claim returns the next batch, still without commands, if there are any and
// raft may be given them. b.mu is held.
func (b *batches) claim() *flight {
	if b.current != nil || len(b.queue) == 0 {
		return nil
	}
	b.current = new(flight)
	return b.current
}

// send gives a batch to raft. Whoever can run now runs first: on a busy machine
// those who are about to propose get into this batch, on an idle one it is
// nobody.
func (b *batches) send(f *flight) {
	runtime.Gosched()
	b.mu.Lock()
	batch := b.queue
	b.queue = make([]*proposal, 0, cap(batch))
	f.left = len(batch)
	if len(batch) == 0 { // they gave up meanwhile
		if b.current == f {
			b.current = nil
		}
		b.mu.Unlock()
		return
	}
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
	b.move()
}
