package contracttest

import (
	"fmt"

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
