package valkey_test

import (
	"crypto/rand"
	"fmt"
	"testing"
	"time"

	"leased/backends/valkey"
	"leased/contract"
	"leased/test/proc"
)

// pair is a primary with a replica that knows a few grants and no more of what
// happens from here on.
func pair(t *testing.T) (primary, replica *proc.Valkey, b *bench) {
	t.Helper()
	primary = proc.StartValkey(t)
	replica = proc.StartReplica(t, primary)
	b = on(t, primary, valkey.Config{Addresses: []string{primary.Addr, replica.Addr}})
	for i := range 5 {
		b.grant(fmt.Sprint("known-", i))
	}
	caughtUp(t, primary, replica)
	return primary, replica, b
}

// caughtUp waits until the replica has all that the primary has by now.
func caughtUp(t *testing.T, primary, replica *proc.Valkey) {
	t.Helper()
	mark := rand.Text()
	primary.Do(t, "SET", mark, "1")
	replica.Eventually(t, "the replica has caught up", func(s string) bool { return s == "1" }, "EXISTS", mark)
}

// TestFailOver_waiter has a key freed by a fail-over to a replica that lags: the
// new primary knows neither the lease nor that somebody waits for its end, but
// it does know the gateway.
func TestFailOver_waiter(t *testing.T) {
	t.Parallel()
	primary, replica, b := pair(t)
	other := b.queue("known-0", "elsewhere") // its gateway is known to be alive
	caughtUp(t, primary, replica)
	replica.Do(t, "REPLICAOF", "127.0.0.1", "1")
	held := b.grant("key")
	out := b.queue("key", "waiter")
	primary.Kill()
	replica.Do(t, "REPLICAOF", "NO", "ONE")
	promoted := time.Now()
	s := <-out
	if s.err != nil || s.res.Outcome != contract.OutcomeAcquired || s.at.Sub(promoted) > 2*time.Second || s.res.Lease.Token <= held.Token {
		t.Errorf("the waiter got %v, error %v, %v after the fail-over, want acquired", s.res.Outcome, s.err, s.at.Sub(promoted))
	}
	select {
	case s := <-other:
		t.Errorf("the waiter elsewhere got %v, error %v", s.res.Outcome, s.err)
	default:
	}
	res, err := b.store.GetKey(b.within(proc.Patience), &contract.GetKeyRequest{Namespace: "bench", KeyID: b.acquireOf("known-0").Key.ID()})
	if err != nil || res.Lease == nil {
		t.Fatalf("the key that is held still: %v", err)
	}
	if _, err := b.store.Release(b.within(proc.Patience), releaseOf(res.Lease, b.ids.Add(1))); err != nil {
		t.Fatal(err)
	}
	if s := <-other; s.res.Outcome != contract.OutcomeAcquired {
		t.Errorf("the waiter elsewhere got %v, error %v at its turn", s.res.Outcome, s.err)
	}
}

// TestFailOver_stream reads on after a fail-over to a replica that lags, whose
// next events have the numbers of those that it lost.
func TestFailOver_stream(t *testing.T) {
	t.Parallel()
	primary, replica, b := pair(t)
	replica.Do(t, "REPLICAOF", "127.0.0.1", "1")
	stream, err := b.store.Watch(b.within(proc.Patience), &contract.WatchRequest{Namespace: "bench"})
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	for i := range 3 { // the replica does not know of these
		b.grant(fmt.Sprint("lost-", i))
		if ev, err := stream.Next(b.within(proc.Patience)); err != nil || ev.Kind != contract.EventAcquired {
			t.Fatalf("an event before: got %v, error %v", ev.Kind, err)
		}
	}
	primary.Kill()
	replica.Do(t, "REPLICAOF", "NO", "ONE")
	// Another gateway is there at once, and its events take the numbers.
	direct := on(t, replica, valkey.Config{Addresses: []string{replica.Addr}})
	direct.ids.Store(10_000)
	for i := range 4 {
		direct.grant(fmt.Sprint("new-", i))
	}
	b.serves()
	direct.grant("last")
	gap := false
	for {
		ev, err := stream.Next(b.within(proc.Patience))
		if err != nil && contract.CodeOf(err) == contract.CodeUnavailable {
			continue // the connection broke
		}
		if err != nil {
			t.Fatalf("the stream after the fail-over: %v", err)
		}
		gap = gap || ev.Kind == contract.EventGap
		if ev.Kind == contract.EventAcquired && ev.Key.Target.ID == "last" {
			break
		}
	}
	if !gap {
		t.Error("events were lost and no gap told of it")
	}
}

// TestFailOver_floorSeenByOne: after the server lost everything, another gateway,
// which never saw a token above the clock, is the first to grant.
func TestFailOver_floorSeenByOne(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	above := contract.Token(time.Now().Add(24 * time.Hour).UnixMicro())
	if err := b.store.RaiseFloor(b.within(proc.Patience), &contract.RaiseFloorRequest{Namespace: "bench", Above: above}); err != nil {
		t.Fatal(err)
	}
	held := b.grant("key")
	other := on(t, b.server, valkey.Config{Addresses: []string{b.server.Addr}})
	b.server.Do(t, "FLUSHALL")
	other.grant("another key")
	if next := b.grant("key"); next.Token <= held.Token {
		t.Errorf("token %d after FLUSHALL, %d before", next.Token, held.Token)
	}
}

// TestFailOver_floor wants tokens above a floor that is higher than any clock to
// rise though the server forgot it, by FLUSHALL and by a restart with nothing.
func TestFailOver_floor(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	above := contract.Token(time.Now().Add(24 * time.Hour).UnixMicro())
	if err := b.store.RaiseFloor(b.within(proc.Patience), &contract.RaiseFloorRequest{Namespace: "bench", Above: above}); err != nil {
		t.Fatal(err)
	}
	held := b.grant("key")
	b.server.Do(t, "FLUSHALL")
	next := b.grant("key")
	if held.Token <= above || next.Token <= held.Token {
		t.Errorf("above the floor %d: token %d after FLUSHALL, %d before", above, next.Token, held.Token)
	}
	b.server.Kill()
	b.server.Start(t)
	b.serves()
	if last := b.grant("key"); last.Token <= next.Token {
		t.Errorf("token %d after a restart with nothing, %d before", last.Token, next.Token)
	}
}
