package contracttest

import (
	"context"
	"fmt"
	"slices"
	"time"

	"leased/contract"
)

func watchRules() []Rule {
	return []Rule{
		{ID: "watch-all-kinds", Func: watchAllKinds,
			Sentence: "A stream shows every event of the namespace, renewals and expiries included, in the order in which they were committed, through whichever gateway they came."},
		{ID: "watch-ids-of-history", Func: watchIDsOfHistory,
			Sentence: "The same event has the same id in every stream and in the history."},
		{ID: "watch-filters-literal", Func: watchFiltersLiteral,
			Sentence: "A stream with filters shows exactly the events whose owner, instance, lease and key are equal to them."},
		{ID: "watch-filters-kinds", Func: watchFiltersKinds,
			Sentence: "A stream of some kinds of events shows every one of those, in order, and none of the others."},
		{ID: "watch-from-now", Func: watchFromNow,
			Sentence: "A stream without a cursor shows what happens after it was opened and nothing from before."},
		{ID: "watch-resumes", Func: watchResumes,
			Sentence: "A stream that resumes after an event, on any gateway, misses nothing that happened since, and repeats nothing."},
		{ID: "watch-resumes-in-traffic", Func: watchResumesInTraffic,
			Sentence: "A stream that is closed and resumed again and again while events come, on one gateway and another, shows every event once and in order."},
		{ID: "watch-cursor", Func: watchCursor,
			Sentence: "A stream's cursor, before its first event, after each one and after events that its filters passed over, is a place to resume from that loses and repeats nothing."},
		{ID: "watch-slow-reader", Func: watchSlowReader,
			Sentence: "A reader that does not keep up delays neither the store nor other readers, and where it misses events it is told of a gap, from which it may resume."},
		{ID: "watch-ends", Func: watchEnds,
			Sentence: "A stream outlives the context it was opened with and a read that timed out, and ends as closed when it or its store is closed."},
	}
}

func (e *Env) nextN(stream contract.Stream, n int) []contract.Event {
	e.Helper()
	var events []contract.Event
	for range n {
		events = append(events, e.next(stream))
	}
	return events
}

// renewal returns the event that a renewal of l owes.
func renewal(l contract.Lease, r *contract.RenewRequest) contract.Event {
	ev := transition(l)
	ev.Kind, ev.At, ev.Previous = contract.EventRenewed, l.RenewedAt, contract.StateActive
	ev.RequestID, ev.TraceID = r.RequestID, r.TraceID
	return ev
}

// tale makes things happen to keys of the rule's, through both gateways, and
// returns the events owed, oldest first.
func (e *Env) tale(a, b contract.Store) []contract.Event {
	e.Helper()
	var told []contract.Event
	for i, name := range []string{"one", "two"} {
		r := e.newAcquire(e.key(name), []string{alice, bob}[i])
		r.JobID, r.TraceID = e.id("job"), e.id("trace")
		l := e.granted(pick(i, a, b), r)
		renew := e.newRenew(l)
		renew.TraceID = e.id("trace")
		renewed := *e.renew(pick(i, b, a), renew, contract.OutcomeRenewed).Lease
		told = append(told, transition(l), renewal(renewed, renew))
		if i == 0 {
			release := e.newRelease(l)
			end := *e.release(b, release, contract.OutcomeReleased).Lease
			told = append(told, ended(end, release.RequestID, ""))
			continue
		}
		revoke := e.newRevoke(l)
		end := *e.revoke(a, revoke, contract.OutcomeRevoked).Lease
		told = append(told, ended(end, revoke.RequestID, ""))
	}
	return told
}

func watchAllKinds(e *Env) {
	a, b := e.pair()
	streams := []contract.Stream{e.watch(a, contract.WatchRequest{}), e.watch(b, contract.WatchRequest{})}
	told := e.tale(a, b)

	r := e.newAcquire(e.key("brief"), carol)
	r.TTL = e.short()
	l := e.granted(b, r)
	told = append(told, transition(l))
	for i, stream := range streams {
		e.owed(fmt.Sprint("stream ", i), e.nextN(stream, len(told)), told)
	}

	// Nobody touches the key: the stream tells of the expiry by itself.
	e.expire(l)
	end := l
	end.State = contract.StateExpired
	for i, stream := range streams {
		ev := e.next(stream)
		e.owed(fmt.Sprint("stream ", i), []contract.Event{ev}, []contract.Event{transition(end)})
		if ev.At.Before(l.ExpiresAt) {
			e.Errorf("stream %d: expired at %v, which is before the lease's end at %v", i, ev.At, l.ExpiresAt)
		}
	}

	// A handover is two events: the end, then the grant.
	held := e.grant(a, e.key("held"), alice)
	c := e.park(b, e.newWaiter(held.Key, bob))
	release := e.newRelease(held)
	over := *e.release(a, release, contract.OutcomeReleased).Lease
	next := e.served(c)
	for i, stream := range streams {
		e.owed(fmt.Sprint("stream ", i), e.nextN(stream, 3),
			[]contract.Event{transition(held), ended(over, release.RequestID, ""), transition(next)})
	}
}

func watchIDsOfHistory(e *Env) {
	a, b := e.pair()
	streams := []contract.Stream{e.watch(a, contract.WatchRequest{}), e.watch(b, contract.WatchRequest{})}
	told := e.tale(a, b)
	seen := map[string]contract.Event{}
	first := e.nextN(streams[0], len(told))
	for i, ev := range first {
		if other := e.next(streams[1]); other.ID != ev.ID {
			e.Fatalf("event %d has id %q in one stream and %q in the other", i, ev.ID, other.ID)
		}
		if _, twice := seen[ev.ID]; twice || ev.ID == "" {
			e.Fatalf("event %d has id %q, which must be its own", i, ev.ID)
		}
		seen[ev.ID] = ev
	}
	kept := 0
	for _, name := range []string{"one", "two"} {
		for _, ev := range e.history(pick(kept, a, b), e.key(name).ID()) {
			e.owed("an event in the history and in the stream", []contract.Event{ev}, []contract.Event{seen[ev.ID]})
			kept++
		}
	}
	if kept != 4 {
		e.Errorf("%d events in the histories, want 4", kept)
	}
}

func watchFiltersLiteral(e *Env) {
	a, b := e.pair()
	grant := func(owner, instance, name string) contract.Lease {
		r := e.newAcquire(e.key(name), owner)
		r.Instance = instance
		return e.granted(a, r)
	}
	mine := grant("a_b", "w_1", "mine")
	others := []contract.Lease{
		grant("aXb", "wX1", "other-1"), grant("a", "w", "other-2"), grant("*", "*", "other-3"), grant("A_B", "W_1", "other-4"),
	}
	streams := map[string]contract.Stream{
		"owner":    e.watch(b, contract.WatchRequest{Owner: "a_b"}),
		"instance": e.watch(b, contract.WatchRequest{Instance: "w_1"}),
		"lease":    e.watch(b, contract.WatchRequest{LeaseID: mine.ID}),
		"key":      e.watch(b, contract.WatchRequest{KeyID: mine.KeyID}),
		"all four": e.watch(a, contract.WatchRequest{Owner: "a_b", Instance: "w_1", LeaseID: mine.ID, KeyID: mine.KeyID}),
	}
	nobodys := []contract.Stream{
		e.watch(a, contract.WatchRequest{Owner: "*", LeaseID: mine.ID}),
		e.watch(b, contract.WatchRequest{Owner: "%"}),
		e.watch(b, contract.WatchRequest{Owner: "a_b", KeyID: others[0].KeyID}),
	}
	touch := func(l contract.Lease) string {
		r := e.newRenew(l)
		e.renew(b, r, contract.OutcomeRenewed)
		return r.RequestID
	}
	var want []string
	for range 2 {
		for _, l := range others {
			touch(l)
		}
		want = append(want, touch(mine))
	}
	for name, stream := range streams {
		for _, id := range want {
			if ev := e.next(stream); ev.RequestID != id {
				e.Errorf("filter by %s: got an event of %s, call %s, want call %s", name, ev.Owner, ev.RequestID, id)
			}
		}
	}
	for i, stream := range nobodys {
		ctx, cancel := e.cancellable(20 * time.Millisecond)
		if ev, err := stream.Next(ctx); err == nil {
			e.Errorf("filter %d that nothing matches: got an event of %s", i, ev.Owner)
		}
		cancel()
	}
}

func watchFiltersKinds(e *Env) {
	a, b := e.pair()
	all := []contract.EventKind{contract.EventAcquired, contract.EventRenewed, contract.EventReleased, contract.EventExpired, contract.EventRevoked}
	streams := map[contract.EventKinds]contract.Stream{}
	for i, kind := range all {
		streams[contract.KindsOf(kind)] = e.watch(pick(i, a, b), contract.WatchRequest{Kinds: contract.KindsOf(kind)})
	}
	ends := contract.KindsOf(contract.EventReleased, contract.EventExpired, contract.EventRevoked)
	streams[ends] = e.watch(b, contract.WatchRequest{Kinds: ends})
	streams[contract.KindsOf(all...)] = e.watch(a, contract.WatchRequest{Kinds: contract.KindsOf(all...)})
	r := e.newAcquire(e.key("brief"), carol)
	r.TTL = e.short()
	l := e.granted(b, r)
	e.expire(l)
	end := l
	end.State = contract.StateExpired
	// It may be noticed late, and what follows is to come behind it.
	expired := contract.KindsOf(contract.EventExpired)
	e.owed("the stream of expiries", e.nextN(streams[expired], 1), []contract.Event{transition(end)})
	delete(streams, expired)
	told := slices.Concat([]contract.Event{transition(l), transition(end)}, e.tale(a, b))
	for kinds, stream := range streams {
		owed := slices.DeleteFunc(slices.Clone(told), func(ev contract.Event) bool { return !kinds.Selects(ev.Kind) })
		e.owed(fmt.Sprintf("the stream of kinds %b", kinds), e.nextN(stream, len(owed)), owed)
	}
}

func watchFromNow(e *Env) {
	a, b := e.pair()
	e.tale(a, b)
	stream := e.watch(b, contract.WatchRequest{})
	l := e.grant(a, e.key("later"), alice)
	e.owed("the stream's first event", []contract.Event{e.next(stream)}, []contract.Event{transition(l)})
}

func watchResumes(e *Env) {
	a, b := e.pair()
	live := e.watch(a, contract.WatchRequest{})
	told := e.tale(a, b)
	first := e.nextN(live, 2)
	live.Close()
	told = append(told, e.tale(b, a)...) // nobody watches
	resumed := e.watch(b, contract.WatchRequest{After: first[1].ID})
	rest := e.nextN(resumed, len(told)-2)
	all := slices.Concat(first, rest)
	e.owed("the stream and its resumption", all, told)

	l := e.grant(a, e.key("three"), alice)
	for i, ev := range all {
		again := e.watch(pick(i, a, b), contract.WatchRequest{After: ev.ID})
		want := append(slices.Clone(told[i+1:]), transition(l))
		e.owed(fmt.Sprint("resumed after event ", i), e.nextN(again, len(want)), want)
		again.Close()
	}
	// The cursor need not match the filters: it is a place among all events.
	filtered := e.watch(a, contract.WatchRequest{After: all[0].ID, KeyID: l.KeyID})
	e.owed("resumed with a filter", []contract.Event{e.next(filtered)}, []contract.Event{transition(l)})
	// And one from the history will do as well.
	after := e.history(b, e.key("two").ID())[0]
	e.owed("resumed after an event of the history",
		[]contract.Event{e.next(e.watch(b, contract.WatchRequest{After: after.ID}))}, []contract.Event{transition(l)})
}

func watchEnds(e *Env) {
	a, b := e.pair()
	ctx, cancel := context.WithCancel(e.Context())
	stream, err := b.Watch(ctx, &contract.WatchRequest{Namespace: e.ns})
	if err != nil {
		e.Fatalf("watch: got error %v", err)
	}
	cancel()
	_, err = stream.Next(ctx)
	e.failed("next with a context that has ended", err, contract.CodeTimeout, "")
	short, stop := e.cancellable(10 * time.Millisecond)
	defer stop()
	_, err = stream.Next(short)
	e.failed("next while nothing happens", err, contract.CodeTimeout, "")
	l := e.grant(a, e.key("held"), alice)
	e.owed("the event after two time-outs", []contract.Event{e.next(stream)}, []contract.Event{transition(l)})

	e.endsStream("the stream is closed", stream, stream.Close)
	stream.Close()
	_, err = stream.Next(e.ctx())
	e.failed("next on a closed stream", err, contract.CodeClosed, "")

	left := e.watch(a, contract.WatchRequest{})
	other, err := b.Watch(e.ctx(), &contract.WatchRequest{Namespace: e.ns})
	if err != nil {
		e.Fatalf("watch: got error %v", err)
	}
	e.endsStream("its store is closed", other, func() { e.closeNow(b) })
	other.Close()
	l = *e.renew(a, e.newRenew(l), contract.OutcomeRenewed).Lease
	if ev := e.next(left); ev.Kind != contract.EventRenewed || ev.LeaseID != l.ID {
		e.Errorf("the other store's stream: got %s, want renewed", ev.Kind)
	}
}

// endsStream wants a read that waits to be told closed when end is called.
func (e *Env) endsStream(what string, stream contract.Stream, end func()) {
	e.Helper()
	started, done := make(chan struct{}), make(chan error, 1)
	e.spawn(func() {
		close(started)
		_, err := stream.Next(e.ctx())
		done <- err
	})
	<-started
	e.pause(5 * time.Millisecond) // most likely it waits by now; either way it must end
	end()
	select {
	case err := <-done:
		e.failed("next while "+what, err, contract.CodeClosed, "")
	case <-time.After(watchdog):
		e.Fatalf("next still waits %v after %s", watchdog, what)
	}
}
