package clustertest

import (
	"errors"
	"fmt"
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
	c.steady("the first version", func(leader string) error { return c.Node(leader).Applies(c.Context(), 1) })
	refuses := func(at, why string) error {
		err := c.Node(at).Applies(c.Context(), 2)
		if err == nil {
			t.Errorf("asked at %s: got nil, want that %s", at, why)
			return nil
		}
		if strings.Contains(err.Error(), why) {
			return nil
		}
		return fmt.Errorf("asked at %s: %w, want that %s", at, err, why)
	}
	for _, id := range c.IDs() {
		c.steady("n3 runs an earlier release", func(string) error { return refuses(id, "node n3 runs an earlier release") })
	}
	c.Stop("n3")
	c.steady("n3 is stopped", func(leader string) error { return refuses(leader, "node n3 does not answer") })
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
	c.steady("a node of an earlier release is refused", func(leader string) error {
		err := c.Node(leader).AddMember(c.Context(), "n4", Address("n4"), false)
		if err == nil {
			t.Fatal("a node of an earlier release was added")
		}
		if errors.Is(err, cluster.ErrRefused) && strings.Contains(err.Error(), "node n4 runs an earlier release") {
			return nil
		}
		return err
	})
	c.Stop("n4")
	versions["n4"] = 2
	c.Start("n4")
	c.steady("adding it with this release", func(leader string) error {
		return c.Node(leader).AddMember(c.Context(), "n4", Address("n4"), true)
	})

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
