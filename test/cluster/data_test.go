package cluster

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"leased/client"
	"leased/gateway/api"
	"leased/test/proc"
)

// Everything is there after all nodes were killed, and after one that lost its
// disk came back and was made to lead.
func TestCluster_wipedNode(t *testing.T) {
	c := proc.StartLeasedCluster(t, proc.Build(t, "leased/cmd/leased"), 3, "  snapshot: {entries: 20, interval: 1s}\n")
	all := c.Client(t)
	var held []*api.Lease
	ended := make(map[string]*api.Lease) // by request id of the release
	highest := uint64(0)
	for i := range 150 {
		got, err := all.Acquire(t.Context(), acquireRequest(fmt.Sprint("k", i), time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		highest = max(highest, got.Lease.Token)
		if i%3 > 0 {
			held = append(held, got.Lease)
			continue
		}
		r := releaseRequest(got.Lease)
		if _, err := all.Release(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		ended[r.RequestID] = got.Lease
	}
	fill(t, all, trailing)
	snapshotted(t, c)
	for _, n := range c.Nodes {
		n.Kill()
	}
	for _, n := range c.Nodes {
		c.Launch(t, n)
	}
	for _, n := range c.Nodes {
		n.WaitReady(t)
	}
	leader, followers := c.Leader(t, c.Nodes[0])
	wiped := followers[0]
	wiped.Kill()
	if err := os.RemoveAll(wiped.Data); err != nil {
		t.Fatal(err)
	}
	c.Launch(t, wiped)
	wiped.WaitReady(t)
	c.Healthy(t)
	proc.Succeeds(t, "the node that was wiped leads", proc.Patience, func() error {
		if err := leader.Only(t).Transfer(t.Context(), wiped.ID); err != nil {
			return err
		}
		if now, _ := c.Leader(t, wiped); now != wiped {
			return fmt.Errorf("%s leads, not %s", now.ID, wiped.ID)
		}
		return nil
	})
	for _, n := range c.Nodes {
		one := n.Only(t)
		l := load{leases: held}
		l.check(t, one)
		for i := 0; i < len(held); i += 8 {
			lease := held[i]
			got, err := one.Acquire(t.Context(), acquireRequest(lease.Key.Target.ID, time.Hour))
			if err != nil || !got.Replayed {
				t.Fatalf("at %s, the acquire of lease %s again: got %+v, error %v, want it replayed", n.ID, lease.LeaseID, got, err)
			}
			sameLease(t, lease, got.Lease)
			history, err := one.History(t.Context(), client.HistoryRequest{KeyID: lease.KeyID})
			if err != nil || len(history.Events) != 1 || history.Events[0].LeaseID != lease.LeaseID || history.Events[0].Token != lease.Token {
				t.Fatalf("at %s: history %+v, error %v, want the grant of lease %s", n.ID, history, err, lease.LeaseID)
			}
		}
		for id, lease := range ended {
			r := releaseRequest(lease)
			got, err := one.Release(t.Context(), r)
			if err != nil || !got.Replayed || got.RequestID != id {
				t.Fatalf("at %s, the release again: got %+v, error %v, want it replayed", n.ID, got, err)
			}
			history, err := one.History(t.Context(), client.HistoryRequest{KeyID: lease.KeyID})
			if err != nil || len(history.Events) != 2 {
				t.Fatalf("at %s: history %+v, error %v, want the grant and the release", n.ID, history, err)
			}
		}
	}
	got, err := all.Acquire(t.Context(), acquireRequest("after", time.Hour))
	if err != nil || got.Lease.Token <= highest {
		t.Errorf("a new grant: got %+v, error %v, want a token above %d", got, err, highest)
	}
}

// trailing is how many entries at least stay in the log below a snapshot: a node that
// lost its disk is sent one when there are more.
const trailing = 1024

// snapshotted waits until each node has a snapshot of all that fill made.
func snapshotted(t *testing.T, c *proc.Cluster) {
	t.Helper()
	proc.Until(t, "each node has a snapshot", proc.Patience, func() bool {
		status, err := c.Nodes[0].Only(t).Cluster(t.Context())
		if err != nil {
			return false
		}
		for _, n := range status.Nodes {
			if n.SnapshotIndex < 2*trailing {
				return false
			}
		}
		return true
	})
}

// A backup goes into a cluster that knows nothing of it, through a follower and
// with the command line.
func TestCluster_backup(t *testing.T) {
	bin := proc.Build(t, "leased/cmd/leased")
	old := proc.StartLeasedCluster(t, bin, 3, "")
	_, followers := old.Leader(t, old.Nodes[0])
	held, err := old.Client(t).Acquire(t.Context(), acquireRequest("held", time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "the.backup")
	leased(t, bin, followers[0], "backup", file)
	later, err := old.Client(t).Acquire(t.Context(), acquireRequest("later", time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range old.Nodes {
		n.Kill()
	}

	fresh := proc.StartLeasedCluster(t, bin, 3, "")
	_, followers = fresh.Leader(t, fresh.Nodes[0])
	leased(t, bin, followers[0], "restore", file, "--yes")
	for _, n := range fresh.Nodes {
		one := n.Only(t)
		got, err := one.Get(t.Context(), "", held.Lease.LeaseID)
		if err != nil || got.State != "expired" || got.Reason == "" {
			t.Errorf("at %s, the restored lease: got %+v, error %v, want it expired with a reason", n.ID, got, err)
		}
		// A key that only the lost part of the history knew, too.
		r := acquireRequest("later", time.Hour)
		r.RequestID = ""
		again, err := one.Acquire(t.Context(), r)
		if err != nil || again.Lease.Token <= later.Lease.Token {
			t.Fatalf("at %s, a new grant: got %+v, error %v, want a token above %d", n.ID, again, err, later.Lease.Token)
		}
		if _, err := one.Release(t.Context(), releaseRequest(again.Lease)); err != nil {
			t.Fatal(err)
		}
	}
}

// leased runs a command of leased cluster against a node.
func leased(t *testing.T, bin string, n *proc.Node, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), bin, append([]string{"cluster"}, args...)...)
	cmd.Env = append(os.Environ(), "LEASED_SERVER=http://"+n.Addr)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("leased cluster %v: %v\n%s", args, err, out)
	}
}
