package contracttest

import (
	"fmt"
	"slices"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"leased/contract"
)

func historyRules() []Rule {
	return []Rule{
		{ID: "history-every-transition", Func: historyEveryTransition,
			Sentence: "The history of a key has every transition, newest first, with what was granted, who caused it, by which call, and why."},
		{ID: "history-expiry-by-itself", Func: historyExpiryByItself,
			Sentence: "An expiry stands in the history without anybody having touched the key, not before the lease's end and as nobody's doing."},
		{ID: "history-counts-renewals", Func: historyCountsRenewals,
			Sentence: "Renewals are counted in the lease and not kept one by one in the history."},
		{ID: "history-refusals-add-nothing", Func: historyRefusalsAddNothing,
			Sentence: "Refusals, replays and reads add nothing to the history."},
		{ID: "history-keeps-newest", Func: historyKeepsNewest,
			Sentence: "The history keeps as many events as the retention says, and these are the newest."},
		{ID: "history-pages", Func: historyPages,
			Sentence: "Pages of a history are bounded, and following the cursors shows every event once while new ones are added."},
		{ID: "history-of-handover", Func: historyOfHandover,
			Sentence: "When a waiter is served the end of the old lease comes before its grant in the history, with its own request on record."},
	}
}

// transition returns the event that l's lease owes at the moment it is in: its
// grant while active, else its end. The call's ids are filled in by the rule.
func transition(l contract.Lease) contract.Event {
	ev := contract.Event{
		Kind: contract.EventAcquired, At: l.AcquiredAt, Namespace: l.Namespace, Key: l.Key, KeyID: l.KeyID,
		LeaseID: l.ID, Token: l.Token, Owner: l.Owner, Instance: l.Instance, JobID: l.JobID,
		Principal: l.Owner, RequestID: l.RequestID, TraceID: l.TraceID,
		Previous: contract.StateFree, State: contract.StateActive,
	}
	if l.State.Terminal() {
		ev.Kind, ev.At = contract.EndedEvent(l.State), l.EndedAt
		if l.State == contract.StateExpired {
			ev.At = l.ExpiresAt // what its lateness counts from
		}
		ev.Principal, ev.Reason, ev.RequestID, ev.TraceID = l.EndedBy, l.Reason, "", ""
		ev.Previous, ev.State = contract.StateActive, l.State
	}
	return ev
}

// ended is transition for a lease that a call ended.
func ended(l contract.Lease, requestID, traceID string) contract.Event {
	ev := transition(l)
	ev.RequestID, ev.TraceID = requestID, traceID
	return ev
}

// owed wants events as they should be, oldest first. IDs are the store's
// own, and so is how late an expiry was recorded.
func (e *Env) owed(what string, got, want []contract.Event) {
	e.Helper()
	opts := []cmp.Option{cmpopts.EquateEmpty(), cmpopts.IgnoreFields(contract.Event{}, "ID", "Late", "At")}
	if diff := cmp.Diff(got, want, opts...); diff != "" {
		e.Fatalf("%s: (-got +want)\n%s", what, diff)
	}
	for i, ev := range got {
		off := ev.At.Sub(want[i].At)
		if ev.Kind == contract.EventExpired && off >= 0 {
			off -= ev.Late // recorded when it was noticed, and it says how late that was
		}
		if off.Abs() > precision {
			e.Fatalf("%s: %s at %v, late by %v, want it at %v", what, ev.Kind, ev.At, ev.Late, want[i].At)
		}
		if ev.Kind != contract.EventExpired && ev.Late != 0 {
			e.Fatalf("%s: %s is late by %v", what, ev.Kind, ev.Late)
		}
	}
}

// tells wants the key's history to be want, which is oldest first, on each of
// the stores.
func (e *Env) tells(key contract.KeyID, want []contract.Event, stores ...contract.Store) {
	e.Helper()
	for _, s := range stores {
		got := e.history(s, key)
		ids := map[string]bool{}
		for i, ev := range got {
			if ev.ID == "" || ids[ev.ID] {
				e.Fatalf("history: event %d has id %q, which must be its own", i, ev.ID)
			}
			ids[ev.ID] = true
		}
		slices.Reverse(got)
		e.owed("history, oldest first", got, want)
	}
}

func historyEveryTransition(e *Env) {
	a, b := e.pair()
	key := e.key("often")
	var want []contract.Event
	acquire := func(owner string, ttl time.Duration) contract.Lease {
		r := e.newAcquire(key, owner)
		r.TTL, r.JobID, r.TraceID = ttl, e.id("job"), e.id("trace")
		l := e.granted(pick(len(want), a, b), r)
		want = append(want, transition(l))
		e.tells(key.ID(), want, a, b)
		return l
	}
	end := func(l contract.Lease) {
		r := e.newRelease(l)
		r.TraceID = e.id("trace")
		l = *e.release(pick(len(want), a, b), r, contract.OutcomeReleased).Lease
		want = append(want, ended(l, r.RequestID, r.TraceID))
		e.tells(key.ID(), want, a, b)
	}
	end(acquire(alice, e.long()))

	l := acquire(bob, e.short())
	e.expire(l)
	want = append(want, transition(e.get(a, l.ID)))
	e.tells(key.ID(), want, a, b)

	l = acquire(alice, e.long())
	r := e.newRevoke(l)
	r.TraceID = e.id("trace")
	l = *e.revoke(b, r, contract.OutcomeRevoked).Lease
	want = append(want, ended(l, r.RequestID, r.TraceID))
	e.tells(key.ID(), want, a, b)

	end(acquire(carol, e.long()))
	acquire(alice, e.long())
}

func historyExpiryByItself(e *Env) {
	a, b := e.pair()
	r := e.newAcquire(e.key("brief"), alice)
	r.TTL, r.JobID, r.TraceID = e.short(), "job-17", "trace-1"
	l := e.granted(a, r)
	e.expire(l)
	events := e.history(b, l.KeyID)
	if len(events) != 2 {
		e.Fatalf("%d events in the key's history, want acquired and expired", len(events))
	}
	want := transition(l)
	want.Kind, want.At, want.Previous, want.State = contract.EventExpired, l.ExpiresAt, contract.StateActive, contract.StateExpired
	want.Principal, want.RequestID, want.TraceID = "", "", ""
	e.owed("the expiry", events[:1], []contract.Event{want})
	if ev := events[0]; ev.At.Before(l.ExpiresAt) || ev.Late < 0 {
		e.Errorf("the lease ends at %v; recorded as expired at %v, late by %v", l.ExpiresAt, ev.At, ev.Late)
	}
	if got := e.get(a, l.ID); got.EndedAt.After(events[0].At) {
		e.Errorf("ended at %v, after its end was recorded at %v", got.EndedAt, events[0].At)
	}
}

func historyCountsRenewals(e *Env) {
	a, b := e.pair()
	l := e.grant(a, e.key("held"), alice)
	want := []contract.Event{transition(l)}
	for i := range 5 {
		l = *e.renew(pick(i, a, b), e.newRenew(l), contract.OutcomeRenewed).Lease
		if l.Renewals != uint64(i+1) {
			e.Fatalf("%d renewals are counted, want %d", l.Renewals, i+1)
		}
		e.tells(l.KeyID, want, a, b)
	}
	r := e.newRelease(l)
	l = *e.release(a, r, contract.OutcomeReleased).Lease
	if l.Renewals != 5 {
		e.Errorf("%d renewals are counted in the released lease, want 5", l.Renewals)
	}
	e.tells(l.KeyID, append(want, ended(l, r.RequestID, "")), a, b)
}

func historyRefusalsAddNothing(e *Env) {
	a, b := e.pair()
	r := e.newAcquire(e.key("held"), alice)
	l := e.granted(a, r)
	want := []contract.Event{transition(l)}
	same := func() {
		e.Helper()
		e.tells(l.KeyID, want, a, b)
	}
	e.acquire(b, e.newAcquire(l.Key, bob), contract.OutcomeConflict)
	quick := e.newAcquire(l.Key, bob)
	quick.Wait = precision
	e.acquire(b, quick, contract.OutcomeConflict)
	e.acquire(b, r, contract.OutcomeAcquired)
	reused := *r
	reused.JobID = "another"
	e.acquire(b, &reused, contract.OutcomeRequestIDReused)
	wrong := l
	wrong.Token++
	e.renew(a, e.newRenew(wrong), contract.OutcomeStaleToken)
	e.release(a, e.newRelease(wrong), contract.OutcomeStaleToken)
	wrong = l
	wrong.Owner = bob
	e.renew(a, e.newRenew(wrong), contract.OutcomeNotOwner)
	e.release(b, e.newRelease(wrong), contract.OutcomeNotOwner)
	unknown := e.newRevoke(l)
	unknown.LeaseID = contract.NewLeaseID(l.KeyID, [16]byte{1})
	e.revoke(a, unknown, contract.OutcomeNotFound)
	e.shows(b, l)
	same()

	release := e.newRelease(l)
	end := *e.release(a, release, contract.OutcomeReleased).Lease
	want = append(want, ended(end, release.RequestID, ""))
	same()
	e.release(b, release, contract.OutcomeReleased)
	e.release(b, e.newRelease(l), contract.OutcomeEndedReleased)
	e.renew(a, e.newRenew(l), contract.OutcomeEndedReleased)
	e.revoke(a, e.newRevoke(l), contract.OutcomeEndedReleased)
	e.acquire(a, r, contract.OutcomeEndedReleased)
	e.shows(a, end)
	same()
}

func historyKeepsNewest(e *Env) {
	a, b := e.pair()
	key := e.key("often")
	const keep = 5
	var all []contract.Event
	for i := range 6 {
		r := e.newAcquire(key, alice)
		r.Retention.HistoryPerKey = keep
		l := e.granted(pick(i, a, b), r)
		all = append(all, transition(l))
		e.tells(key.ID(), all[max(0, len(all)-keep):], a, b)
		release := e.newRelease(l)
		release.Retention.HistoryPerKey = keep
		l = *e.release(pick(i, b, a), release, contract.OutcomeReleased).Lease
		all = append(all, ended(l, release.RequestID, ""))
		e.tells(key.ID(), all[max(0, len(all)-keep):], a, b)
	}
}

func historyPages(e *Env) {
	a, b := e.pair()
	key := e.key("often")
	for range 5 {
		e.end(a, e.grant(a, key, alice))
	}
	all := e.history(b, key.ID())
	if len(all) != 10 {
		e.Fatalf("%d events in the key's history, want 10", len(all))
	}
	for i, limit := range []int{1, 3, 9, 10, 11} {
		s := pick(i, a, b)
		var ids []string
		r := &contract.HistoryRequest{Namespace: e.ns, KeyID: key.ID(), Limit: limit}
		for {
			page, err := s.History(e.ctx(), r)
			if err != nil || len(page.Events) > limit || len(page.Events) == 0 {
				e.Fatalf("history in pages of %d: got %d events, error %v", limit, len(page.Events), err)
			}
			for _, ev := range page.Events {
				ids = append(ids, ev.ID)
			}
			if page.NextCursor == "" {
				break
			}
			r.Cursor = page.NextCursor
			if len(ids) == limit { // newer events move nobody's place
				e.end(b, e.grant(b, key, bob))
			}
		}
		var want []string
		for _, ev := range all {
			want = append(want, ev.ID)
		}
		if diff := cmp.Diff(ids, want); diff != "" {
			e.Fatalf("history in pages of %d, while events are added: (-got +want)\n%s", limit, diff)
		}
		all = e.history(a, key.ID())
	}
	if diff := cmp.Diff(e.history(a, key.ID()), e.history(b, key.ID())); diff != "" {
		e.Errorf("two gateways tell different histories: (-a +b)\n%s", diff)
	}
}

func historyOfHandover(e *Env) {
	a, b := e.pair()
	l := e.grant(a, e.key("held"), alice)
	want := []contract.Event{transition(l)}
	var calls []*call
	for i := range 3 {
		r := e.newWaiter(l.Key, fmt.Sprint("owner-", i))
		r.TraceID = e.id("trace")
		calls = append(calls, e.park(pick(i, b, a), r))
	}
	for i, c := range calls {
		release := e.newRelease(l)
		end := *e.release(pick(i, a, b), release, contract.OutcomeReleased).Lease
		l = e.served(c)
		want = append(want, ended(end, release.RequestID, ""), transition(l))
		e.tells(l.KeyID, want, a, b)
	}
}
