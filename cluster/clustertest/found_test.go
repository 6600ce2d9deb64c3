package clustertest

import (
	"strings"
	"testing"
)

// TestCluster_firstStart: three empty nodes form one cluster, in which each has
// what was decided, also after all of them restart.
func TestCluster_firstStart(t *testing.T) {
	t.Parallel()
	c := New(t, Options{})
	c.Write("a", "b")
	c.Agree("a", "b")
	ids := make(map[string]bool)
	for _, id := range c.IDs() {
		ids[c.Node(id).Status().ClusterID] = true
	}
	if len(ids) != 1 || ids[""] {
		t.Errorf("cluster ids %v, want one", ids)
	}
	for _, id := range c.IDs() {
		c.Stop(id)
	}
	for _, id := range c.IDs() {
		c.Start(id)
	}
	c.Write("c")
	c.Agree("a", "b", "c")
}

// TestCluster_firstStart_missing: nobody founds a cluster before every member is
// there, and each says whom it waits for.
func TestCluster_firstStart_missing(t *testing.T) {
	t.Parallel()
	c := New(t, Options{Forming: true})
	c.Net.Isolate("n3")
	for _, id := range c.IDs() { // whatever they did before the cut
		c.Stop(id)
		c.Wipe(id)
	}
	c.Start("n1")
	c.Start("n2")
	c.Eventually("n1 waits for n3", func() bool {
		w := c.Node("n1").Status().Waiting
		return strings.Contains(w, "missing: n3") && !strings.Contains(w, "n2 (")
	})
	if s := c.Node("n1").Status(); s.ClusterID != "" || s.LastIndex != 0 {
		t.Errorf("without n3: %+v, want no cluster", s)
	}
	c.Net.Heal()
	c.Start("n3")
	c.Write("a")
	c.Agree("a")
}

// TestCluster_wipedMinority: a member that lost its folder comes back as another
// server, gets everything, votes and can lead.
func TestCluster_wipedMinority(t *testing.T) {
	t.Parallel()
	c := New(t, Options{})
	leader := c.Leader()
	c.Write("a")
	lost := c.Follower(leader)
	c.Crash(lost)
	c.Wipe(lost)
	c.Start(lost)
	c.Write("b")
	c.Eventually("the wiped node is a voter again", func() bool {
		for _, m := range c.Node(lost).Members(c.Context()) {
			if m.ID == lost && m.Voter && m.Healthy {
				return c.Node(lost).Status().Waiting == ""
			}
		}
		return false
	})
	c.Agree("a", "b")
	c.leadBy(lost, itself)
	c.Write("c")
	c.Agree("a", "b", "c")
	if got := len(c.Node(lost).Members(c.Context())); got != 3 {
		t.Errorf("%d members, want 3", got)
	}
}

// TestCluster_wipedMajority: two empty nodes do not begin a new history over the
// one that still has its data.
func TestCluster_wipedMajority(t *testing.T) {
	t.Parallel()
	c := New(t, Options{})
	c.Write("a")
	c.Agree("a")
	had := c.Node("n3").Status()
	for _, id := range c.IDs() {
		c.Stop(id)
	}
	c.Wipe("n1")
	c.Wipe("n2")
	for _, id := range c.IDs() {
		c.Start(id)
	}
	for _, id := range []string{"n1", "n2"} {
		c.Eventually(id+" says what it waits for", func() bool {
			return strings.Contains(c.Node(id).Status().Waiting, "restore a backup into a new cluster")
		})
	}
	for _, id := range c.IDs() {
		if term, _ := c.Node(id).Leadership(); term != 0 {
			t.Errorf("node %s leads", id)
		}
	}
	// Nothing is applied, as no majority says what was committed; but all is there.
	if got := c.Node("n3").Status(); got.LastIndex < had.LastIndex || got.ClusterID != had.ClusterID {
		t.Errorf("the survivor has %+v, want no less than %+v", got, had)
	}
}
