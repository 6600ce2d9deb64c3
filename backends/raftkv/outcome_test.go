package raftkv

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/hashicorp/raft"

	"leased/contract"
)

type fate struct{ submitted bool }

func (f fate) Error() string   { return "fate" }
func (f fate) Submitted() bool { return f.submitted }

// What is certainly not applied is an allow-list: an error that nobody thought
// of must be an unknown outcome.
func TestClassify(t *testing.T) {
	live := t.Context()
	over, cancel := context.WithCancel(live)
	cancel()
	for _, tt := range []struct {
		name string
		ctx  context.Context
		err  error
		want contract.Code
	}{
		{"not leader", live, raft.ErrNotLeader, contract.CodeUnavailable},
		{"transfer", live, raft.ErrLeadershipTransferInProgress, contract.CodeUnavailable},
		{"aborted by restore", live, raft.ErrAbortedByRestore, contract.CodeUnavailable},
		{"queue full", live, raft.ErrEnqueueTimeout, contract.CodeUnavailable},
		{"queue full until the deadline", over, raft.ErrEnqueueTimeout, contract.CodeTimeout},
		{"not handed over", over, fate{false}, contract.CodeTimeout},
		{"closed before", live, fate{false}, contract.CodeUnavailable},
		{"handed over, no answer", over, fate{true}, contract.CodeOutcomeUnknown},
		{"leadership lost", live, raft.ErrLeadershipLost, contract.CodeOutcomeUnknown},
		{"shutdown", live, raft.ErrRaftShutdown, contract.CodeOutcomeUnknown},
		{"anything else", live, errors.New("disk on fire"), contract.CodeOutcomeUnknown},
		{"wrapped", live, fmt.Errorf("propose: %w", raft.ErrNotLeader), contract.CodeUnavailable},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := classify(tt.ctx, tt.err); got.Code != tt.want || !errors.Is(got, tt.err) && tt.want != contract.CodeTimeout {
				t.Errorf("classify(%v) = %v, want %v", tt.err, got, tt.want)
			}
		})
	}
}
