package prove

import (
	"slices"
	"strings"
	"testing"
	"time"

	"leased/test/proc"
)

// fault is something that goes wrong, and is mended.
type fault struct {
	name string // whom it happens to, and what kind it is
	// begin returns when it has happened, which it makes sure of where that is not plain.
	begin func()
	mend  func()
	// harmless has no lease end later.
	harmless bool
}

// kind is what happens, to whomever.
func (f *fault) kind() string {
	_, kind, _ := strings.Cut(f.name, ": ")
	return kind
}

// network adds what can happen between two ends.
func (d *deployment) network(t *testing.T, where string, p *proc.Proxy) {
	t.Helper()
	for _, f := range []struct {
		name    string
		traffic proc.Traffic
	}{
		{"cut", proc.Refuse}, {"ignored", proc.Ignore}, {"replies swallowed", proc.SwallowReplies}, {"requests swallowed", proc.SwallowRequests},
	} {
		d.faults = append(d.faults, fault{
			name:  where + ": " + f.name,
			begin: func() { p.Set(t, f.traffic) },
			mend:  func() { p.Set(t, proc.Pass) },
		})
	}
	d.faults = append(d.faults, fault{
		name:  where + ": slow",
		begin: func() { p.Delay(300 * time.Millisecond) },
		mend:  func() { p.Delay(0) },
	})
}

// clocks adds that the wall clock of a process of ours steps by an hour, and back, while
// it runs; and that it is off when the process starts again. Nothing depends on any of
// them. Those of Valkey and etcd are not ours to set: one process cannot be given
// another clock from without, and they are other people's programs.
func (d *deployment) clocks(t *testing.T, name string, hand *proc.ClockHand, url func() string, kill, serve func()) {
	t.Helper()
	is := func(off time.Duration) {
		t.Helper()
		got := proc.ClockOff(t, url())
		if (got - off).Abs() > time.Minute {
			t.Errorf("the clock of %s is off by %v, want %v", name, got, off)
		}
	}
	for _, off := range []time.Duration{time.Hour, -time.Hour} {
		way := map[bool]string{true: "ahead", false: "behind"}[off > 0]
		back := func() { hand.Step(t, 0); is(0) }
		d.faults = append(d.faults,
			fault{name: name + ": clock " + way, begin: func() { hand.Step(t, off); is(off) }, mend: back, harmless: true},
			fault{name: name + ": killed, clock " + way, begin: func() { hand.Step(t, off); kill() }, mend: func() { serve(); is(off); back() }},
		)
	}
}

// peer is a node that others reach through a proxy, and what they tell it by which of
// its connections are this node's.
type peer struct {
	name  string
	proxy *proc.Proxy
	says  string
}

// partitions adds that the network carries nothing in one direction: from a node to all
// others, to it from all others, and from one to one other. In the other direction
// everything arrives. at returns the peer in question when it begins; toOne is false if
// it need not have anything to tell one other.
func (d *deployment) partitions(t *testing.T, name string, peers []peer, toOne bool, at func() int) {
	t.Helper()
	one := func(i int) []peer { return peers[i : i+1] }
	rest := func(i int) []peer { return append(append([]peer(nil), peers[:i]...), peers[i+1:]...) }
	heal := func() {
		for _, p := range peers {
			p.proxy.Set(t, proc.Pass)
		}
	}
	const oneOnly = "one way"
	for _, f := range []struct {
		kind string
		ends func(i int) (from, to []peer)
	}{
		{"not heard", func(i int) (from, to []peer) { return one(i), rest(i) }},
		{"does not hear", func(i int) (from, to []peer) { return rest(i), one(i) }},
		{oneOnly, func(i int) (from, to []peer) { return one(i), one((i + 1) % len(peers)) }},
	} {
		if f.kind == oneOnly && !toOne {
			continue
		}
		d.faults = append(d.faults, fault{
			name: name + ": " + f.kind,
			begin: func() {
				proc.Until(t, name+" is "+f.kind, proc.Patience, func() bool {
					from, to := f.ends(at())
					if oneWay(t, from, to) {
						return true
					}
					heal() // the leader, say, is another one by now
					return false
				})
			},
			mend: heal,
		})
	}
}

// oneWay swallows what the ones send to the others, on connections that either made.
// It returns whether something was, which nodes that have nothing to tell each other do
// not show. One of the two lists has one peer.
func oneWay(t *testing.T, from, to []peer) bool {
	t.Helper()
	only := func(other []peer) string {
		if len(other) > 1 {
			return "" // everybody who dials
		}
		return other[0].says
	}
	for _, p := range to {
		p.proxy.SetFrom(t, proc.SwallowRequests, only(from))
	}
	for _, p := range from {
		p.proxy.SetFrom(t, proc.SwallowReplies, only(to))
	}
	all := slices.Concat(from, to)
	for over := time.Now().Add(3 * time.Second); time.Now().Before(over); time.Sleep(5 * time.Millisecond) {
		if slices.ContainsFunc(all, func(p peer) bool { return p.proxy.Dropped() > 0 }) {
			return true
		}
	}
	return false
}
