package cluster

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"leased/client"
	"leased/gateway/api"
	"leased/test/proc"
)

// diskSize has room for four segments of the log, of 64 MiB each. A log that broke
// off between two of them is mended by a copy, and needs as many for a moment: the
// last, its copy, the next, and one more before the node stands for election.
const diskSize = 320 << 20

// longWrite is how long it may take to fill a segment of the log.
const longWrite = 5 * time.Minute

// aSilence is for how long a machine lets a process wait, at least, whose leader is
// another one then.
const aSilence = 300 * time.Millisecond

// noSnapshots keeps a node from writing anything but its log.
const noSnapshots = "  snapshot: {entries: 10000000, interval: 24h}\n"

// diskCluster starts nodes that have a small disk each.
func diskCluster(t *testing.T, bin string, nodes int) (*proc.Cluster, map[*proc.Node]*proc.Disk) {
	t.Helper()
	c := proc.NewLeasedCluster(t, bin, nodes, noSnapshots)
	disks := make(map[*proc.Node]*proc.Disk)
	for _, n := range c.Nodes {
		disks[n] = proc.NewDisk(t, diskSize)
		n.Data = filepath.Join(disks[n].Dir, "data")
	}
	c.Start(t)
	return c, disks
}

// writing acquires leases of 4 KB each, through all nodes, until stop.
type writing struct {
	stop func()

	mu       sync.Mutex
	granted  []*api.Lease
	failures []error
}

func startWriting(t *testing.T, c *proc.Cluster, name string) *writing {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	w := new(writing)
	var wg sync.WaitGroup
	w.stop = func() { cancel(); wg.Wait() }
	t.Cleanup(w.stop)
	big := map[string]string{"a": strings.Repeat("x", 4000)}
	for i := range 32 {
		servers := make([]*client.Client, len(c.Nodes))
		for at := range servers {
			servers[at] = once(t, c.Nodes[(i+at)%len(servers)])
		}
		wg.Go(func() {
			for k := 0; ctx.Err() == nil; k++ {
				r := acquireRequest(fmt.Sprintf("%s-%d-%d", name, i, k), time.Hour)
				r.Metadata = big
				got, err := try(ctx, servers, 20, func(ctx context.Context, c *client.Client) (*client.Answer, error) { return c.Acquire(ctx, r) })
				w.mu.Lock()
				switch {
				case err == nil:
					w.granted = append(w.granted, got.Lease)
				case ctx.Err() == nil:
					w.failures = append(w.failures, err)
				}
				w.mu.Unlock()
			}
		})
	}
	return w
}

func (w *writing) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.granted)
}

// check holds the cluster to some of what was granted, the last ones among them.
func (w *writing) check(t *testing.T, c *client.Client) {
	t.Helper()
	for i, want := range w.granted {
		if i%100 > 0 && i < len(w.granted)-200 {
			continue
		}
		got, err := c.Get(t.Context(), "", want.LeaseID)
		if err != nil {
			t.Fatalf("lease %s of %d was acknowledged: %v", want.LeaseID, len(w.granted), err)
		}
		sameLease(t, want, got)
	}
	for _, err := range w.failures {
		t.Errorf("not done after all attempts: %v", err)
	}
}

// A leader whose disk is full makes way for another, and is none again before it
// has space; it takes part again by itself then, and nothing is lost.
func TestCluster_fullDisk(t *testing.T) {
	if !proc.OwnMounts(t) {
		return
	}
	c, disks := diskCluster(t, proc.Build(t, "leased/cmd/leased"), 3)
	full, others := c.Leader(t, c.Nodes[0])
	disks[full].Fill(t)
	w := startWriting(t, c, "one")
	at := others[0].Only(t)
	status := func() *api.Cluster {
		s, err := at.Cluster(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	// On a busy machine leadership may have moved before: the disk is full for a
	// leader or a follower then.
	proc.Until(t, "the node has a full disk, and another leads", longWrite, func() bool {
		s := status()
		noted := slices.ContainsFunc(s.Nodes, func(n api.ClusterNode) bool { return n.ID == full.ID && n.LogError != "" })
		return noted && s.Leader != "" && s.Leader != full.ID
	})
	late := proc.WatchLateness(t)
	led, begin := status(), time.Now()
	before := w.count()
	proc.Until(t, "leases are granted", proc.Patience, func() bool { return w.count() > before+2000 })
	w.stop()
	now := status()
	waited := late.Between(begin, time.Now())
	// One of the others may have been silent for as long as a leader may not be.
	if moved := now.Leader != led.Leader || now.Term != led.Term; now.Leader == full.ID || moved && waited < aSilence {
		t.Errorf("led by %s in term %d, then by %s in term %d, on a machine that let the test wait for %v: want no other election",
			led.Leader, led.Term, now.Leader, now.Term, waited)
	}
	for _, n := range status().Nodes {
		if n.ID == full.ID && (n.Healthy || !strings.Contains(n.LogError, "no space left on device")) {
			t.Errorf("the node with the full disk: %+v, want it not healthy, and why", n)
		}
	}
	if err := at.Transfer(t.Context(), full.ID); err == nil || !strings.Contains(err.Error(), "no space left") {
		t.Errorf("leadership to the node with the full disk: error %v, want it refused, with the reason", err)
	}
	// Its clients are served all the same, by the leader.
	w.check(t, full.Only(t))

	disks[full].Empty(t)
	freed := time.Now()
	c.Healthy(t)
	t.Logf("%d grants; the node was healthy %v after it had space", w.count(), time.Since(freed))
	proc.Succeeds(t, "leadership goes to the node once it has space", proc.Patience, func() error { return at.Transfer(t.Context(), full.ID) })
	w.check(t, full.Only(t))
}

// With all disks full nothing is granted: calls are refused in time, no node dies,
// none is elected again and again, also after a restart; with space it goes on.
func TestCluster_allDisksFull(t *testing.T) {
	if !proc.OwnMounts(t) {
		return
	}
	bin := proc.Build(t, "leased/cmd/leased")
	for _, nodes := range []int{1, 3} {
		t.Run(fmt.Sprint(nodes), func(t *testing.T) {
			c, disks := diskCluster(t, bin, nodes)
			for _, d := range disks {
				d.Fill(t)
			}
			w := startWriting(t, c, "all")
			at := c.Nodes[0].Only(t)
			status := func() *api.Cluster {
				s, err := at.Cluster(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				return s
			}
			// A node may go on to lead: what it has written no majority can write.
			proc.Until(t, "nothing is granted", longWrite, func() bool {
				count := w.count()
				<-time.After(3 * time.Second) // longer than an election takes
				return w.count() == count
			})
			term, late := status().Term, proc.WatchLateness(t)
			for i, n := range c.Nodes {
				start := time.Now()
				err := acquireOver(t.Context(), n, fmt.Sprint("refused-", i), time.Second)
				code := client.CodeOf(err)
				if code != api.CodeUnavailable && (nodes == 1 || code != api.CodeTimeout && code != api.CodeOutcomeUnknown) {
					t.Errorf("at %s: got error %v, want %s", n.ID, err, api.CodeUnavailable)
				}
				t.Logf("at %s: %v", n.ID, err)
				if took := late.Took(start); took > 2*time.Second {
					t.Errorf("at %s: the answer to a call of at most 1s took %v", n.ID, took)
				}
			}
			<-time.After(3 * time.Second) // some elections
			if now := status().Term; now > term {
				t.Errorf("the term went from %d to %d with all disks full", term, now)
			}
			for _, n := range c.Nodes {
				if !n.Runs() {
					text, _ := os.ReadFile(filepath.Join(n.Dir, "log"))
					t.Fatalf("%s has ended:\n%s", n.ID, text)
				}
			}
			for _, d := range disks {
				d.Empty(t)
			}
			freed := time.Now()
			before := w.count()
			proc.Until(t, "leases are granted again", proc.Patience, func() bool { return w.count() > before })
			t.Logf("leases were granted %v after there was space", time.Since(freed))
			w.stop()
			c.Healthy(t)
			w.check(t, c.Client(t))
		})
	}
}
