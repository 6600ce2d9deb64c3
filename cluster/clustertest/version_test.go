package clustertest

import (
	"errors"
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

// TestCluster_earlierRelease: a node that does not apply all that the leader may have
// written is not added, and does not vote when it comes back with an empty folder.
func TestCluster_earlierRelease(t *testing.T) {
	t.Parallel()
	versions := map[string]int{"n1": 2, "n2": 2, "n3": 2}
	c := New(t, Options{Configure: func(cfg *cluster.Config) { cfg.CommandVersion = versions[cfg.NodeID] }})
	c.Write("a")
	c.Start("n4")
	err := c.Node(c.Leader()).AddMember(c.Context(), "n4", Address("n4"), false)
	if !errors.Is(err, cluster.ErrRefused) || !strings.Contains(err.Error(), "node n4 runs an earlier release") {
		t.Errorf("adding a node of an earlier release: got %v, want it refused", err)
	}
	c.Stop("n4")
	versions["n4"] = 2
	c.Start("n4")
	if err := c.Node(c.Leader()).AddMember(c.Context(), "n4", Address("n4"), true); err != nil {
		t.Errorf("adding it with this release: %v", err)
	}

	lost := c.Follower(c.Leader(), "n4")
	c.Stop(lost)
	c.Wipe(lost)
	versions[lost] = 0
	c.Start(lost)
	c.Eventually(lost+" says why it does not vote", func() bool {
		return strings.Contains(c.Node(lost).Status().Waiting, "it runs an earlier release than node")
	})
	c.Stop(lost)
	versions[lost] = 2
	c.Start(lost)
	c.Eventually(lost+" votes", func() bool { return c.Node(lost).Status().Waiting == "" })
	c.Agree("a")
}
