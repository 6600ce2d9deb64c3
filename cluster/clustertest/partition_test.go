package clustertest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"leased/cluster"
	"leased/test/proc"
)

// TestCluster_partition: of a leader that is cut off and the one that the others
// elect only the latter commits. The old one confirms nothing, and what it took
// meanwhile is answered as lost.
func TestCluster_partition(t *testing.T) {
	t.Parallel()
	c := New(t, Options{})
	c.Write("a")
	c.Agree("a")
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	// It is cut off as it sends the command, and no earlier: on a busy machine it
	// would have noticed by then, and refused it.
	cut := make(chan struct{})
	var once sync.Once
	old, term := "", uint64(0)
	c.Net.OnSend(func(from, _ string, p []byte) {
		if bytes.Contains(p, []byte("lost")) {
			once.Do(func() { c.Net.Isolate(from); old = from; close(cut) })
		}
	})
	lost := make(chan error, 1)
	c.steady("the command is sent", func(leader string) error {
		n := c.Node(leader)
		term, _ = n.Leadership()
		go func() {
			_, err := n.Propose(ctx, []byte("lost"))
			lost <- err
		}()
		select {
		case <-cut:
			return nil
		case err := <-lost:
			select {
			case <-cut: // both are ready
				lost <- err
				return nil
			default:
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	})
	c.Net.OnSend(nil)
	confirmed := make(chan error, 1)
	go func() { confirmed <- c.Node(old).Confirm(ctx) }()
	if err := <-lost; !errors.Is(err, raft.ErrLeadershipLost) {
		t.Errorf("Propose of a leader that is cut off: %v, want %v", err, raft.ErrLeadershipLost)
	}
	if err := <-confirmed; !errors.Is(err, raft.ErrLeadershipLost) && !errors.Is(err, raft.ErrNotLeader) {
		t.Errorf("Confirm of a leader that is cut off: %v, want %v", err, raft.ErrLeadershipLost)
	}
	next := c.Leader()
	if next == old {
		t.Fatal("the leader that is cut off leads")
	}
	if after, _ := c.Node(next).Leadership(); after <= term {
		t.Errorf("term %d after term %d, want a later one", after, term)
	}
	c.Write("b")
	if got := c.Lines(old); !slices.Equal(got, []string{"a"}) {
		t.Errorf("the cut-off node has applied %q", got)
	}
	c.Net.Heal()
	c.Write("c")
	c.Agree("a", "b", "c")
}

// TestCluster_oldReplies: a leader whose questions reach nobody, but to which
// replies still come, does not confirm itself with them.
func TestCluster_oldReplies(t *testing.T) {
	t.Parallel()
	c := New(t, Options{})
	old := c.Leader()
	for _, other := range c.IDs() {
		if other != old {
			c.Net.Cut(old, other)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	err := c.Node(old).Confirm(ctx)
	if !errors.Is(err, raft.ErrLeadershipLost) && !errors.Is(err, raft.ErrNotLeader) {
		t.Errorf("Confirm = %v, want %v", err, raft.ErrLeadershipLost)
	}
}

// TestCluster_disturbed: through cuts, delays and broken connections each command
// that was acknowledged is there at the end, once, and all nodes have the same.
func TestCluster_disturbed(t *testing.T) {
	t.Parallel()
	c := New(t, Options{Configure: func(cfg *cluster.Config) { cfg.Snapshot.Entries = 20 }})
	c.Leader()
	ctx, cancel := context.WithCancel(context.Background())
	var mu sync.Mutex
	var acknowledged []string
	var callers sync.WaitGroup
	for caller := range 8 {
		callers.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				id := c.IDs()[(caller+i)%3]
				command := fmt.Sprintf("%d-%d", caller, i)
				call, done := context.WithTimeout(ctx, 500*time.Millisecond)
				if _, err := c.Node(id).Propose(call, []byte(command)); err == nil {
					mu.Lock()
					acknowledged = append(acknowledged, command)
					mu.Unlock()
				}
				done()
				if leader, _ := c.Node(id).Leader(); leader != id {
					time.Sleep(time.Millisecond) // not to spin while nobody leads
				}
			}
		})
	}
	progress := func() {
		mu.Lock()
		had := len(acknowledged)
		mu.Unlock()
		c.Eventually("commands go on", func() bool {
			mu.Lock()
			defer mu.Unlock()
			return len(acknowledged) > had+10
		})
	}
	for round := range 6 {
		progress()
		leader := c.Leader()
		switch round % 3 {
		case 0:
			c.Net.Isolate(leader)
		case 1:
			c.Net.Lose(0.05)
			c.Net.Delay(2 * time.Millisecond)
		case 2:
			c.Net.Cut(c.Follower(leader), leader)
		}
		progress()
		c.Net.Heal()
		c.Net.Lose(0)
		c.Net.Delay(0)
	}
	cancel()
	callers.Wait()
	c.Write("last")
	c.Eventually("all nodes have the same", func() bool {
		first := c.Lines("n1")
		return slices.Contains(first, "last") && slices.Equal(first, c.Lines("n2")) && slices.Equal(first, c.Lines("n3"))
	})
	count := make(map[string]int)
	for _, line := range c.Lines("n1") {
		count[line]++
	}
	for _, command := range acknowledged {
		if count[command] != 1 {
			t.Errorf("acknowledged command %s is there %d times", command, count[command])
		}
	}
}

// TestCluster_transfer: leadership goes where it is sent, from any node. When the
// target does not answer it stays, and commands go on at once.
func TestCluster_transfer(t *testing.T) {
	t.Parallel()
	c := New(t, Options{})
	target := c.Follower(c.Leader())
	c.leadBy(target, func(string) string { return target })
	c.steady("the leader is handed leadership", func(leader string) error {
		return c.Node(leader).Transfer(c.Context(), leader)
	})
	dead := c.Follower(c.Leader())
	c.Net.Isolate(dead)
	c.steady("leadership stays", func(leader string) error {
		if leader == dead {
			t.Fatalf("%s leads, which is cut off", dead)
		}
		if err := c.Node(leader).Transfer(c.Context(), dead); err == nil {
			t.Error("leadership was handed to a node that is cut off")
		}
		_, err := c.Node(leader).Propose(c.Context(), []byte("a"))
		return err
	})
	c.steady("nobody can lead", func(leader string) error {
		return wants(c.Node(leader).Transfer(c.Context(), "n9"), cluster.ErrNoMember, "")
	})
	c.Net.Heal()
}

// TestCluster_transfer_restarted: the target was just started again, and what the
// leader has in store for it are connections to the process before.
func TestCluster_transfer_restarted(t *testing.T) {
	c := New(t, Options{})
	for range 6 {
		c.steady("transfer to a node that was started again", func(leader string) error {
			target := c.Follower(leader)
			c.Stop(target)
			c.Start(target)
			return c.Node(leader).Transfer(c.Context(), target)
		})
	}
}

// TestCluster_transfer_cut: the target falls silent after it was found healthy.
// Commands are refused no longer than it takes to notice.
func TestCluster_transfer_cut(t *testing.T) {
	c := New(t, Options{})
	late := proc.WatchLateness(t)
	const timeoutNow = 3 // how raft's message to the next leader begins; no other message of this test does
	c.steady("the target falls silent", func(leader string) error {
		target, silent := c.Follower(leader), make(chan struct{})
		var once sync.Once
		c.Net.OnSend(func(from, to string, p []byte) {
			if from == leader && to == target && p[0] == timeoutNow {
				once.Do(func() { c.Net.Isolate(target); close(silent) }) // and the message with it
			}
		})
		err := c.Node(leader).Transfer(c.Context(), target)
		c.Net.OnSend(nil)
		select {
		case <-silent:
		default:
			return fmt.Errorf("%s was not told to lead: %w", target, err)
		}
		if err == nil {
			t.Error("leadership went to a node that fell silent")
		}
		t.Logf("transfer: %v", err)
		return nil
	})
	begin := time.Now()
	c.Eventually("a node takes commands", func() bool {
		_, err := c.Node(c.Leader()).Propose(c.Context(), []byte("a"))
		return err == nil
	})
	// Uncut, raft's message would be waited for, and commands refused, for 1.6 s more.
	took := late.Took(begin)
	t.Logf("commands were refused for %v after the transfer ended", took)
	if took > time.Second {
		t.Errorf("commands were refused for %v after the transfer ended, want less than 1s", took)
	}
}

// TestCluster_Close: a leader that stops hands leadership over; it does not have
// to be missed first.
func TestCluster_Close(t *testing.T) {
	c := New(t, Options{})
	late := proc.WatchLateness(t)
	for range 3 {
		leader := c.Leader()
		other := c.Follower(leader)
		begin := time.Now()
		changed := make(chan time.Duration, 1)
		n := c.Node(other)
		go func() {
			for {
				id, next := n.Leader()
				if id != leader && id != "" {
					changed <- late.Took(begin)
					return
				}
				select {
				case <-next:
				case <-time.After(Patience):
					changed <- Patience
					return
				}
			}
		}()
		c.Stop(leader)
		if took := <-changed; took > 400*time.Millisecond { // the least that missing it takes
			t.Errorf("the next leader came after %v", took)
		} else {
			t.Logf("the next leader came after %v", took)
		}
		c.Start(leader)
		c.Leader()
	}
}

// TestCluster_snapshot: with all of the log below snapshots, all nodes crash, one
// is wiped, gets the snapshot, and leads.
func TestCluster_snapshot(t *testing.T) {
	t.Parallel()
	c := New(t, Options{Configure: func(cfg *cluster.Config) { cfg.Snapshot.Entries = 20 }})
	stop := c.load(c.IDs()...)
	c.Eventually("more is applied than stays below a snapshot", func() bool { return len(c.Lines("n1")) > 1500 })
	stop()
	c.Write("end")
	want := c.Lines(c.Leader())
	c.Agree(want...)
	for _, id := range c.IDs() {
		if err := c.Node(id).Snapshot(c.Context()); err != nil {
			t.Fatal(err)
		}
	}
	for _, id := range c.IDs() {
		c.Crash(id)
	}
	c.Wipe("n2")
	for _, id := range c.IDs() {
		c.Start(id)
	}
	c.Agree(want...)
	if s := c.Node("n2").Status(); s.SnapshotIndex == 0 {
		t.Errorf("the wiped node got no snapshot: %+v", s)
	}
	c.Eventually("the wiped node can lead", func() bool {
		return c.Node(c.Leader()).Transfer(c.Context(), "n2") == nil
	})
	c.Write("last")
	c.Agree(append(want, "last")...)
}
