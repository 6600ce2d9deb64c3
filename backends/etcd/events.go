package etcd

import (
	"fmt"
	"time"

	"leased/contract"
)

// eventSub is the place of an event among those of the same revision. Which keys
// a transaction is about is told by their ids, of which no two in one begin alike,
// see committer; and a key has two events at most, of which the end comes first.
type eventSub uint32

const (
	firstSub eventSub = 0
	lastSub  eventSub = 1<<24 - 1
)

// subOf is the place of the end of a key's lease.
func subOf(id contract.KeyID) eventSub {
	return eventSub(id[0])<<16 | eventSub(id[1])<<8 | eventSub(id[2]&^1)
}

// eventID names an event by the revision that made it, which is its place among
// all events, and by its place among those of the same revision.
func eventID(rev int64, sub eventSub) string { return fmt.Sprintf("%016x-%06x", rev, uint32(sub)) }

// parseEventID is the strict inverse of eventID.
func parseEventID(id string) (rev int64, sub eventSub, ok bool) {
	if len(id) != 23 {
		return 0, 0, false
	}
	var r uint64
	if n, err := fmt.Sscanf(id, "%016x-%06x", &r, &sub); err != nil || n != 2 {
		return 0, 0, false
	}
	rev = int64(r)
	return rev, sub, rev > 0 && eventID(rev, sub) == id
}

// baseEvent is what all events of a lease share.
func baseEvent(ns string, r *record, rev int64) contract.Event {
	return contract.Event{
		ID: eventID(rev, subOf(r.id.KeyID())), Namespace: ns, Key: r.key(), KeyID: r.id.KeyID(), LeaseID: r.id, Token: r.token(),
		Owner: r.Owner, Instance: r.Instance, JobID: r.JobID,
		Previous: contract.StateActive, State: contract.StateActive,
	}
}

// acquiredEvent and endedEvent make the events of a key's history from the
// record of the lease.
func acquiredEvent(ns string, r *record) contract.Event {
	ev := baseEvent(ns, r, r.grantRev())
	ev.Kind, ev.At, ev.Previous = contract.EventAcquired, instant(r.Acquired), contract.StateFree
	ev.Principal, ev.RequestID, ev.TraceID = r.Owner, r.RequestID, r.TraceID
	ev.ID = eventID(r.grantRev(), subOf(ev.KeyID)|1)
	return ev
}

func endedEvent(ns string, r *record) contract.Event {
	ev := baseEvent(ns, r, r.endRev())
	ev.Kind, ev.At, ev.State = contract.EndedEvent(r.State), instant(r.Recorded), r.State
	ev.Principal, ev.RequestID, ev.TraceID, ev.Reason = r.EndedBy, r.EndRequestID, r.EndTraceID, r.Reason
	if r.State == contract.StateExpired {
		ev.Late = time.Duration(r.Recorded-r.Ended) * time.Microsecond
	}
	return ev
}

func renewedEvent(ns string, r *record) contract.Event {
	ev := baseEvent(ns, r, r.rev)
	ev.Kind, ev.At = contract.EventRenewed, instant(r.Renewed)
	ev.Principal, ev.RequestID, ev.TraceID = r.Owner, r.RenewRequestID, r.RenewTraceID
	return ev
}

// lastEvents are the events that the writing of a head stands for.
func lastEvents(ns string, r *record) []contract.Event {
	switch {
	case r.State.Terminal():
		return []contract.Event{endedEvent(ns, r)}
	case r.Rev != 0:
		return []contract.Event{renewedEvent(ns, r)}
	case r.Prev != nil:
		return []contract.Event{endedEvent(ns, r.Prev), acquiredEvent(ns, r)}
	}
	return []contract.Event{acquiredEvent(ns, r)}
}
