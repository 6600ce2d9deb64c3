package raftkv_test

import (
	"context"
	"testing"

	"github.com/hashicorp/raft"

	"leased/backends/raftkv"
	"leased/contract"
)

// deposed is a log that another node leads by now.
type deposed struct{ raftkv.Proposer }

func (deposed) Confirm(context.Context) error { return raft.ErrNotLeader }

// TestStore_Health_leader: health names the node that decides, and none while
// this one is not known to.
func TestStore_Health_leader(t *testing.T) {
	n := newNode(t)
	ask := func() contract.Health {
		t.Helper()
		h, err := n.handle().Health(t.Context(), &contract.HealthRequest{Namespace: "default"})
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	if h := ask(); !h.Ready || h.Leader != "n1" {
		t.Errorf("the node leads, and health says %+v, want that n1 does", h)
	}
	n.wrap = func(p raftkv.Proposer) raftkv.Proposer { return deposed{p} }
	n.reopen(t)
	if h := ask(); h.Ready || h.Leader != "" {
		t.Errorf("the node does not lead, and health says %+v, want no leader", h)
	}
}
