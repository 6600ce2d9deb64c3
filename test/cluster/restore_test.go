package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"leased/client"
	"leased/test/proc"
)

// TestCluster_restoreKilled kills the leader with kill -9 at instants all over a
// restore. The restore is done on all nodes or on none, and what was answered holds;
// each time the killed node leads later, so that what it has is what is served.
func TestCluster_restoreKilled(t *testing.T) {
	bin := proc.Build(t, "leased/cmd/leased")
	c := proc.StartLeasedCluster(t, bin, 3, "")
	all := c.Client(t)
	old, err := all.Acquire(t.Context(), acquireRequest("old", time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	fill(t, all, 3000)
	file := filepath.Join(t.TempDir(), "the.backup")
	leased(t, bin, c.Nodes[0], "backup", file)
	start := time.Now()
	leased(t, bin, c.Nodes[0], "restore", file, "--yes")
	whole := time.Since(start)
	t.Logf("a whole restore took %v", whole)

	tried := rounds(6, 60)
	done := 0
	for i := range tried {
		// What the restore takes away.
		live, err := all.Acquire(t.Context(), acquireRequest(fmt.Sprint("live-", i), time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		leader, followers := c.Leader(t, c.Nodes[0])
		result := make(chan error, 1)
		go func() { result <- restoreAt(t.Context(), followers[0], file) }()
		time.Sleep(whole * time.Duration(i+1) / time.Duration(tried))
		leader.Kill()
		restored := <-result
		c.Launch(t, leader)
		leader.WaitReady(t)
		c.Healthy(t)

		after := make([]bool, 0, 4)
		look := func(where string) {
			got, err := all.Get(t.Context(), "", live.Lease.LeaseID)
			kept := err == nil && got.State == "active"
			if !kept && !errors.Is(err, client.ErrNotFound) {
				t.Fatalf("%s: got %+v, error %v, want the lease active or unknown", where, got, err)
			}
			if got, err := all.Get(t.Context(), "", old.Lease.LeaseID); err != nil || got.State != "expired" {
				t.Errorf("%s: the lease of the backup: got %+v, error %v, want it expired", where, got, err)
			}
			after = append(after, !kept)
		}
		look("after the restart")
		for _, n := range c.Nodes {
			proc.Succeeds(t, "leadership is handed to "+n.ID, proc.Patience, func() error {
				return all.Transfer(t.Context(), n.ID)
			})
			look(n.ID + " leads")
		}
		for _, is := range after {
			if is != after[0] {
				t.Fatalf("round %d: restored is %v at one leader after the other", i, after)
			}
		}
		t.Logf("round %d: %v; restored: %v", i, restored, after[0])
		switch {
		case restored == nil && !after[0]:
			t.Errorf("round %d: the restore was answered as done and is not", i)
		case after[0] && restored != nil && !errors.Is(restored, client.ErrOutcomeUnknown):
			t.Errorf("round %d: the restore is done and was answered %v", i, restored)
		}
		if after[0] {
			done++
			continue
		}
		if _, err := all.Release(t.Context(), releaseRequest(live.Lease)); err != nil {
			t.Fatalf("round %d: the lease that was not touched: %v", i, err)
		}
	}
	t.Logf("%d of %d restores were done", done, tried)
}

// fill makes leases that ended, which a backup has to carry.
func fill(t *testing.T, c *client.Client, leases int) {
	t.Helper()
	var wg sync.WaitGroup
	const workers = 16
	for w := range workers {
		wg.Go(func() {
			for i := range leases / workers {
				got, err := c.Acquire(t.Context(), acquireRequest(fmt.Sprintf("fill-%d-%d", w, i), time.Hour))
				if err == nil {
					_, err = c.Release(t.Context(), releaseRequest(got.Lease))
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
}

func restoreAt(ctx context.Context, n *proc.Node, file string) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	c, err := client.New(client.Options{Servers: []string{"http://" + n.Addr}, RetryFor: -1})
	if err != nil {
		return err
	}
	defer c.Close()
	_, err = c.Restore(ctx, f)
	return err
}
