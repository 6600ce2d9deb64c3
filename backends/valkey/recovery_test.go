package valkey_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	vendor "github.com/valkey-io/valkey-go"

	"leased/backends/valkey"
	"leased/contract"
	"leased/contract/contracttest"
	"leased/test/proc"
)

// refusedAfter wants the holder of a lease that the store no longer knows to be
// refused, and the key's next token to be higher.
func (b *bench) refusedAfter(what string, held *contract.Lease) {
	b.Helper()
	res, err := b.store.Renew(b.within(proc.Patience), b.renewOf(held))
	if err != nil || res.Outcome != contract.OutcomeNotFound {
		b.Errorf("%s: renewal by the old holder: got %v, error %v, want not_found", what, res.Outcome, err)
	}
	if next := b.grant(held.Key.Target.ID); next.Token <= held.Token {
		b.Errorf("%s: token %d after token %d", what, next.Token, held.Token)
	}
}

func TestRecovery_ScriptFlush(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	held := b.grant("held")
	b.server.Do(t, "SCRIPT", "FLUSH", "SYNC")
	b.expect("after SCRIPT FLUSH", b.reads(held), proc.Patience, 0)
	b.server.Do(t, "SCRIPT", "FLUSH", "SYNC")
	b.expect("after SCRIPT FLUSH", calls{"renew": b.mutations(held)["renew"]}, proc.Patience, 0)
	b.grant("other")
}

func TestRecovery_FlushAll(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	held := b.grant("held")
	stream, err := b.store.Watch(b.within(proc.Patience), &contract.WatchRequest{Namespace: "bench"})
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	// The store has seen where the stream begins, and waits for what follows.
	b.server.Eventually(t, "the store waits for events", func(s string) bool {
		return strings.Contains(s, "blocked_clients:1\r")
	}, "INFO", "clients")
	b.server.Do(t, "FLUSHALL")
	b.refusedAfter("FLUSHALL", held)
	ev, err := stream.Next(b.within(proc.Patience))
	if err != nil || ev.Kind != contract.EventGap {
		t.Errorf("the stream after FLUSHALL: got %v, error %v, want a gap", ev.Kind, err)
	}
}

func TestRecovery_RestartEmpty(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	held := b.grant("held")
	b.server.Kill()
	b.server.Start(t)
	b.serves()
	b.refusedAfter("a restart with nothing", held)
}

func TestRecovery_OlderSnapshot(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	before := b.grant("before")
	b.server.Do(t, "SAVE")
	var last *contract.Lease
	for range 3 {
		last = b.grant("after")
		if _, err := b.store.Release(b.within(proc.Patience), releaseOf(last, b.ids.Add(1))); err != nil {
			t.Fatal(err)
		}
	}
	last = b.grant("after")
	b.server.Kill()
	b.server.Start(t)
	b.serves()
	b.refusedAfter("an older snapshot", last)
	b.expect("an older snapshot", calls{"renew": b.mutations(before)["renew"]}, proc.Patience, 0)
}

func TestRecovery_LaggingReplica(t *testing.T) {
	t.Parallel()
	primary := proc.StartValkey(t)
	replica := proc.StartReplica(t, primary)
	b := on(t, primary, valkey.Config{Addresses: []string{primary.Addr, replica.Addr}, Mode: valkey.ModeStandalone})
	first := b.grant("first")
	primary.Do(t, "WAIT", "1", "2000")
	replica.Do(t, "REPLICAOF", "NO", "ONE") // from here on it misses what happens
	lost := b.grant("lost")
	primary.Kill()
	b.serves()
	b.refusedAfter("the promotion of a lagging replica", lost)
	b.expect("after the promotion", calls{"renew": b.mutations(first)["renew"]}, proc.Patience, 0)
}

func TestRecovery_Demotion(t *testing.T) {
	t.Parallel()
	primary := proc.StartValkey(t)
	replica := proc.StartReplica(t, primary)
	b := on(t, primary, valkey.Config{Addresses: []string{primary.Addr, replica.Addr}})
	b.grant("held")
	primary.Do(t, "WAIT", "1", "2000")
	replica.Do(t, "REPLICAOF", "NO", "ONE")
	host, port := "127.0.0.1", replica.Addr[len("127.0.0.1:"):]
	primary.Do(t, "REPLICAOF", host, port) // its connections stay open
	b.serves()
	if got := replica.Do(t, "EXISTS", b.store.Base("bench")+":m"); got != "1" {
		t.Errorf("the new primary has nothing of the namespace")
	}
}

func TestRecovery_Sentinel(t *testing.T) {
	t.Parallel()
	primary := proc.StartValkey(t)
	replica := proc.StartReplica(t, primary)
	sentinel := proc.StartPatientSentinel(t, "leases", primary)
	sentinel.Eventually(t, "the sentinel knows the replica", func(s string) bool { return s != "" }, "SENTINEL", "REPLICAS", "leases")
	b := on(t, primary, valkey.Config{Addresses: []string{sentinel.Addr}, SentinelMaster: "leases"})
	held := b.grant("held")
	primary.Do(t, "WAIT", "1", "2000")
	primary.Kill()
	sentinel.Hurry(t, "leases")
	replica.Eventually(t, "the replica is promoted", func(s string) bool { return len(s) > 6 && s[:6] == "master" }, "ROLE")
	b.serves()
	b.expect("after the fail-over", calls{"renew": b.mutations(held)["renew"]}, proc.Patience, 0)
}

func TestReplicaAcks(t *testing.T) {
	t.Parallel()
	primary := proc.StartValkey(t)
	replica := proc.StartReplica(t, primary)
	b := on(t, primary, valkey.Config{Addresses: []string{primary.Addr}, ReplicaAcks: 1, ReplicaTimeout: time.Second})
	primary.Do(t, "SET", "first", "1")
	replica.Eventually(t, "the replica confirms", func(s string) bool { return s == "1" }, "EXISTS", "first")
	b.grant("confirmed")
	replica.Pause(t)
	r := b.acquireOf("unconfirmed")
	_, err := b.store.Acquire(b.within(proc.Patience), r)
	if contract.CodeOf(err) != contract.CodeUnavailable {
		t.Fatalf("acquire that no replica confirms: got %v, want unavailable", err)
	}
	key, err := b.store.GetKey(b.within(proc.Patience), &contract.GetKeyRequest{Namespace: "bench", KeyID: r.Key.ID()})
	if err != nil || key.Lease != nil {
		t.Errorf("the key after a grant that was not confirmed: held %v, error %v", key.Lease != nil, err)
	}
	replica.Resume()
	// The request id was not used up.
	b.eventually("the same acquire is granted", func() bool {
		res, err := b.store.Acquire(b.within(proc.Patience), r)
		return err == nil && res.Outcome == contract.OutcomeAcquired && !res.Replayed
	})
}

func TestOrphansAreSwept(t *testing.T) {
	t.Parallel()
	b := newBench(t, durable()...)
	gone := open(t, valkey.Config{Addresses: []string{b.server.Addr}})
	r := b.acquireOf("orphan")
	r.Namespace, r.TTL = "elsewhere", 300*time.Millisecond
	if res, err := gone.Acquire(b.within(proc.Patience), r); err != nil || res.Outcome != contract.OutcomeAcquired {
		t.Fatalf("acquire: %v, %v", res.Outcome, err)
	}
	base := gone.Base("elsewhere")
	b.eventually("the namespace is registered", func() bool {
		return b.server.Do(t, "SISMEMBER", valkey.DefaultPrefix+"spaces", "elsewhere") == "1"
	})
	gone.Kill()
	b.server.Kill()
	b.server.Start(t)
	expired := make(chan contract.Event, 16)
	observed := open(t, valkey.Config{Addresses: []string{b.server.Addr}, Observer: func(ev contract.Event) { expired <- ev }})
	defer func() { _ = observed.Close(b.within(proc.Patience)) }()
	// Nobody asks: a gateway that starts finds the namespace and what is over.
	b.eventually("the orphaned lease is ended", func() bool { return b.server.Do(t, "ZCARD", base+":x") == "0" })
	if got := b.server.Do(t, "XLEN", base+":e"); got != "2" {
		t.Errorf("%s events in the namespace, want a grant and one expiry", got)
	}
}

// TestExpiry_recordedLate has nobody there to record an expiry for longer than the
// history is kept: it is kept from when it was recorded.
func TestExpiry_recordedLate(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	r := b.acquireOf("brief")
	// It is not over before its gateway is, which would record that.
	r.TTL, r.Retention = 4*time.Second, contract.Retention{Idempotency: time.Second, History: 4 * time.Second, HistoryPerKey: 64}
	gone := open(t, valkey.Config{Addresses: []string{b.server.Addr}})
	if err := b.store.Close(b.within(proc.Patience)); err != nil {
		t.Fatal(err)
	}
	res, err := gone.Acquire(b.within(proc.Patience), r)
	if err != nil || res.Outcome != contract.OutcomeAcquired {
		t.Fatalf("acquire: %v, %v", res.Outcome, err)
	}
	gone.Kill()
	contracttest.AdvanceRealTime(t, r.TTL+r.Retention.History+time.Second)
	late := open(t, valkey.Config{Addresses: []string{b.server.Addr}})
	defer func() { _ = late.Close(b.within(proc.Patience)) }()
	got, err := late.Get(b.within(proc.Patience), &contract.GetRequest{Namespace: r.Namespace, LeaseID: res.Lease.ID})
	if err != nil || got.Outcome != contract.OutcomeFound || got.Lease.State != contract.StateExpired {
		t.Errorf("get: got %v, error %v, want the expired lease", got.Outcome, err)
	}
}

func TestMemoryIsBounded(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	keep := contract.Retention{Idempotency: 200 * time.Millisecond, History: 200 * time.Millisecond, HistoryPerKey: 2}
	for i := range 50 {
		r := b.acquireOf(fmt.Sprint("brief-", i%5))
		r.Retention, r.TTL = keep, 10*time.Second
		if i%2 == 0 {
			r.JobID = "job"
		}
		res, err := b.store.Acquire(b.within(proc.Patience), r)
		if err != nil || res.Outcome != contract.OutcomeAcquired {
			t.Fatalf("acquire: %v, %v", res.Outcome, err)
		}
		release := releaseOf(res.Lease, b.ids.Add(1))
		release.Retention = keep
		if _, err := b.store.Release(b.within(proc.Patience), release); err != nil {
			t.Fatal(err)
		}
	}
	// What is left: the stream, the meta record, the registry, and what replays
	// the acquires for as long as their leases could have lived.
	b.eventually("what is over is forgotten", func() bool {
		return b.server.Do(t, "EVAL", "return #redis.call('KEYS', '*')", "0") == "3"
	})
}

func TestRecovery_ConnectionsCut(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	held := b.grant("held")
	for range 5 {
		b.server.Do(t, "CLIENT", "KILL", "TYPE", "normal")
		b.serves()
		b.expect("connections cut", calls{"renew": b.mutations(held)["renew"]}, proc.Patience, 0)
	}
}

func TestCluster_OneNodeDown(t *testing.T) {
	t.Parallel()
	nodes := proc.StartCluster(t, 3, "cluster-require-full-coverage", "no", "appendonly", "yes")
	cfg := valkey.Config{Addresses: []string{nodes[0].Addr, nodes[1].Addr, nodes[2].Addr}, Mode: valkey.ModeCluster}
	b := on(t, nodes[0], cfg)
	try := func(i int) error {
		r := b.acquireOf(fmt.Sprint("key-", b.ids.Add(1)))
		r.Namespace = fmt.Sprint("ns-", i)
		_, err := b.store.Acquire(b.within(proc.Patience), r)
		return err
	}
	const spaces = 12 // enough to be on all nodes, for any hash worth its name
	for i := range spaces {
		if err := try(i); err != nil {
			t.Fatalf("namespace %d: %v", i, err)
		}
	}
	nodes[2].Kill()
	down := 0
	looks := &bench{T: t, server: nodes[0]}
	// Only a look at the servers asks for this. Three of them change nothing.
	for first := looks.commands("config|get"); looks.commands("config|get") < first+3; {
		down = 0
		for i := range spaces {
			err := try(i)
			if code := contract.CodeOf(err); code == contract.CodeUnavailable {
				down++
			} else if code != 0 && code != contract.CodeOutcomeUnknown {
				t.Errorf("namespace %d with a node down: %v", i, err)
			}
		}
	}
	if down == 0 || down == spaces {
		t.Errorf("%d of %d namespaces are unavailable with one of three nodes down", down, spaces)
	}
	nodes[2].Start(t)
	b.eventually("all namespaces are served", func() bool {
		for i := range spaces {
			if try(i) != nil {
				return false
			}
		}
		return true
	})
}

// TestCluster_SlotMoves wants nothing to be granted while a namespace is on two
// nodes: each would find only half of it.
func TestCluster_SlotMoves(t *testing.T) {
	t.Parallel()
	nodes := proc.StartCluster(t, 3)
	b := on(t, nodes[0], valkey.Config{Addresses: []string{nodes[0].Addr}})
	held := b.grant("held")
	slot := nodes[0].Do(t, "CLUSTER", "KEYSLOT", b.store.Base("bench"))
	var from, to *proc.Valkey
	for _, n := range nodes {
		if n.Do(t, "CLUSTER", "COUNTKEYSINSLOT", slot) != "0" {
			from = n
		} else {
			to = n
		}
	}
	to.Do(t, "CLUSTER", "SETSLOT", slot, "IMPORTING", from.Do(t, "CLUSTER", "MYID"))
	from.Do(t, "CLUSTER", "SETSLOT", slot, "MIGRATING", to.Do(t, "CLUSTER", "MYID"))
	refused := func(when string) {
		t.Helper()
		_, err := b.store.Acquire(b.within(proc.Patience), b.acquireOf("held"))
		if contract.CodeOf(err) != contract.CodeUnavailable {
			t.Errorf("acquire of a held key %s: got %v, want unavailable", when, err)
		}
		b.expect(when, b.mutations(held), proc.Patience, contract.CodeUnavailable)
	}
	refused("before the first key moved")
	_, port, _ := strings.Cut(to.Addr, ":")
	// Names of keys are bytes, which a command line would not keep.
	c, err := vendor.NewClient(vendor.ClientOption{InitAddress: []string{from.Addr}, ForceSingleClient: true, DisableCache: true})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ctx := b.within(20 * time.Second)
	keys, err := c.Do(ctx, c.B().Arbitrary("CLUSTER", "GETKEYSINSLOT", slot, "100").Build()).AsStrSlice()
	if err != nil || len(keys) < 5 {
		t.Fatalf("%d keys in the slot, error %v", len(keys), err)
	}
	for i, key := range keys {
		if err := c.Do(ctx, c.B().Arbitrary("MIGRATE", "127.0.0.1", port, key, "0", "2000").Build()).Error(); err != nil {
			t.Fatalf("migrate: %v", err)
		}
		if i == 0 || i == len(keys)/2 {
			refused(fmt.Sprintf("after %d of %d keys moved", i+1, len(keys)))
		}
	}
	for _, n := range []*proc.Valkey{to, from} {
		n.Do(t, "CLUSTER", "SETSLOT", slot, "NODE", to.Do(t, "CLUSTER", "MYID"))
	}
	b.eventually("the namespace is served where it is now", func() bool {
		return b.reads(held)["get"](b.within(proc.Patience)) == nil
	})
	res, err := b.store.Acquire(b.within(proc.Patience), b.acquireOf("held"))
	if err != nil || res.Outcome != contract.OutcomeConflict || res.Lease == nil || res.Lease.ID != held.ID {
		t.Errorf("acquire of the held key after the move: got %v, error %v, want conflict with its holder", res.Outcome, err)
	}
}
