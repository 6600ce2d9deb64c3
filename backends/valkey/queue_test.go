package valkey_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"leased/backends/valkey"
	"leased/contract"
	"leased/contract/contracttest"
	"leased/test/proc"
)

// served is what a waiter got, and when.
type served struct {
	owner string
	res   contract.Result
	err   error
	at    time.Time
}

// queue lets owners wait for a key, one after the other, and returns where their
// answers come. Who is granted the key releases it.
func (b *bench) queue(key string, owners ...string) <-chan served {
	b.Helper()
	before := b.health().Waiters
	out := make(chan served, len(owners))
	for i, owner := range owners {
		r := b.acquireOf(key)
		r.Owner, r.Wait = owner, 25*time.Second
		ctx := b.within(30 * time.Second)
		go func() {
			res, err := b.store.Acquire(ctx, r)
			out <- served{owner, res, err, time.Now()}
			if res.Outcome == contract.OutcomeAcquired {
				_, _ = b.store.Release(ctx, releaseOf(res.Lease, b.ids.Add(1)))
			}
		}()
		b.eventually(owner+" waits", func() bool { return b.health().Waiters == before+int64(i)+1 })
	}
	return out
}

// TestQueue_serverStalls stops the server for longer than a gateway is believed
// to live without a word. The release that freed the key is the first that it
// does afterwards: the waiters are all there, and are served in their order.
func TestQueue_serverStalls(t *testing.T) {
	t.Parallel()
	v := proc.StartValkey(t)
	holder := on(t, v, valkey.Config{Addresses: []string{v.Addr}})
	waiters := on(t, v, valkey.Config{Addresses: []string{v.Addr}})
	waiters.ids.Store(1000)
	for round := range 4 {
		held := holder.grant(fmt.Sprint("key-", round))
		want := []string{"first", "second", "third"}
		out := waiters.queue(held.Key.Target.ID, want...)
		contracttest.AdvanceRealTime(t, time.Duration(round)*60*time.Millisecond) // anywhere between two beats
		v.Pause(t)
		released := make(chan error, 1)
		go func() {
			_, err := holder.store.Release(holder.within(10*time.Second), releaseOf(held, holder.ids.Add(1)))
			released <- err
		}()
		contracttest.AdvanceRealTime(t, 1700*time.Millisecond) // that is the stall
		v.Resume()
		resumed := time.Now()
		if err := <-released; err != nil {
			t.Fatalf("release: %v", err)
		}
		for _, owner := range want {
			s := <-out
			if s.err != nil || s.res.Outcome != contract.OutcomeAcquired || s.owner != owner || s.at.Sub(resumed) > 2*time.Second {
				t.Errorf("round %d: %s got %v, error %v, %v after the stall; it was the turn of %s",
					round, s.owner, s.res.Outcome, s.err, s.at.Sub(resumed), owner)
			}
		}
	}
}

// TestQueue_refusalUnheard cuts the subscription of a waiter who is refused at
// its turn.
func TestQueue_refusalUnheard(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	held := b.grant("key")
	refused := make(chan contract.Result, 1)
	r := b.acquireOf("key")
	r.Owner, r.Wait, r.Limits.LeasesPerOwner = "busy", 20*time.Second, 1
	go func() {
		res, err := b.store.Acquire(b.within(25*time.Second), r)
		if err != nil {
			t.Errorf("the waiter: %v", err)
		}
		refused <- res
	}()
	b.eventually("it waits", func() bool { return b.health().Waiters == 1 })
	own := b.acquireOf("own")
	own.Owner = "busy"
	if res, err := b.store.Acquire(b.within(proc.Patience), own); err != nil || res.Outcome != contract.OutcomeAcquired {
		t.Fatalf("acquire: %v, %v", res.Outcome, err)
	}
	b.server.Do(t, "CLIENT", "KILL", "TYPE", "pubsub")
	// The connection with the subscription carries calls as well: the answer to this
	// one may be cut off with it.
	release := releaseOf(held, b.ids.Add(1))
	b.eventually("what came of the release is known", func() bool {
		_, err := b.store.Release(b.within(proc.Patience), release)
		if err != nil && contract.CodeOf(err) != contract.CodeOutcomeUnknown {
			t.Fatal(err)
		}
		return err == nil
	})
	began := time.Now()
	if res := <-refused; res.Outcome != contract.OutcomeQuotaExceeded || time.Since(began) > 2*time.Second {
		t.Errorf("got %v %v after its turn, want quota_exceeded", res.Outcome, time.Since(began))
	}
}

// commands returns how often the server ran a command.
func (b *bench) commands(name string) int {
	b.Helper()
	for line := range strings.Lines(b.server.Do(b.T, "INFO", "commandstats")) {
		if rest, ok := strings.CutPrefix(line, "cmdstat_"+name+":calls="); ok {
			text, _, _ := strings.Cut(rest, ",")
			n, err := strconv.Atoi(text)
			if err != nil {
				b.Fatalf("command statistics: %v", err)
			}
			return n
		}
	}
	return 0
}

// TestQueue_full refuses newcomers at a price that does not grow with the queue,
// and gives them the room of the first of those who are away.
func TestQueue_full(t *testing.T) { // alone: it is much work for the machine
	b := newBench(t)
	held := b.grant("key")
	const limit = 300
	const there = 30 * time.Second // to the end of the test
	ctx, leave := context.WithCancel(t.Context())
	wait := func(owner string, d time.Duration) (contract.Result, error) {
		r := acquireOf("key", 0)
		r.RequestID, r.Owner, r.Wait, r.Limits.WaitersPerKey = owner, owner, d, limit
		return b.store.Acquire(ctx, r)
	}
	var all sync.WaitGroup
	defer func() { leave(); all.Wait() }()
	// The first in the queue goes last.
	long := make(chan struct{})
	all.Go(func() { defer close(long); _, _ = wait("first-away", 2*time.Second) })
	b.eventually("the first waits", func() bool { return b.health().Waiters == 1 })
	all.Go(func() { _, _ = wait("second-away", 500*time.Millisecond) })
	b.eventually("the second waits", func() bool { return b.health().Waiters == 2 })
	for i := range limit - 2 {
		all.Go(func() { _, _ = wait(fmt.Sprint("there-", i), there) })
	}
	<-long
	b.eventually("two are away", func() bool { return b.health().Waiters == limit-2 })
	all.Go(func() { _, _ = wait("newcomer", there) })
	b.eventually("the newcomer waits", func() bool { return b.health().Waiters == limit-1 })
	for owner, kept := range map[string]bool{"first-away": false, "second-away": true} {
		r := acquireOf("key", 0)
		r.RequestID, r.Owner, r.Limits.WaitersPerKey = owner, owner, limit
		res, err := b.store.Acquire(b.within(proc.Patience), r)
		if err != nil || (res.Queue.Position > 0) != kept {
			t.Errorf("%s: position %d, error %v, want a place %v", owner, res.Queue.Position, err, kept)
		}
	}
	all.Go(func() { _, _ = wait("second-newcomer", there) })
	b.eventually("all are there", func() bool { return b.health().Waiters == limit })
	b.server.Do(t, "CONFIG", "RESETSTAT")
	const refusals = 20
	for i := range refusals {
		if res, err := wait(fmt.Sprint("too-many-", i), time.Second); err != nil || res.Limit != "waiters_per_key" {
			t.Errorf("one too many: got %v %s, error %v", res.Outcome, res.Limit, err)
		}
	}
	if n := b.commands("hgetall") + b.commands("hget"); n > 5*refusals {
		t.Errorf("%d refusals read %d places", refusals, n)
	}
	if n := b.server.Do(t, "ZCARD", b.store.Base("bench")+":q:"+held.KeyID.String()); n != strconv.Itoa(limit) {
		t.Errorf("%s places, want %d", n, limit)
	}
}

// TestQueue_manyAwayHadTheirTurn passes over more places that are away than are
// dropped at a time: the last of them has had its turn too, and who comes back to it
// is behind those who came since.
func TestQueue_manyAwayHadTheirTurn(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	held := b.grant("key")
	var last *contract.AcquireRequest
	for range 140 {
		last = b.acquireOf("key")
		last.Wait = time.Millisecond
		// On a busy machine the answer does not wait for the goodbye.
		res, err := b.store.Acquire(b.within(proc.Patience), last)
		if res.Outcome != contract.OutcomeConflict && contract.CodeOf(err) != contract.CodeOutcomeUnknown {
			t.Fatalf("a wait that ends: got %v, error %v", res.Outcome, err)
		}
	}
	b.eventually("all are away", func() bool { return b.health().Waiters == 0 })
	order := make(chan *contract.Lease, 3)
	wait := func(r *contract.AcquireRequest, waiters int64) {
		t.Helper()
		r.Wait = 25 * time.Second
		ctx := b.within(30 * time.Second)
		go func() {
			res, err := b.store.Acquire(ctx, r)
			if err != nil || res.Outcome != contract.OutcomeAcquired {
				t.Errorf("%s: got %v, error %v", r.RequestID, res.Outcome, err)
			}
			order <- res.Lease
		}()
		b.eventually("it waits", func() bool { return b.health().Waiters == waiters })
	}
	next := func() *contract.Lease {
		t.Helper()
		if res, err := b.store.Release(b.within(proc.Patience), releaseOf(held, b.ids.Add(1))); err != nil || res.Outcome != contract.OutcomeReleased {
			t.Fatalf("release: %v, %v", res.Outcome, err)
		}
		if held = <-order; held == nil {
			t.Fatal("nobody was served")
		}
		return held
	}
	stays, since := b.acquireOf("key"), b.acquireOf("key")
	wait(stays, 1)
	if got := next().RequestID; got != stays.RequestID {
		t.Fatalf("%s is served, want the one who waits", got)
	}
	wait(since, 1)
	wait(last, 2)
	for _, want := range []string{since.RequestID, last.RequestID} {
		if got := next().RequestID; got != want {
			t.Errorf("%s is served, want %s", got, want)
		}
	}
}

// TestQueue_awayAreForgotten lets many wait for a moment and never come back,
// while one who stays keeps the queue from being forgotten as a whole.
func TestQueue_awayAreForgotten(t *testing.T) { // alone: it is much work for the machine
	b := newBench(t)
	held := b.grant("key")
	base, kid := b.store.Base("bench"), held.KeyID.String()
	stays := make(chan contract.Result, 1)
	brief := func() {
		r := b.acquireOf("key")
		r.Wait, r.Retention.Idempotency = time.Millisecond, time.Second
		_, _ = b.store.Acquire(b.within(proc.Patience), r)
	}
	brief() // before the one who stays
	go func() {
		res, err := b.store.Acquire(b.within(40*time.Second), func() *contract.AcquireRequest {
			r := b.acquireOf("key")
			r.Wait = 30 * time.Second
			return r
		}())
		if err != nil {
			t.Errorf("the one who stays: %v", err)
		}
		stays <- res
	}()
	b.eventually("one waits", func() bool { return b.health().Waiters == 1 })
	many := func(n int) {
		var all sync.WaitGroup
		for range 16 {
			all.Go(func() {
				for range n / 16 {
					brief()
				}
			})
		}
		all.Wait()
	}
	many(1600)
	contracttest.AdvanceRealTime(t, 1200*time.Millisecond) // beyond their retention
	many(160)
	places := func() int {
		n, err := strconv.Atoi(b.server.Do(t, "HLEN", base+":p:"+kid))
		if err != nil {
			t.Fatal(err)
		}
		return n / 2 // and what it asked for
	}
	if n := places(); n > 400 {
		t.Errorf("%d places are kept, of which few can be remembered", n)
	}
	if _, err := b.store.Release(context.Background(), releaseOf(held, b.ids.Add(1))); err != nil {
		t.Fatal(err)
	}
	res := <-stays
	if res.Outcome != contract.OutcomeAcquired {
		t.Fatalf("the one who stays got %v", res.Outcome)
	}
	// Those left are away: the next time that the key is free they are all gone.
	if _, err := b.store.Release(context.Background(), releaseOf(res.Lease, b.ids.Add(1))); err != nil {
		t.Fatal(err)
	}
	if n := b.server.Do(t, "EXISTS", base+":q:"+kid, base+":s:"+kid, base+":p:"+kid); n != "0" {
		t.Errorf("%s keys of the queue are left", n)
	}
}
