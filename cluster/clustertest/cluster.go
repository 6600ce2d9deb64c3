package clustertest

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"leased/cluster"
)

// Patience bounds what is waited for; no test takes a small part of it.
const Patience = 30 * time.Second

// Options says what a cluster is made of.
type Options struct {
	// Nodes is how many form the cluster, n1, n2 and so on; 0 means 3.
	Nodes int
	// FSM returns a new, empty FSM for a node that starts; nil means a Ledger.
	FSM func(node string) raft.FSM
	// Configure may change a node's configuration before each start.
	Configure func(cfg *cluster.Config)
	// Forming has New return before the cluster has formed, for what cannot form one.
	Forming bool
}

// Cluster is nodes in one process. Its methods are for the goroutine of the test,
// but Node, FSM and Net may be used by others while no node starts or stops.
type Cluster struct {
	Net *Network

	tb      testing.TB
	options Options
	dir     string
	members map[string]string
	nodes   map[string]*cluster.Node
	fsms    map[string]raft.FSM
}

// New starts a cluster, and returns when each of its nodes belongs to it and hears a
// leader: a majority suffices for a Leader, and a test that then cuts one node off has
// none any more while another one is still on its way.
func New(tb testing.TB, o Options) *Cluster {
	tb.Helper()
	if o.Nodes == 0 {
		o.Nodes = 3
	}
	if o.FSM == nil {
		o.FSM = func(string) raft.FSM { return new(Ledger) }
	}
	c := &Cluster{
		Net: newNetwork(1), tb: tb, options: o, dir: tb.TempDir(), members: make(map[string]string),
		nodes: make(map[string]*cluster.Node), fsms: make(map[string]raft.FSM),
	}
	for i := range o.Nodes {
		id := fmt.Sprintf("n%d", i+1)
		c.members[id] = Address(id)
	}
	tb.Cleanup(c.close)
	for _, id := range c.IDs() {
		c.Start(id)
	}
	if !o.Forming {
		c.Eventually("the cluster has formed", c.formed)
	}
	return c
}

// formed reports whether each node belongs to one cluster and hears the same leader.
func (c *Cluster) formed() bool {
	first := c.Node("n1").Status()
	for _, n := range c.nodes {
		s := n.Status()
		if s.Waiting != "" || s.ClusterID == "" || s.LeaderID == "" || s.ClusterID != first.ClusterID || s.LeaderID != first.LeaderID {
			return false
		}
	}
	return true
}

// Address is where a node says that it is. Nothing resolves it but the Network.
func Address(node string) string { return node + ".cluster.test:8471" }

// IDs returns the first members' ids, in order.
func (c *Cluster) IDs() []string { return slices.Sorted(maps.Keys(c.members)) }

// Node returns a running node.
func (c *Cluster) Node(id string) *cluster.Node {
	c.tb.Helper()
	n := c.nodes[id]
	if n == nil {
		c.tb.Fatalf("node %s does not run", id)
	}
	return n
}

// FSM returns a running node's FSM.
func (c *Cluster) FSM(id string) raft.FSM { return c.fsms[id] }

// Lines returns what a node's Ledger has.
func (c *Cluster) Lines(id string) []string {
	c.tb.Helper()
	l, ok := c.fsms[id].(*Ledger)
	if !ok {
		c.tb.Fatalf("the FSM of node %s is a %T", id, c.fsms[id])
	}
	return l.Lines()
}

// Start starts a node, of the first members or another one, on its folder.
func (c *Cluster) Start(id string) {
	c.tb.Helper()
	members := maps.Clone(c.members)
	if members[id] == "" {
		members[id] = Address(id)
	}
	cfg := cluster.Config{
		NodeID: id, DataDir: c.folder(id), Listen: "127.0.0.1:0", Members: members, Dial: c.Net.dialer(id),
		Logger: slog.New(slog.NewTextHandler(c.tb.Output(), &slog.HandlerOptions{Level: slog.LevelInfo})),
	}
	if c.options.Configure != nil {
		c.options.Configure(&cfg)
	}
	fsm := c.options.FSM(id)
	n, err := cluster.Open(c.Context(), cfg, fsm)
	if err != nil {
		c.tb.Fatal(err)
	}
	c.nodes[id], c.fsms[id] = n, fsm
	c.Net.place(id, cfg.Members[id], n.ListenAddress())
}

// Stop stops a node in good order.
func (c *Cluster) Stop(id string) {
	c.tb.Helper()
	n := c.Node(id)
	delete(c.nodes, id)
	if err := n.Close(c.Context()); err != nil {
		c.tb.Fatal(err)
	}
}

// Crash stops a node of which the others hear nothing more.
func (c *Cluster) Crash(id string) {
	c.tb.Helper()
	c.Net.Isolate(id)
	c.Stop(id)
	c.Net.Heal()
}

// Wipe deletes the folder of a node that is stopped.
func (c *Cluster) Wipe(id string) {
	c.tb.Helper()
	if c.nodes[id] != nil {
		c.tb.Fatalf("node %s runs", id)
	}
	if err := os.RemoveAll(c.folder(id)); err != nil {
		c.tb.Fatal(err)
	}
}

func (c *Cluster) folder(id string) string { return filepath.Join(c.dir, id) }

// Context ends when the test has waited long enough.
func (c *Cluster) Context() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	c.tb.Cleanup(cancel)
	return ctx
}

// Leader waits for a node that leads and is confirmed by a majority.
func (c *Cluster) Leader() string {
	c.tb.Helper()
	leader := ""
	c.Eventually("a node leads", func() bool {
		for id, n := range c.nodes {
			if term, _ := n.Leadership(); term == 0 {
				continue
			}
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			err := n.Confirm(ctx)
			cancel()
			if err == nil {
				leader = id
				return true
			}
		}
		return false
	})
	return leader
}

// Follower returns a running node that is none of those, the first by name.
func (c *Cluster) Follower(but ...string) string {
	c.tb.Helper()
	for _, id := range slices.Sorted(maps.Keys(c.nodes)) {
		if !slices.Contains(but, id) {
			return id
		}
	}
	c.tb.Fatal("no other node runs")
	return ""
}

// Write has whoever leads apply commands, each once, through changes of the leader
// of which a test on a busy machine sees some that it did not ask for. The FSMs
// must be Ledgers.
func (c *Cluster) Write(commands ...string) {
	c.tb.Helper()
	for _, command := range commands {
		c.Eventually("a leader takes "+command, func() bool {
			id := c.Leader() // and has applied everything
			if slices.Contains(c.Lines(id), command) {
				return true // by an attempt that was told otherwise
			}
			_, err := c.Node(id).Propose(c.Context(), []byte(command))
			return err == nil
		})
	}
}

// Propose has a node, which must lead, apply commands.
func (c *Cluster) Propose(id string, commands ...string) {
	c.tb.Helper()
	for _, command := range commands {
		if _, err := c.Node(id).Propose(c.Context(), []byte(command)); err != nil {
			c.tb.Fatalf("propose %q at %s: %v", command, id, err)
		}
	}
}

// Eventually polls until ok; for what nothing signals.
func (c *Cluster) Eventually(what string, ok func() bool) {
	c.tb.Helper()
	deadline := time.Now().Add(Patience)
	for !ok() {
		if time.Now().After(deadline) {
			for id, n := range c.nodes {
				c.tb.Logf("%s: %+v", id, n.Status())
			}
			c.tb.Fatalf("%s: not after %v", what, Patience)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// Agree waits until all running nodes' Ledgers have exactly these lines.
func (c *Cluster) Agree(want ...string) {
	c.tb.Helper()
	c.Eventually(fmt.Sprintf("all nodes have %q", want), func() bool {
		for id := range c.nodes {
			if !slices.Equal(c.Lines(id), want) {
				return false
			}
		}
		return true
	})
}

func (c *Cluster) close() {
	c.Net.Heal()
	c.Net.Delay(0)
	c.Net.Lose(0)
	for id, n := range c.nodes {
		ctx, cancel := context.WithTimeout(context.Background(), Patience)
		if err := n.Close(ctx); err != nil {
			c.tb.Errorf("stop %s: %v", id, err)
		}
		cancel()
	}
}
