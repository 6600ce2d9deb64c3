package valkey_test

import (
	"context"
	"testing"
	"time"

	"leased/backends/valkey"
	"leased/contract"
	"leased/test/proc"
)

// brief is a deadline that passes while a dial is not answered.
const brief = 20 * time.Millisecond

// TestDial_callersDeadline has connections break towards a server that answers
// no dial: whose deadline passes meanwhile is told that, not that there is no
// server.
func TestDial_callersDeadline(t *testing.T) {
	t.Parallel()
	v := proc.StartValkey(t)
	proxy := proc.StartProxy(t, v.Addr)
	b := on(t, v, valkey.Config{Addresses: []string{proxy.Address}})
	held := b.grant("held")
	stream, err := b.store.Watch(b.within(proc.Patience), &contract.WatchRequest{Namespace: held.Namespace})
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	reads := b.reads(held)
	reads["next"] = func(ctx context.Context) error {
		_, err := stream.Next(ctx)
		return err
	}
	b.expect("nothing happens", calls{"next": reads["next"]}, brief, contract.CodeTimeout)
	proxy.Set(t, proc.Ignore)
	b.eventually("the connections are known to be gone", func() bool {
		return contract.CodeOf(reads["get"](b.within(brief))) == contract.CodeTimeout
	})
	b.expect("nobody answers", reads, brief, contract.CodeTimeout)
	// The client lets calls wait for the dial of another one, and does not tell.
	b.expect("nobody answers", b.mutations(held), brief, contract.CodeTimeout, contract.CodeOutcomeUnknown)
	proxy.Set(t, proc.Pass)
	b.serves()
	b.expect("somebody answers", reads, brief, 0, contract.CodeTimeout)
}

// TestDial_firstConnection wants the same before there ever was a connection.
func TestDial_firstConnection(t *testing.T) {
	t.Parallel()
	v := proc.StartValkey(t)
	held := on(t, v, valkey.Config{Addresses: []string{v.Addr}}).grant("held")
	proxy := proc.StartProxy(t, v.Addr)
	proxy.Set(t, proc.Ignore)
	b := on(t, v, valkey.Config{Addresses: []string{proxy.Address}})
	b.expect("never connected", b.reads(held), brief, contract.CodeTimeout)
	b.expect("never connected", b.mutations(held), brief, contract.CodeTimeout)
}

// TestDial_timers has the timer of a connection and that of a context fire at
// the same time, which must not matter.
func TestDial_timers(t *testing.T) {
	t.Parallel()
	proxy := proc.StartProxy(t, "127.0.0.1:1")
	proxy.Set(t, proc.Ignore)
	for range 300 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		err := valkey.Dial(ctx, proxy.Address, proc.Patience)
		cancel()
		for _, reads := range []bool{true, false} {
			if got := valkey.Classify(ctx, err, reads); got != contract.CodeTimeout {
				t.Fatalf("a dial that the caller's deadline ended, reads %v: got %v (%v), want timeout", reads, got, err)
			}
		}
	}
	err := valkey.Dial(t.Context(), proxy.Address, brief)
	if got := valkey.Classify(t.Context(), err, false); got != contract.CodeUnavailable {
		t.Errorf("a dial that ended by itself: got %v (%v), want unavailable", got, err)
	}
}
