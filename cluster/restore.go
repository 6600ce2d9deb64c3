package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/hashicorp/raft"
)

// restoreTimeout bounds how long a restore waits for raft to take it, and for the
// entry that follows it; the copying takes as long as it takes.
const restoreTimeout = 30 * time.Second

// Restore replaces the state of the whole cluster by a snapshot of the FSM with
// size bytes, which must be whole and right: a state that the FSM refuses ends the
// process. The log goes on at an index above index and above all of its own.
// Commands that are on their way are answered with raft.ErrAbortedByRestore.
//
// Only the leader can: raft.ErrNotLeader otherwise. While from is read the node
// does nothing else. An error from after that may leave the new state in place.
func (n *Node) Restore(ctx context.Context, index uint64, size int64, from io.Reader) error {
	if !n.calls.enter() {
		return ErrClosed
	}
	defer n.calls.leave()
	meta := &raft.SnapshotMeta{Version: raft.SnapshotVersionMax, Index: index, Size: size}
	if err := n.raft.Restore(meta, &untilDone{ctx, from}, restoreTimeout); err != nil {
		return fmt.Errorf("restore: %w", err)
	}
	// raft has written an entry of its own behind the snapshot, which the FSM does
	// not see: without this, Confirm would wait for the next command.
	barrier := n.raft.Barrier(restoreTimeout)
	if err := barrier.Error(); err != nil {
		return fmt.Errorf("restore: %w", err)
	}
	entry, ok := barrier.(raft.IndexFuture)
	if !ok {
		return errors.New("restore: raft's barrier has no index")
	}
	n.machine.advance(entry.Index())
	return nil
}

// untilDone reads until its context ends.
type untilDone struct {
	ctx  context.Context //nolint:containedctx // an io.Reader has no other way to be told
	from io.Reader
}

// Read implements io.Reader.
func (u *untilDone) Read(p []byte) (int, error) {
	if u.ctx.Err() != nil {
		return 0, context.Cause(u.ctx)
	}
	return u.from.Read(p)
}
