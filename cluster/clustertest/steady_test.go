package clustertest

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"
)

// steady does what supposes that one node leads meanwhile, with that node. A machine
// with much to do lets a leader wait for longer than it may be silent, and another one
// is elected, or the same one again: what f returns then does not count, and it is done
// once more. So is what failed because a node took longer to answer than it is waited
// for. What is wrong whoever leads, f reports itself.
func (c *Cluster) steady(what string, f func(leader string) error) {
	c.tb.Helper()
	for over := time.Now().Add(Patience); ; {
		leader := c.Leader()
		term, _ := c.Node(leader).Leadership()
		err := f(leader)
		if err == nil {
			return
		}
		_, excused := errors.AsType[*busy](err)
		if !excused && !strings.Contains(err.Error(), "no answer") && c.stillLeads(leader, term) {
			c.tb.Fatalf("%s, while %s led in term %d: %v", what, leader, term, err)
		}
		c.tb.Logf("%s, and the machine was too busy: %v", what, err)
		if time.Now().After(over) {
			c.tb.Fatalf("%s: not done in %v: %v", what, Patience, err)
		}
	}
}

// busy is an error for which the machine had too much to do, as f knows.
type busy struct{ error }

// stillLeads tells whether a node has led in a term until now. A call may say that it
// does not before the node does.
func (c *Cluster) stillLeads(id string, term uint64) bool {
	c.tb.Helper()
	n := c.nodes[id]
	if term == 0 || n == nil {
		return false
	}
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	err := n.Confirm(ctx)
	now, _ := n.Leadership()
	return err == nil && now == term
}

// leadBy has a node lead, asking at(leader) for it where another one does.
func (c *Cluster) leadBy(id string, at func(leader string) string) {
	c.tb.Helper()
	c.steady("leadership goes to "+id, func(leader string) error {
		if leader == id {
			return nil
		}
		if err := c.Node(at(leader)).Transfer(c.Context(), id); err != nil {
			return err
		}
		if now := c.Leader(); now != id {
			return fmt.Errorf("%s leads", now)
		}
		return nil
	})
}

// itself is the node that leads, for leadBy.
func itself(leader string) string { return leader }

// TestCluster_steady: an election excuses what failed while it was held, and nothing
// else does.
func TestCluster_steady(t *testing.T) {
	t.Parallel()
	c := New(t, Options{})
	moved, tries := errors.New("the leader has moved"), 0
	c.steady("a step", func(leader string) error {
		if tries++; tries > 1 {
			return nil
		}
		if err := c.Node(leader).Transfer(c.Context(), ""); err != nil {
			return err
		}
		return moved
	})
	if tries < 2 {
		t.Error("what failed as the leader moved counts")
	}

	wrong, tries := errors.New("it is wrong"), 0
	f := &failing{TB: t}
	of := *c
	of.tb = f
	done := make(chan struct{})
	go func() {
		defer close(done)
		of.steady("a step", func(string) error { tries++; return wrong })
	}()
	<-done
	if !strings.Contains(f.said, wrong.Error()) || strings.Contains(f.said, "not done in") {
		t.Errorf("what fails under one leader is told as %q after %d tries, want it told at once", f.said, tries)
	}
}

// failing keeps what ends the goroutine that it is told in.
type failing struct {
	testing.TB

	said string
}

func (f *failing) Fatalf(format string, args ...any) {
	f.said = fmt.Sprintf(format, args...)
	runtime.Goexit()
}
