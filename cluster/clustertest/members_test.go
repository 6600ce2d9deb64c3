package clustertest

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"leased/cluster"
)

func members(c *Cluster, at string) []string {
	var found []string
	for _, m := range c.Node(at).Members(c.Context()) {
		role := "non-voter"
		if m.Voter {
			role = "voter"
		}
		found = append(found, fmt.Sprintf("%s %s %s", m.ID, role, m.Address))
	}
	slices.Sort(found)
	return found
}

func (c *Cluster) expectMembers(want ...string) {
	c.tb.Helper()
	var got []string
	c.Eventually(fmt.Sprintf("members %q", want), func() bool {
		for id := range c.nodes {
			if got = members(c, id); !slices.Equal(got, want) {
				return false
			}
		}
		return true
	})
}

// TestCluster_members: nodes are added and removed through any node; a removed one
// has no part in anything and says so.
func TestCluster_members(t *testing.T) {
	t.Parallel()
	c := New(t, Options{})
	c.Write("a")
	c.Start("n4")
	c.Eventually("n4 waits to be added", func() bool {
		return strings.Contains(c.Node("n4").Status().Waiting, "node n4 is not a member")
	})
	c.steady("n4 is added, asked of a follower", func(leader string) error {
		return c.Node(c.Follower(leader, "n4")).AddMember(c.Context(), "n4", Address("n4"), false)
	})
	c.Agree("a")
	base := []string{"n1 voter " + Address("n1"), "n2 voter " + Address("n2"), "n3 voter " + Address("n3")}
	c.expectMembers(append(slices.Clone(base), "n4 non-voter "+Address("n4"))...)
	c.steady("n4 votes", func(leader string) error {
		return c.Node(leader).AddMember(c.Context(), "n4", Address("n4"), true)
	})
	c.expectMembers(append(slices.Clone(base), "n4 voter "+Address("n4"))...)
	c.steady("what makes no sense is refused", func(leader string) error {
		return c.refusesNonsense(leader, c.Follower(leader, "n4"))
	})
	c.expectMembers(append(slices.Clone(base), "n4 voter "+Address("n4"))...)

	c.steady("n4 is removed, asked of a follower", func(leader string) error {
		err := c.Node(c.Follower(leader, "n4")).RemoveMember(c.Context(), "n4")
		if !slices.ContainsFunc(members(c, leader), func(m string) bool { return strings.HasPrefix(m, "n4 ") }) {
			return nil // also when the leader was lost as it said so
		}
		return err
	})
	c.steady("it is no member", func(leader string) error {
		return wants(c.Node(leader).RemoveMember(c.Context(), "n4"), cluster.ErrNoMember, "")
	})
	c.Eventually("n4 says that it was removed", func() bool {
		return strings.Contains(c.Node("n4").Status().Waiting, "was removed")
	})
	c.Stop("n4")
	c.expectMembers(base...)
	c.Write("b")
	c.Agree("a", "b")
}

// wants returns nil if the error is of this kind and says why.
func wants(err, kind error, why string) error {
	if errors.Is(err, kind) && strings.Contains(err.Error(), why) {
		return nil
	}
	return fmt.Errorf("got %w, want %s, …%s…", err, kind.Error(), why)
}

// refusesNonsense returns an error unless what makes no sense is refused as such, by the
// leader and by a follower.
func (c *Cluster) refusesNonsense(leader, follower string) error {
	for _, wrong := range []struct {
		id, address string
		voter       bool
		kind        error
		why         string
	}{
		{"n5", Address("n5"), true, cluster.ErrUnreachable, "cannot be reached"},
		{"n5", Address("n4"), true, cluster.ErrUnreachable, "not n5"},
		{"n 5", Address("n4"), true, cluster.ErrInvalid, "only letters"},
		{leader, Address(leader), true, cluster.ErrInvalid, "it leads"},
		{"n4", Address("n4"), false, cluster.ErrInvalid, "n4 votes"},
		{"n4", Address(leader), true, cluster.ErrInvalid, "node " + leader + " has the address"},
		{"n4", Address(follower), true, cluster.ErrInvalid, "node " + follower + " has the address"},
	} {
		for _, at := range []string{leader, follower} {
			err := c.Node(at).AddMember(c.Context(), wrong.id, wrong.address, wrong.voter)
			if err := wants(err, wrong.kind, wrong.why); err != nil {
				return fmt.Errorf("add %s at %s, asked of %s: %w", wrong.id, wrong.address, at, err)
			}
		}
	}
	if err := wants(c.Node(follower).RemoveMember(c.Context(), "n9"), cluster.ErrNoMember, ""); err != nil {
		return fmt.Errorf("removal of nobody, asked of a follower: %w", err)
	}
	return nil
}

// TestCluster_remove_unheard: a node that could not be told of its removal hears of
// it when it can be.
func TestCluster_remove_unheard(t *testing.T) {
	t.Parallel()
	c := New(t, Options{Nodes: 4})
	gone := c.Follower(c.Leader())
	c.Net.Isolate(gone)
	c.steady("it is removed", func(leader string) error {
		err := c.Node(leader).RemoveMember(c.Context(), gone)
		if len(members(c, leader)) == 3 {
			return nil // also when the leader was lost as it said so
		}
		return err
	})
	c.Write("a")
	if got := c.Node(gone).Status().Waiting; got != "" {
		t.Errorf("a node that hears of nobody waits for %q", got)
	}
	c.Net.Heal()
	c.Eventually("it says that it was removed", func() bool {
		return strings.Contains(c.Node(gone).Status().Waiting, "was removed")
	})
	// It is as if it had been told at once.
	c.steady("it is added again", func(leader string) error {
		return c.Node(leader).AddMember(c.Context(), gone, Address(gone), true)
	})
	c.Agree("a")
	c.Eventually("it has its place", func() bool { return c.Node(gone).Status().Waiting == "" })
}

// TestCluster_remove_majority: a removal after which nothing could be decided is
// refused.
func TestCluster_remove_majority(t *testing.T) {
	t.Parallel()
	c := New(t, Options{})
	dead := c.Follower(c.Leader())
	c.Crash(dead)
	c.steady("without a majority nobody is removed", func(leader string) error {
		alive := c.Follower(leader)
		err := c.Node(leader).RemoveMember(c.Context(), alive)
		if err == nil {
			t.Fatalf("%s was removed while %s is dead", alive, dead)
		}
		return wants(err, cluster.ErrRefused, "without a majority nothing can be decided")
	})
	c.steady("the dead node is removed", func(leader string) error {
		err := c.Node(leader).RemoveMember(c.Context(), dead)
		if len(members(c, leader)) == 2 {
			return nil // also when the leader was lost as it said so
		}
		return err
	})
	c.Write("a")
	c.Agree("a")
}

// TestCluster_foreign: a node of one cluster is not taken into another, and two
// clusters that were told each other's addresses do not mix.
func TestCluster_foreign(t *testing.T) {
	t.Parallel()
	ours, theirs := New(t, Options{Nodes: 1}), New(t, Options{Nodes: 1, Configure: func(cfg *cluster.Config) {
		cfg.NodeID, cfg.Members = "x1", map[string]string{"x1": Address("x1")}
	}})
	us, them := ours.Leader(), theirs.Leader()
	ours.Net.place("x1", Address("x1"), theirs.Node(them).ListenAddress())
	err := ours.Node(us).AddMember(ours.Context(), "x1", Address("x1"), true)
	if err == nil || !strings.Contains(err.Error(), theirs.Node(them).Status().ClusterID) {
		t.Errorf("adding a node of another cluster: %v, want it refused with that cluster's id", err)
	}
	if got := members(ours, us); len(got) != 1 {
		t.Errorf("members %q, want one", got)
	}
}

// TestCluster_moved: nodes whose addresses change are found again, whoever was
// told: only the one that moved, or everybody's configuration at once.
func TestCluster_moved(t *testing.T) {
	t.Parallel()
	moved := make(map[string]string)
	c := New(t, Options{Configure: func(cfg *cluster.Config) {
		if address := moved[cfg.NodeID]; address != "" {
			cfg.Members[cfg.NodeID] = address
		}
	}})
	leader := c.Leader()
	c.Write("a")
	one := c.Follower(leader)
	c.Stop(one)
	c.Net.place(one, Address(one), "") // nobody is there any more
	moved[one] = "moved.test:1"
	c.Start(one)
	c.Write("b")
	c.Agree("a", "b")
	c.Eventually("the new address is in the configuration", func() bool {
		return slices.Contains(members(c, c.Leader()), one+" voter moved.test:1")
	})

	for _, id := range c.IDs() {
		c.Stop(id)
		c.Net.place(id, Address(id), "")
		c.Net.place(id, "moved.test:1", "")
		moved[id] = id + ".elsewhere.test:2"
	}
	c.options.Configure = func(cfg *cluster.Config) {
		for id := range cfg.Members {
			cfg.Members[id] = moved[id]
		}
	}
	for _, id := range c.IDs() {
		c.Start(id)
	}
	c.Write("c")
	c.Agree("a", "b", "c")
	c.expectMembers("n1 voter n1.elsewhere.test:2", "n2 voter n2.elsewhere.test:2", "n3 voter n3.elsewhere.test:2")
}

// TestCluster_join_noAnswer: a node that was told to belong to the cluster, and whose
// answer is lost, may belong to it from then on.
func TestCluster_join_noAnswer(t *testing.T) {
	t.Parallel()
	c := New(t, Options{})
	c.Start("n4")
	c.Net.OnSend(func(from, to string, p []byte) {
		if from != "n4" && to == "n4" && bytes.Contains(p, []byte(`"voter":true`)) { // the question
			c.Net.Cut("n4", from)
		}
	})
	c.steady("n4 does not answer", func(leader string) error {
		c.Net.Heal() // what was cut when another node led
		err := c.Node(leader).AddMember(c.Context(), "n4", Address("n4"), true)
		if errors.Is(err, cluster.ErrRefused) || err == nil {
			t.Fatalf("n4 did not answer: got %v, want an error that is not %v", err, cluster.ErrRefused)
		}
		if strings.Contains(err.Error(), "node n4 did not say whether it belongs to the cluster now") {
			return nil
		}
		return err
	})
	c.Eventually("n4 belongs to the cluster", func() bool { return c.Node("n4").Status().ClusterID == c.Node("n1").Status().ClusterID })
	c.Net.OnSend(nil)
	c.Net.Heal()
	c.steady("n4 is added again", func(leader string) error {
		return c.Node(leader).AddMember(c.Context(), "n4", Address("n4"), true)
	})
}
