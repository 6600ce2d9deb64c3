package cluster

import (
	"slices"
	"testing"
	"time"

	"leased/client"
	"leased/gateway/api"
	"leased/test/proc"
)

// maxFailOver is the longest time without a grant when the leader is killed, at
// the median.
const maxFailOver = time.Second

// longHistory has a key keep all that happens to it in a test: as much as can be asked for.
const longHistory = "namespaces: {default: {history: {per_key: 65536}}}\n"

// A leader that is killed costs about a second and no acknowledged grant, and no key
// has two holders. Whoever repeats a call under its request id has it done.
func TestCluster_killLeader(t *testing.T) {
	c := proc.StartLeasedCluster(t, proc.Build(t, "leased/cmd/leased"), 3, longHistory)
	l := startLoad(t, c, 8, 20)
	k := contend(t, c, 6, 2, 20)
	var pauses []time.Duration
	at := c.Nodes[0]
	for range rounds(5, 15) {
		leader, followers := c.Leader(t, at)
		at = followers[0]
		l.wait(t, 200)
		killed := time.Now()
		leader.Kill()
		c.Leader(t, at)
		l.wait(t, 200)
		pauses = append(pauses, l.longestPause(killed))
		c.Launch(t, leader)
		leader.WaitReady(t)
		c.Healthy(t)
	}
	l.stop()
	k.stop()
	slices.Sort(pauses)
	t.Logf("longest times without a grant: %v; %d grants", pauses, l.granted())
	if median := pauses[len(pauses)/2]; median > maxFailOver {
		t.Errorf("the longest time without a grant is %v at the median, more than %v", median, maxFailOver)
	}
	l.check(t, c.Client(t, at))
	k.check(t, c.Client(t, at))
}

// maxRestart is the longest time without a grant when nodes are restarted in turn.
const maxRestart = 300 * time.Millisecond

// A graceful restart of all nodes in turn fails no request of a client that tries
// a second time.
func TestCluster_rollingRestart(t *testing.T) {
	c := proc.StartLeasedCluster(t, proc.Build(t, "leased/cmd/leased"), 3, longHistory)
	l := startLoad(t, c, 8, 2)
	k := contend(t, c, 6, 2, 2)
	since := time.Now()
	for range rounds(1, 5) {
		for _, n := range c.Nodes {
			l.wait(t, 100)
			n.Stop(t)
			l.wait(t, 100)
			c.Launch(t, n)
			n.WaitReady(t)
			c.Healthy(t)
		}
	}
	l.wait(t, 100)
	l.stop()
	k.stop()
	longest := l.longestPause(since)
	t.Logf("longest time without a grant: %v; %d grants", longest, l.granted())
	if longest > maxRestart {
		t.Errorf("the longest time without a grant is %v, more than %v", longest, maxRestart)
	}
	l.check(t, c.Client(t))
	k.check(t, c.Client(t))
}

// A leader that is stopped for three TTLs while its lease moves on answers nothing
// for the old holder when it wakes.
func TestCluster_pausedLeader(t *testing.T) {
	c := proc.StartLeasedCluster(t, proc.Build(t, "leased/cmd/leased"), 3, "namespaces: {default: {ttl: {min: 100ms}}}\n")
	for round := range rounds(2, 20) {
		leader, followers := c.Leader(t, c.Nodes[0])
		others := c.Client(t, followers...)
		const ttl = time.Second
		r := acquireRequest("moves", ttl)
		r.RequestID, r.Instance = "", "old"
		old, err := others.Acquire(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		leader.Pause(t)
		paused := time.Now()
		r.Instance, r.Wait = "new", proc.Patience
		moved, err := acquireAt(t, followers, r)
		if err != nil {
			t.Fatal(err)
		}
		<-time.After(time.Until(paused.Add(3 * ttl))) // the pause is what is tested
		asOld(t, leader, old.Lease, func() { leader.Resume(t) })
		if moved.Lease.Token <= old.Lease.Token {
			t.Errorf("round %d: token %d after %d", round, moved.Lease.Token, old.Lease.Token)
		}
		proc.Until(t, "the key is free again", proc.Patience, func() bool {
			key, err := others.GetKey(t.Context(), "", moved.Lease.KeyID)
			return err == nil && key.Lease == nil
		})
		c.Healthy(t)
	}
}

// acquireAt acquires through the nodes that are not paused.
func acquireAt(t *testing.T, at []*proc.Node, r client.AcquireRequest) (*client.Answer, error) {
	t.Helper()
	c, err := client.New(client.Options{Servers: []string{"http://" + at[0].Addr, "http://" + at[1].Addr}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c.Acquire(t.Context(), r)
}

// asOld asks the node for the old holder while it wakes: none of its answers may
// be a success.
func asOld(t *testing.T, n *proc.Node, l *api.Lease, wake func()) {
	t.Helper()
	answered := make(chan struct{}, 3)
	until := time.Now().Add(time.Second)
	ask := func(what string, call func(*client.Client) error) {
		c := once(t, n)
		go func() {
			defer func() { answered <- struct{}{} }()
			for time.Now().Before(until) {
				if err := call(c); err == nil {
					t.Errorf("%s succeeded for the old holder", what)
					return
				}
			}
		}()
	}
	ask("renew", func(c *client.Client) error {
		_, err := c.Renew(t.Context(), client.RenewRequest{LeaseID: l.LeaseID, Token: l.Token, Instance: l.Instance})
		return err
	})
	ask("check", func(c *client.Client) error {
		_, err := c.Check(t.Context(), client.CheckRequest{KeyID: l.KeyID, Token: l.Token})
		return err
	})
	ask("get", func(c *client.Client) error {
		got, err := c.Get(t.Context(), "", l.LeaseID)
		if err == nil && got.State != "active" {
			return client.ErrNotFound
		}
		return err
	})
	wake()
	for range 3 {
		<-answered
	}
}
