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
		over bool // the context has ended
		err  error
		want contract.Code
	}{
		{"not leader", false, raft.ErrNotLeader, contract.CodeUnavailable},
		{"transfer", false, raft.ErrLeadershipTransferInProgress, contract.CodeUnavailable},
		{"aborted by restore", false, raft.ErrAbortedByRestore, contract.CodeOutcomeUnknown},
		{"queue full", false, raft.ErrEnqueueTimeout, contract.CodeUnavailable},
		{"queue full until the deadline", true, raft.ErrEnqueueTimeout, contract.CodeTimeout},
		{"not handed over", true, fate{false}, contract.CodeTimeout},
		{"closed before", false, fate{false}, contract.CodeUnavailable},
		{"handed true, no answer", true, fate{true}, contract.CodeOutcomeUnknown},
		{"leadership lost", false, raft.ErrLeadershipLost, contract.CodeOutcomeUnknown},
		{"shutdown", false, raft.ErrRaftShutdown, contract.CodeOutcomeUnknown},
		{"anything else", false, errors.New("disk on fire"), contract.CodeOutcomeUnknown},
		{"wrapped", false, fmt.Errorf("propose: %w", raft.ErrNotLeader), contract.CodeUnavailable},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ctx := live
			if tt.over {
				ctx = over
			}
			if got := classify(ctx, tt.err); got.Code != tt.want || !errors.Is(got, tt.err) && tt.want != contract.CodeTimeout {
				t.Errorf("classify(%v) = %v, want %v", tt.err, got, tt.want)
			}
		})
	}
}
