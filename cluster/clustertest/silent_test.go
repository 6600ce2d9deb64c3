package clustertest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"leased/cluster"
	"leased/test/proc"
)

// load has commands applied by whoever of the nodes leads, until the returned function
// is called. Then all of them are answered.
func (c *Cluster) load(nodes ...string) (stop func()) {
	ctx := c.Context()
	var running sync.WaitGroup
	var stopped atomic.Bool
	for w := range 128 {
		running.Go(func() {
			for i := 0; ctx.Err() == nil && !stopped.Load(); i++ {
				for _, id := range nodes {
					_, _ = c.Node(id).Propose(ctx, fmt.Appendf(nil, "payload-%d-%d", w, i)) // one of them leads
				}
			}
		})
	}
	return func() { stopped.Store(true); running.Wait() }
}

// TestCluster_silentMember: a node that fell silent makes the others seem to lack
// nothing that was committed only after they had answered. It can be removed, and
// leadership handed over, while commands are applied.
func TestCluster_silentMember(t *testing.T) {
	c := New(t, Options{})
	c.leadBy("n1", itself)
	c.Net.Isolate("n3")
	defer c.load("n1", "n2")()
	c.Eventually("more is applied during a look than a node may lack", func() bool {
		leader := c.Leader()
		term, _ := c.Node(leader).Leadership()
		before := c.Node(leader).Status().CommitIndex
		for _, m := range c.Node(leader).Members(c.Context()) {
			if m.ID != "n3" && m.Error == "" && m.AppliedIndex+1024 >= before && !m.Healthy && c.stillLeads(leader, term) {
				t.Errorf("%s is not healthy: it has applied %d, and %d was committed before it was asked", m.ID, m.AppliedIndex, before)
			}
		}
		return c.Node(leader).Status().CommitIndex > before+2048
	})
	c.Eventually("leadership is handed over", func() bool {
		err := c.Node(c.Leader()).Transfer(c.Context(), "")
		if errors.Is(err, cluster.ErrRefused) {
			t.Fatalf("handing over leadership: %v", err)
		}
		return err == nil
	})
	c.Eventually("n3 is removed", func() bool {
		err := c.Node(c.Leader()).RemoveMember(c.Context(), "n3")
		if errors.Is(err, cluster.ErrRefused) {
			t.Fatalf("removing n3: %v", err)
		}
		return err == nil || errors.Is(err, cluster.ErrNoMember)
	})
}

// TestCluster_slowLeader: a leader whose answer takes its time makes a follower that is
// asked seem to lack nothing that was committed only after that one had looked at itself.
func TestCluster_slowLeader(t *testing.T) {
	c := New(t, Options{})
	c.leadBy("n1", itself)
	c.Net.Isolate("n3") // so that nothing is committed that n2 has not
	one := c.Node("n1")
	// Of what n2 sends n1, which dials it for the log, the first in a look is the question.
	var asks, much atomic.Bool
	c.Net.OnSend(func(from, to string, _ []byte) {
		if from != "n2" || to != "n1" || !asks.CompareAndSwap(true, false) {
			return
		}
		// Less than half of the second that a look takes, after which the others are asked.
		for begin, before := time.Now(), one.Status().CommitIndex; time.Since(begin) < 450*time.Millisecond; time.Sleep(time.Millisecond) {
			if one.Status().CommitIndex > before+1100 {
				much.Store(true)
				return
			}
		}
	})
	defer c.load("n1", "n2")()
	c.Eventually("more is committed before the leader answers than a node may lack", func() bool {
		c.leadBy("n1", itself)
		term, _ := one.Leadership()
		much.Store(false)
		asks.Store(true)
		before := one.Status().CommitIndex
		for _, m := range c.Node("n2").Members(c.Context()) {
			hears := m.Error == "" && m.LastContact >= 0 && m.LastContact < 400*time.Millisecond
			if m.ID != "n3" && hears && m.AppliedIndex+1024 >= before && !m.Healthy && c.stillLeads("n1", term) {
				t.Errorf("%s is not healthy: it has applied %d, and %d was committed before it was asked", m.ID, m.AppliedIndex, before)
			}
		}
		return much.Load() && c.stillLeads("n1", term)
	})
}

// TestCluster_alone: who hands leadership over to nobody in particular, where there is
// nobody, is not told of a member without a name, nor who removes the last one of 0 of 0.
func TestCluster_alone(t *testing.T) {
	c := New(t, Options{Nodes: 1})
	c.leadBy("n1", itself)
	err := c.Node("n1").Transfer(c.Context(), "")
	if want := "transfer: there is no other voter"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %q", err, want)
	}
	err = c.Node("n1").RemoveMember(c.Context(), "n1")
	if want := "remove member n1: it is the only one that votes"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %q", err, want)
	}
}

// TestCluster_transfer_silent: a member that is silent does not take all of the time
// in which a leader that stops hands leadership over.
func TestCluster_transfer_silent(t *testing.T) {
	c := New(t, Options{})
	late := proc.WatchLateness(t)
	c.Write("a")
	c.steady("handing over leadership within a second", func(leader string) error {
		c.Net.Heal()
		if leader != "n2" {
			c.leadBy("n2", itself)
		}
		c.Net.Isolate("n1")
		begin := time.Now()
		ctx, cancel := context.WithTimeout(c.Context(), time.Second)
		defer cancel()
		err := c.Node("n2").Transfer(ctx, "")
		if err != nil && late.Took(begin) < 3*time.Second/4 {
			return &busy{err}
		}
		return err
	})
}
