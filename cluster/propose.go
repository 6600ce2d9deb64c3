package cluster

import (
	"context"
	"fmt"
)

// maxInFlight is how many commands raft holds at most, from being taken to being
// answered. raft's queue has room for maxBatch; the rest is for barriers. So
// raft takes a command at once, whatever its main loop is waiting for, and all
// waiting for a place is done here, where a context can end it.
const maxInFlight = maxBatch - 8

// ErrNotSubmitted says that ctx ended before raft took the command, which is
// certainly not applied. It comes with the cause of ctx's end.
var ErrNotSubmitted error = &fate{"command was not submitted", false}

// ErrNoAnswer says that ctx ended after raft took the command, which may be
// applied, now or later. It comes with the cause of ctx's end.
var ErrNoAnswer error = &fate{"command was submitted and has no answer yet", true}

// ErrClosed says that the node is closed or closing. The command of a Propose
// that returns it was not submitted.
var ErrClosed error = &fate{"node is closed", false}

// fate is an error that tells whether a command reached raft. The method lets
// the FSM's owner tell the two apart without importing this package.
type fate struct {
	text      string
	submitted bool
}

// Error implements error.
func (f *fate) Error() string { return f.text }

// Submitted tells whether raft took the command, so that it may be applied.
func (f *fate) Submitted() bool { return f.submitted }

// Propose appends command to the log and returns what the FSM's Apply returned
// for it. ctx bounds all of it; raft's own timeout would bound only the time
// until raft takes the command.
//
// raft keeps command for followers and its cache: it must never be changed
// afterwards, whatever Propose returned.
//
// Errors: ErrClosed and ErrNotSubmitted (certainly not applied) and ErrNoAnswer
// (may be applied), which have a method Submitted() bool; and raft's own, wrapped.
// Of those raft.ErrNotLeader and raft.ErrLeadershipTransferInProgress mean not
// applied; everything else, raft.ErrLeadershipLost and a failed disk included, may
// have been applied.
func (n *Node) Propose(ctx context.Context, command []byte) (any, error) {
	if ctx.Err() != nil {
		return nil, fmt.Errorf("%w: %w", ErrNotSubmitted, context.Cause(ctx))
	}
	if !n.calls.enter() {
		return nil, ErrClosed
	}
	if err := n.places.take(ctx); err != nil {
		n.calls.leave()
		return nil, fmt.Errorf("%w: %w", ErrNotSubmitted, err)
	}
	p := &proposal{command: command, answers: make(chan answer, 1)}
	n.batches.put(p)
	select {
	case a := <-p.answers:
		return a.result()
	case <-ctx.Done():
	}
	if n.batches.remove(p) {
		n.places.free()
		n.calls.leave()
		return nil, fmt.Errorf("%w: %w", ErrNotSubmitted, context.Cause(ctx))
	}
	select {
	case a := <-p.answers: // both were ready
		return a.result()
	default:
		return nil, fmt.Errorf("%w: %w", ErrNoAnswer, context.Cause(ctx))
	}
}

type answer struct {
	response any
	err      error
}

func (a answer) result() (any, error) {
	if a.err != nil {
		return nil, fmt.Errorf("propose: %w", a.err)
	}
	return a.response, nil
}

// places is what can be taken by a limited number of callers at a time.
type places chan struct{}

// take returns the cause of ctx's end if that comes before a place is free.
func (p places) take(ctx context.Context) error {
	select {
	case p <- struct{}{}:
		return nil
	default:
	}
	select {
	case p <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (p places) free() {
	<-p
}
