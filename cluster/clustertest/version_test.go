package clustertest

import (
	"strings"
	"testing"

	"leased/cluster"
)

// TestCluster_applies: a command is only written that all members apply, the ones
// that run an earlier release or do not answer included.
func TestCluster_applies(t *testing.T) {
	t.Parallel()
	versions := map[string]int{"n1": 2, "n2": 2, "n3": 0}
	c := New(t, Options{Configure: func(cfg *cluster.Config) { cfg.CommandVersion = versions[cfg.NodeID] }})
	leader := c.Leader()
	if err := c.Node(leader).Applies(c.Context(), 1); err != nil {
		t.Errorf("the first version: %v", err)
	}
	for _, id := range c.IDs() {
		if err := c.Node(id).Applies(c.Context(), 2); err == nil || !strings.Contains(err.Error(), "node n3 runs an earlier release") {
			t.Errorf("asked at %s: got %v, want that n3 runs an earlier release", id, err)
		}
	}
	c.Stop("n3")
	if err := c.Node(c.Leader()).Applies(c.Context(), 2); err == nil || !strings.Contains(err.Error(), "node n3 does not answer") {
		t.Errorf("n3 is stopped: got %v", err)
	}
	versions["n3"] = 3
	c.Start("n3")
	c.Eventually("all apply version 2", func() bool { return c.Node(c.Leader()).Applies(c.Context(), 2) == nil })
	if err := c.Node(c.Leader()).Applies(c.Context(), 3); err == nil {
		t.Error("version 3: got nil")
	}
}
