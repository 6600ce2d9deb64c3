package contracttest

import (
	"context"
	"fmt"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"leased/contract"
)

// watch starts a stream, closed when the rule is over.
func (e *Env) watch(s contract.Store, r contract.WatchRequest) contract.Stream {
	e.Helper()
	if r.Namespace == "" {
		r.Namespace = e.ns
	}
	stream, err := s.Watch(e.ctx(), &r)
	if err != nil {
		e.Fatalf("watch: got error %v", err)
	}
	e.Cleanup(stream.Close)
	return stream
}

// next returns the next event of a stream that has no reason to lose any.
func (e *Env) next(stream contract.Stream) contract.Event {
	e.Helper()
	ev := e.nextOrGap(stream)
	if ev.Kind == contract.EventGap {
		e.Fatalf("streamed: got a gap, though the reader was never behind by more than a few events")
	}
	return ev
}

// nextOrGap returns the next event, which may tell that some were lost.
func (e *Env) nextOrGap(stream contract.Stream) contract.Event {
	e.Helper()
	ev, err := stream.Next(e.ctx())
	if err != nil {
		e.Fatalf("streamed: got error %v, want an event", err)
	}
	if wrong := eventShape(ev); wrong != "" {
		e.Fatalf("streamed: %s: %s", describeEvent(ev), wrong)
	}
	return ev
}

// streamed wants the next events of a stream to be these, each with an id of
// its own, and returns them as they came.
func (e *Env) streamed(stream contract.Stream, want ...contract.Event) []contract.Event {
	e.Helper()
	var got []contract.Event
	seen := map[string]bool{}
	for i, w := range want {
		ev := e.next(stream)
		if diff := transitionDiff(ev, w); diff != "" {
			e.Fatalf("streamed: event %d of %d is %s, want %s (-got +want)\n%s", i+1, len(want), describeEvent(ev), describeEvent(w), diff)
		}
		if seen[ev.ID] {
			e.Fatalf("streamed: event %d of %d has the id %q of an earlier one", i+1, len(want), ev.ID)
		}
		seen[ev.ID] = true
		got = append(got, ev)
	}
	return got
}

// nextCall is a Next that runs beside the rule.
type nextCall struct {
	done chan struct{}
	err  error // set before done is closed
}

// startNext calls Next on a stream on which nothing is due.
func (e *Env) startNext(ctx context.Context, stream contract.Stream) *nextCall {
	c := &nextCall{done: make(chan struct{})}
	e.spawn(func() {
		defer close(c.done)
		var ev contract.Event
		if ev, c.err = stream.Next(ctx); c.err == nil {
			c.err = fmt.Errorf("an event: %s", describeEvent(ev))
		}
	})
	return c
}

func describeEvent(ev contract.Event) string {
	return fmt.Sprintf("%s of the lease of %s, token %d, request %q", ev.Kind, ev.Owner, ev.Token, ev.RequestID)
}

// eventShape holds an event to what contract.Event says of every event. It
// returns what is wrong, or "".
func eventShape(ev contract.Event) string {
	if ev.ID == "" || ev.Namespace == "" {
		return fmt.Sprintf("id %q, namespace %q", ev.ID, ev.Namespace)
	}
	previous, state := contract.StateActive, contract.StateActive
	switch ev.Kind {
	case contract.EventGap:
		return ""
	case contract.EventAcquired:
		previous = contract.StateFree
	case contract.EventRenewed:
	case contract.EventReleased:
		state = contract.StateReleased
	case contract.EventExpired:
		state = contract.StateExpired
	case contract.EventRevoked:
		state = contract.StateRevoked
	default:
		return "it is not an event"
	}
	switch {
	case ev.At.IsZero():
		return "it has no time"
	case ev.KeyID != ev.Key.ID() || ev.LeaseID.KeyID() != ev.KeyID:
		return "key, key id and lease id do not belong together"
	case ev.Previous != previous || ev.State != state:
		return fmt.Sprintf("it leads from %s to %s, want from %s to %s", ev.Previous, ev.State, previous, state)
	case (ev.Principal == "") != (ev.Kind == contract.EventExpired):
		return fmt.Sprintf("it was caused by %q", ev.Principal)
	}
	return ""
}

// transitionDiff compares events but for what only the store knows beforehand.
func transitionDiff(got, want contract.Event) string {
	return cmp.Diff(got, want, cmpopts.IgnoreFields(contract.Event{}, "ID", "At", "Late"))
}

// sameEvents wants two views of the same events to agree, ids and times
// included. Late is no part of a view.
func (e *Env) sameEvents(what string, got, want []contract.Event) {
	e.Helper()
	if diff := cmp.Diff(got, want, cmpopts.EquateEmpty(), cmpopts.IgnoreFields(contract.Event{}, "Late")); diff != "" {
		e.Fatalf("%s: (-got +want)\n%s", what, diff)
	}
}

// event is the transition of l that the principal's request caused.
func event(kind contract.EventKind, l contract.Lease, principal, requestID, traceID string) contract.Event {
	ev := contract.Event{
		Kind: kind, Namespace: l.Namespace, Key: l.Key, KeyID: l.KeyID, LeaseID: l.ID, Token: l.Token,
		Owner: l.Owner, Instance: l.Instance, JobID: l.JobID, Principal: principal, RequestID: requestID, TraceID: traceID,
		Previous: contract.StateActive, State: contract.StateActive,
	}
	switch kind {
	case contract.EventAcquired:
		ev.Previous = contract.StateFree
	case contract.EventReleased:
		ev.State = contract.StateReleased
	case contract.EventExpired:
		ev.State = contract.StateExpired
	case contract.EventRevoked:
		ev.State = contract.StateRevoked
	}
	return ev
}

// acquiredBy is the grant of l to r.
func acquiredBy(r *contract.AcquireRequest, l contract.Lease) contract.Event {
	return event(contract.EventAcquired, l, r.Owner, r.RequestID, r.TraceID)
}

// story takes a key through every transition, over two handles, with refusals
// and repetitions in between, and returns what happened, oldest first. The last
// lease is still held.
func (e *Env) story(a, b contract.Store, key contract.Key) (events []contract.Event, held contract.Lease) {
	e.Helper()
	tell := func(ev contract.Event) { events = append(events, ev) }

	first := e.newAcquire(key, alice)
	first.JobID, first.TraceID, first.ExecutionID = "job-1", "trace-1", "exec-1"
	l := e.granted(a, first)
	tell(acquiredBy(first, l))
	renewal := e.newRenew(l)
	renewal.TraceID = "trace-2"
	e.renew(b, renewal, contract.OutcomeRenewed)
	tell(event(contract.EventRenewed, l, alice, renewal.RequestID, renewal.TraceID))
	e.refusals(a, b, first, l)
	release := e.newRelease(l)
	release.TraceID = "trace-3"
	e.release(b, release, contract.OutcomeReleased)
	tell(event(contract.EventReleased, l, alice, release.RequestID, release.TraceID))
	e.release(a, release, contract.OutcomeReleased) // repeated

	second := e.newAcquire(key, bob)
	l = e.granted(b, second)
	tell(acquiredBy(second, l))
	waiter := e.newWaiter(key, carol)
	waiter.TTL, waiter.JobID, waiter.TraceID = e.short(), "job-2", "trace-4"
	waiting := e.park(a, waiter)
	revoke := e.newRevoke(l)
	revoke.TraceID = "trace-5"
	e.revoke(b, revoke, contract.OutcomeRevoked)
	ended := event(contract.EventRevoked, l, revoke.Principal, revoke.RequestID, revoke.TraceID)
	ended.Reason = revoke.Reason
	tell(ended)
	l = e.served(waiting)
	tell(acquiredBy(waiter, l))
	e.expire(l)
	tell(event(contract.EventExpired, l, "", "", ""))

	third := e.newAcquire(key, alice)
	held = e.granted(a, third)
	tell(acquiredBy(third, held))
	return events, held
}

// refusals sends what changes nothing: the repetition of r, which granted l, and
// requests that must be refused.
func (e *Env) refusals(a, b contract.Store, r *contract.AcquireRequest, l contract.Lease) {
	e.Helper()
	e.acquire(b, r, contract.OutcomeAcquired)
	e.acquire(a, e.newAcquire(l.Key, bob), contract.OutcomeConflict)
	other := *r
	other.Instance = "another"
	e.acquire(a, &other, contract.OutcomeRequestIDReused)
	stale := e.newRelease(l)
	stale.Token++
	e.release(b, stale, contract.OutcomeStaleToken)
	stranger := e.newRenew(l)
	stranger.Owner = bob
	e.renew(a, stranger, contract.OutcomeNotOwner)
	unknown := e.newRevoke(l)
	unknown.LeaseID[31] ^= 1
	e.revoke(b, unknown, contract.OutcomeNotFound)
	invalid := e.newRevoke(l)
	invalid.Reason = ""
	_, err := a.Revoke(e.ctx(), invalid)
	e.failed("revoke without a reason", err, contract.CodeInvalid, "reason")
}

// fill grants n keys at once, over two handles, as change asks for each.
func (e *Env) fill(a, b contract.Store, n int, change func(i int, r *contract.AcquireRequest)) []contract.Lease {
	e.Helper()
	requests := make([]*contract.AcquireRequest, n)
	for i := range requests {
		requests[i] = e.newAcquire(e.key(fmt.Sprintf("fill-%s-%d", e.id("key"), i)), alice)
		change(i, requests[i])
	}
	answers, errs := make([]contract.Result, n), make([]error, n)
	// In batches: hundreds of calls at once would measure the machine.
	for from := 0; from < n; from += 16 {
		e.race(min(16, n-from), func(i int) {
			i += from
			answers[i], errs[i] = pick(i, a, b).Acquire(e.ctx(), requests[i])
		})
	}
	leases := make([]contract.Lease, n)
	for i := range leases {
		leases[i] = *e.answered(fmt.Sprint("acquire ", i), answers[i], errs[i], contract.OutcomeAcquired).Lease
	}
	return leases
}

// asAsked is the change of fill that changes nothing.
func asAsked(int, *contract.AcquireRequest) {}
