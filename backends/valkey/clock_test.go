package valkey_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"leased/backends/valkey"
	"leased/contract"
	"leased/test/proc"
)

// meta changes what the namespace remembers, all three numbers of it.
func (b *bench) meta(floor, epoch, seen string) {
	b.Helper()
	const script = `local f, e, s = struct.unpack('>I8I8I8', redis.call('GET', KEYS[1]))
		redis.call('SET', KEYS[1], struct.pack('>I8I8I8', f + ARGV[1], e + ARGV[2], s + ARGV[3])) return 'done'`
	if got := b.server.Do(b.T, "EVAL", script, "1", b.store.Base("bench")+":m", floor, epoch, seen); got != "done" {
		b.Fatalf("the namespace's memory could not be changed: %s", got)
	}
}

// TestClock_setBack has the server have seen an hour that is still to come, as if
// its clock had been set back.
func TestClock_setBack(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	before := b.grant("before")
	b.meta("0", "0", fmt.Sprint(time.Hour.Microseconds()))
	first, second := b.grant("first"), b.grant("second")
	if least := before.Token + contract.Token(time.Hour.Microseconds()); first.Token <= least {
		t.Errorf("token %d, which the clock may have given before it was set back; want more than %d", first.Token, least)
	}
	if second.Token != first.Token+1 {
		t.Errorf("token %d after %d: it is once that the clock was set back", second.Token, first.Token)
	}
}

// TestClock_setBackALittle has a key's last token be ahead of the server's clock by
// less than is noticed of a clock that was set back: the next one is higher still.
func TestClock_setBackALittle(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	last := b.grant("key")
	if res, err := b.store.Release(b.within(proc.Patience), releaseOf(last, b.ids.Add(1))); err != nil || res.Outcome != contract.OutcomeReleased {
		t.Fatalf("release: %v, %v", res.Outcome, err)
	}
	ahead := last.Token + contract.Token(time.Minute.Microseconds())
	const script = `return redis.call('SETRANGE', KEYS[1], 50, struct.pack('>I8', ARGV[1]))`
	b.server.Do(t, "EVAL", script, "1", b.store.Base("bench")+":k:"+last.KeyID.String(), fmt.Sprint(ahead))
	if next := b.grant("key"); next.Token <= ahead {
		t.Errorf("token %d after %d", next.Token, ahead)
	}
}

// TestClock_setBackInQueue has those who wait have come at an instant that is still to
// come, as if the clock had been set back since: who comes now is behind them.
func TestClock_setBackInQueue(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	held := b.grant("key")
	out := b.queue("key", "before")
	q := b.store.Base("bench") + ":q:" + held.KeyID.String()
	places := strings.TrimSpace(b.server.Do(t, "EVAL", `local s = redis.call('ZRANGE', KEYS[1], 0, 0)[1]
		redis.call('ZINCRBY', KEYS[1], 60000000, s) return redis.call('ZCARD', KEYS[1])`, "1", q))
	if places != "1" {
		t.Fatalf("%s places, want one", places)
	}
	later := b.queue("key", "since")
	if res, err := b.store.Release(b.within(proc.Patience), releaseOf(held, b.ids.Add(1))); err != nil || res.Outcome != contract.OutcomeReleased {
		t.Fatalf("release: %v, %v", res.Outcome, err)
	}
	first, second := <-out, <-later
	if first.err != nil || second.err != nil || first.res.Outcome != contract.OutcomeAcquired || second.res.Outcome != contract.OutcomeAcquired {
		t.Fatalf("got %v, %v and %v, %v", first.res.Outcome, first.err, second.res.Outcome, second.err)
	}
	if first.res.Lease.Token >= second.res.Lease.Token {
		t.Errorf("who came before has token %d, who came since %d", first.res.Lease.Token, second.res.Lease.Token)
	}
}

// TestRaiseFloor_epoch raises the floor where the clock is behind the epoch of the
// stream: no event's id may be used again, not even then.
func TestRaiseFloor_epoch(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	last := b.grant("before")
	b.meta("0", fmt.Sprint(time.Hour.Milliseconds()), "0")
	stream, err := b.store.Watch(b.within(proc.Patience), &contract.WatchRequest{Namespace: "bench"})
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	epoch := func(key string) (epoch int64, token contract.Token) {
		granted := b.grant(key)
		for {
			ev, err := stream.Next(b.within(proc.Patience))
			if err != nil {
				t.Fatal(err)
			}
			if ev.Kind != contract.EventAcquired || ev.KeyID != granted.KeyID {
				continue
			}
			text, _, _ := strings.Cut(ev.ID, "-")
			n, err := strconv.ParseInt(text, 10, 64)
			if err != nil {
				t.Fatalf("the id %q: %v", ev.ID, err)
			}
			return n, granted.Token
		}
	}
	before, _ := epoch("one")
	above := last.Token + contract.Token(time.Hour.Microseconds())
	if err := b.store.RaiseFloor(b.within(proc.Patience), &contract.RaiseFloorRequest{Namespace: "bench", Above: above}); err != nil {
		t.Fatal(err)
	}
	after, token := epoch("two")
	if after != before+1 || token != above+1 {
		t.Errorf("epoch %d after %d, and token %d above a floor of %d", after, before, token, above)
	}
	if again, _ := epoch("three"); again != after {
		t.Errorf("epoch %d after %d, and no floor was raised", again, after)
	}
}

// TestWaiter_lateGoodbye has a call leave a place after another one came to it.
func TestWaiter_lateGoodbye(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	held := b.grant("held")
	r := b.acquireOf("held")
	r.Wait = 20 * time.Second
	served := make(chan contract.Result, 1)
	go func() {
		res, err := b.store.Acquire(b.within(20*time.Second), r)
		if err != nil {
			t.Errorf("the waiter: %v", err)
		}
		served <- res
	}()
	b.eventually("it waits", func() bool { return b.health().Waiters == 1 })
	if err := b.store.Leave(b.within(proc.Patience), r, 0); err != nil {
		t.Fatal(err)
	}
	if n := b.health().Waiters; n != 1 {
		t.Errorf("%d waiters after the goodbye of an earlier call, want 1", n)
	}
	if _, err := b.store.Release(b.within(proc.Patience), releaseOf(held, b.ids.Add(1))); err != nil {
		t.Fatal(err)
	}
	if res := <-served; res.Outcome != contract.OutcomeAcquired {
		t.Errorf("the waiter got %v", res.Outcome)
	}
}

// TestWaiter_diesAndIsOver has a grant that nobody took end by itself before it is
// noticed that its waiter is dead: whoever holds the key by then keeps it.
func TestWaiter_diesAndIsOver(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	doomed := open(t, valkey.Config{Addresses: []string{b.server.Addr}})
	held := b.grant("held")
	r := b.acquireOf("held")
	r.Wait, r.TTL = 20*time.Second, 100*time.Millisecond
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		_, _ = doomed.Acquire(b.within(20*time.Second), r)
	}()
	b.eventually("it waits", func() bool { return b.health().Waiters == 1 })
	doomed.Kill()
	<-gone
	dead := b.believed()
	if _, err := b.store.Release(b.within(proc.Patience), releaseOf(held, b.ids.Add(1))); err != nil {
		t.Fatal(err)
	}
	untaken := b.store.Base("bench") + ":u"
	if n := b.server.Do(t, "ZCARD", untaken); n != "1" {
		t.Fatalf("%s grants that nobody took, want 1", n)
	}
	var next *contract.Lease
	b.eventually("the grant is over", func() bool {
		res, err := b.store.Acquire(b.within(proc.Patience), b.acquireOf("held"))
		next = res.Lease
		return err == nil && res.Outcome == contract.OutcomeAcquired
	})
	if n := b.server.Do(t, "ZCARD", untaken); n != "1" {
		t.Fatalf("%s grants that nobody took, want 1 still", n)
	}
	dead()
	b.eventually("the waiter is known to be dead", func() bool { return b.server.Do(t, "ZCARD", untaken) == "0" })
	res, err := b.store.Renew(context.Background(), b.renewOf(next))
	if err != nil || res.Outcome != contract.OutcomeRenewed {
		t.Errorf("the next holder's renewal: got %v, error %v, want renewed", res.Outcome, err)
	}
}
