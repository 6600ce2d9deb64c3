package proc

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"leased/client"
	"leased/gateway/api"
)

// Cluster is leased processes that are one cluster.
type Cluster struct {
	Nodes []*Node
	bin   string
	extra string
}

// Node is one of them. Its Server is the process that runs now, or ran last.
type Node struct {
	*Server
	ID   string
	Dir  string   // of its configuration and its log
	Data string   // its data directory
	Addr string   // of its HTTP server, whether or not it runs
	Peer string   // of its peer port
	Via  string   // where the others reach that port; Peer unless it is set
	Env  []string // besides the test's own
}

// NewLeasedCluster returns so many nodes, of which none runs. extra is added to the
// configuration of each.
func NewLeasedCluster(t *testing.T, bin string, nodes int, extra string) *Cluster {
	t.Helper()
	c := &Cluster{bin: bin, extra: extra}
	for i := range nodes {
		n := &Node{ID: fmt.Sprintf("n%d", i+1), Dir: t.TempDir(), Addr: loopback(FreePort(t)), Peer: loopback(FreePort(t))}
		n.Data = filepath.Join(n.Dir, "data")
		c.Nodes = append(c.Nodes, n)
	}
	t.Cleanup(func() { c.logs(t) })
	return c
}

// StartLeasedCluster is NewLeasedCluster and Start.
func StartLeasedCluster(t *testing.T, bin string, nodes int, extra string) *Cluster {
	t.Helper()
	c := NewLeasedCluster(t, bin, nodes, extra)
	c.Start(t)
	return c
}

// Start starts all nodes and waits until each is ready.
func (c *Cluster) Start(t *testing.T) {
	t.Helper()
	for _, n := range c.Nodes {
		c.Launch(t, n)
	}
	for _, n := range c.Nodes {
		n.WaitReady(t)
	}
}

// logs prints what the nodes logged, if the test failed.
func (c *Cluster) logs(t *testing.T) {
	t.Helper()
	for _, n := range c.Nodes {
		if !t.Failed() {
			return
		}
		content, err := os.ReadFile(filepath.Join(n.Dir, "log"))
		t.Logf("log of node %s (%v):\n%s", n.ID, err, content)
	}
}

// Launch starts a node, on its addresses and with its data, and waits for nothing.
func (c *Cluster) Launch(t *testing.T, n *Node) {
	t.Helper()
	var config strings.Builder
	fmt.Fprintf(&config, "node: {id: %s, data_dir: %s}\nhttp: {listen: %q}\n", n.ID, n.Data, n.Addr)
	fmt.Fprintf(&config, "cluster:\n  listen: %q\n  members:\n", n.Peer)
	for _, m := range c.Nodes {
		fmt.Fprintf(&config, "    %s: %q\n", m.ID, cmp.Or(m.Via, m.Peer))
	}
	config.WriteString(c.extra)
	file := filepath.Join(n.Dir, "leased.yaml")
	if err := os.WriteFile(file, []byte(config.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	log, err := os.OpenFile(filepath.Join(n.Dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = log.Close() }()
	cmd := exec.Command(c.bin, "serve", "-c", file)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Env = append(os.Environ(), n.Env...)
	n.Server = start(t, "http://"+n.Addr, cmd)
	t.Cleanup(n.Kill) // before the Stop of start: it would wait for nodes that cannot hand over
}

// WaitReady returns when the node is ready.
func (n *Node) WaitReady(t *testing.T) {
	t.Helper()
	n.waitForStatus(t, n.Dir, "/readyz")
}

// Signal sends a signal to the node.
func (n *Node) Signal(t *testing.T, s syscall.Signal) {
	t.Helper()
	if err := n.cmd.Process.Signal(s); err != nil {
		t.Fatalf("signal %s: %v", n.ID, err)
	}
}

// Client returns a client of the nodes, the given ones first.
func (c *Cluster) Client(t *testing.T, first ...*Node) *client.Client {
	t.Helper()
	var servers []string
	for _, n := range append(first, c.Nodes...) {
		servers = append(servers, "http://"+n.Addr)
	}
	return newClient(t, servers)
}

// Only returns a client of one node.
func (n *Node) Only(t *testing.T) *client.Client {
	t.Helper()
	return newClient(t, []string{"http://" + n.Addr})
}

func newClient(t *testing.T, servers []string) *client.Client {
	t.Helper()
	c, err := client.New(client.Options{Servers: servers})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// Leader returns the node that leads and those that follow, as the node at says.
func (c *Cluster) Leader(t *testing.T, at *Node) (leader *Node, followers []*Node) {
	t.Helper()
	Succeeds(t, "a node leads", Patience, func() error {
		ctx, cancel := context.WithTimeout(t.Context(), Patience)
		defer cancel()
		status, err := at.Only(t).Cluster(ctx)
		if err != nil {
			return err
		}
		leader, followers = nil, nil
		for _, n := range c.Nodes {
			if n.ID == status.Leader {
				leader = n
				continue
			}
			followers = append(followers, n)
		}
		if leader == nil {
			return fmt.Errorf("the leader is %q", status.Leader)
		}
		return nil
	})
	return leader, followers
}

// Healthy waits until all nodes are members in health, and have what the most
// advanced one has.
func (c *Cluster) Healthy(t *testing.T) {
	t.Helper()
	var most uint64 // when it was asked first: the load may go on
	Succeeds(t, "all nodes are healthy", Patience, func() error {
		ctx, cancel := context.WithTimeout(t.Context(), Patience)
		defer cancel()
		status, err := c.Nodes[0].Only(t).Cluster(ctx)
		if err != nil {
			return err
		}
		if most == 0 {
			for _, n := range status.Nodes {
				most = max(most, n.AppliedIndex)
			}
		}
		return healthy(status, len(c.Nodes), most)
	})
}

func healthy(status *api.Cluster, want int, applied uint64) error {
	count := 0
	for _, n := range status.Nodes {
		if n.Healthy && n.Voter && n.AppliedIndex >= applied {
			count++
		}
	}
	if count != want || len(status.Nodes) != want {
		return fmt.Errorf("%d nodes are healthy voters that have entry %d: %+v", count, applied, status.Nodes)
	}
	return nil
}
