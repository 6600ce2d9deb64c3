package prove

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"leased/client"
	"leased/test/proc"
)

// diskSize has room for a few segments of a node's log.
const diskSize = 8 << 20

// TestFullDisk is TestHistories for a cluster whose leader finds its disk full under the
// load. It is a test of its own for the mounts that it has, which only a process of its
// own can have.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	if !proc.OwnMounts(t) {
		return
	}
	d := &deployment{promise: raftkvPromise()}
	// Nothing but the log is written: what a node cannot write is a segment of that.
	c := proc.NewLeasedCluster(t, proc.BuildWithSmallLog(t), 3,
		"  snapshot: {entries: 10000000, interval: 24h}\nbackends: {b: {type: raftkv}}\n"+namespaces)
	disks := map[*proc.Node]*proc.Disk{}
	for _, n := range c.Nodes {
		disks[n] = proc.NewDisk(t, diskSize)
		n.Data = filepath.Join(disks[n].Dir, "data")
		d.direct = append(d.direct, "http://"+n.Addr)
		d.logs = append(d.logs, filepath.Join(n.Dir, "log"))
	}
	d.servers = d.direct
	c.Start(t)
	r := newRun(t, d, seed(t), false)
	var full *proc.Node
	r.sleep(300*time.Millisecond, 1500*time.Millisecond)
	r.suffer(fault{name: "leader: disk full", begin: func() {
		leader, others := c.Leader(t, c.Nodes[0])
		full = leader
		disks[full].Fill(t)
		at := others[0].Only(t)
		write(t, c, func() bool { return notices(t, at, full) })
	}, mend: func() {
		disks[full].Empty(t)
		c.Healthy(t)
	}})
	r.sleep(time.Second, 1500*time.Millisecond)
	r.await(200)
	r.collect()
	bad := r.judge()
	r.wantEnough()
	for _, v := range bad {
		t.Error(v)
	}
	r.keep(bad)
}

// notices tells that the node's disk is full, as the cluster knows, and that another
// leads.
func notices(t *testing.T, at *client.Client, full *proc.Node) bool {
	t.Helper()
	status, err := at.Cluster(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range status.Nodes {
		if n.ID == full.ID && strings.Contains(n.LogError, "no space left on device") {
			return status.Leader != "" && status.Leader != full.ID
		}
	}
	return false
}

// write has many acquire leases of 4 KB each, over and over, until done says so.
func write(t *testing.T, c *proc.Cluster, done func() bool) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	large := map[string]string{"a": strings.Repeat("x", 4000)}
	for i := range 8 {
		at := c.Client(t, c.Nodes[i%len(c.Nodes)])
		all.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				k := key(fmt.Sprint("large-", i, "-", n))
				_, _ = at.Acquire(ctx, client.AcquireRequest{Key: k, Instance: "writer", TTL: time.Minute, Metadata: large}) // there may be no space
			}
		})
	}
	proc.Until(t, "the node has a full disk, and another leads", proc.Patience, done)
	cancel()
	all.Wait()
}
