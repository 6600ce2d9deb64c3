package cluster

import (
	"testing"
	"time"

	"leased/client"
	"leased/test/proc"
)

// A node whose clock is off by an hour, or steps by one while it leads, ends no
// lease early, lets none live on, and forgets no history and no answer early,
// whoever leads before and after it.
func TestCluster_clockOff(t *testing.T) {
	t.Parallel()
	bin := proc.BuildWithClock(t, "leased/cmd/leased")
	for name, clock := range map[string]string{
		"ahead":  proc.Clock(proc.ClockStep{Off: time.Hour}),
		"behind": proc.Clock(proc.ClockStep{Off: -time.Hour}),
		"steps": proc.Clock(proc.ClockStep{Off: time.Hour, After: 3 * time.Second},
			proc.ClockStep{Off: -time.Hour, After: 6 * time.Second}, proc.ClockStep{After: 9 * time.Second}),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // it waits more than it computes
			// What is remembered for less than an hour, a clock that counts would forget.
			c := proc.NewLeasedCluster(t, bin, 3, "namespaces: {default: {ttl: {min: 1s, max: 1m}, history: {keep: 10m}, idempotency: {keep: 10m}}}\n")
			c.Nodes[1].Env = []string{clock}
			c.Start(t)
			clockOff(t, c, c.Nodes[1])
		})
	}
}

// clockOff has leases live through leaders with and without the clock.
func clockOff(t *testing.T, c *proc.Cluster, off *proc.Node) {
	t.Helper()
	lead := func(n *proc.Node) {
		at := c.Nodes[0].Only(t)
		// The node that is asked may not have heard of the last change yet.
		proc.Succeeds(t, n.ID+" leads", proc.Patience, func() error { return at.Transfer(t.Context(), n.ID) })
	}
	// A node that starts leads for as long as it takes its clock to step three times.
	lead(off)
	h := hold(t, c, 5)
	left := abandon(t, c)
	over, err := left.client.Acquire(t.Context(), acquireRequest("over", shortTTL))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := left.client.Release(t.Context(), releaseRequest(over.Lease)); err != nil {
		t.Fatal(err)
	}
	for range 4 {
		left.add(t, 2)
		<-time.After(3 * time.Second) // the clock steps meanwhile
	}
	for _, n := range []*proc.Node{c.Nodes[0], off, c.Nodes[2]} {
		left.add(t, 2)
		lead(n)
	}
	lead(off)
	left.add(t, 2)
	killed := []time.Time{time.Now()}
	off.Kill()
	c.Launch(t, off)
	off.WaitReady(t)
	c.Healthy(t)
	left.add(t, 2)
	lead(off)
	left.wait()
	h.stop()
	left.check(t, killed, h.pauses(t, killed))
	h.check(t, left.client)

	for _, n := range []*proc.Node{off, c.Nodes[0]} {
		lead(n)
		again, err := left.client.Release(t.Context(), releaseRequest(over.Lease))
		if err != nil || !again.Replayed || again.Lease.LeaseID != over.Lease.LeaseID || again.Lease.Token != over.Lease.Token {
			t.Errorf("with %s as leader, the first release again: got %+v, error %v, want its answer, replayed", n.ID, again, err)
		}
		if events := historyOf(t, left.client, over.Lease.KeyID); len(events) != 2 {
			t.Errorf("with %s as leader, the first key has the history %+v, want its grant and its release", n.ID, events)
		}
		later := acquireRequest("later-"+n.ID, shortTTL)
		got, err := left.client.Acquire(t.Context(), later)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := left.client.Release(t.Context(), client.ReleaseRequest{LeaseID: got.Lease.LeaseID, Token: got.Lease.Token, Instance: later.Instance}); err != nil {
			t.Error(err)
		}
	}
}
