package valkey

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"leased/contract"
)

// id is the place as an event's id. It is one text for one place.
func (p place) id() string { return fmt.Sprintf("%d-%d", p.epoch, p.n) }

func parsePlace(s string) (place, bool) {
	e, n, _ := strings.Cut(s, "-")
	var p place
	var err1, err2 error
	p.epoch, err1 = strconv.ParseUint(e, 10, 53)
	p.n, err2 = strconv.ParseUint(n, 10, 53)
	return p, err1 == nil && err2 == nil && p.id() == s
}

func (p place) less(o place) bool { return p.epoch < o.epoch || (p.epoch == o.epoch && p.n < o.n) }

// event returns what all events of the lease have in common.
func (v *stored) event(kind contract.EventKind, at place) contract.Event {
	l := &v.lease
	return contract.Event{
		ID: at.id(), Kind: kind,
		Namespace: l.Namespace, Key: l.Key, KeyID: l.KeyID, LeaseID: l.ID, Token: l.Token,
		Owner: l.Owner, Instance: l.Instance, JobID: l.JobID,
		Previous: contract.StateActive, State: contract.StateActive,
	}
}

func (v *stored) acquiredEvent() contract.Event {
	ev := v.event(contract.EventAcquired, v.acquired)
	ev.At, ev.Previous = v.lease.AcquiredAt, contract.StateFree
	ev.Principal, ev.RequestID, ev.TraceID = v.lease.Owner, v.lease.RequestID, v.lease.TraceID
	return ev
}

func (v *stored) endedEvent() contract.Event {
	ev := v.event(contract.EndedEvent(v.lease.State), v.ended)
	ev.At, ev.State, ev.Reason = instant(v.recorded), v.lease.State, v.lease.Reason
	ev.Principal, ev.RequestID, ev.TraceID = v.end.principal, v.end.requestID, v.end.traceID
	if ev.Kind == contract.EventExpired {
		ev.Late = time.Duration(v.recorded-v.expires) * time.Microsecond
	}
	return ev
}

// streamed makes the event of an entry of the namespace's stream.
func streamed(namespace string, at place, body, by string) (contract.Event, error) {
	v, err := parseRecord(namespace, body, true)
	if err != nil {
		return contract.Event{}, err
	}
	switch {
	case v.lease.State != contract.StateActive:
		v.ended = at
		return v.endedEvent(), nil
	case by == "":
		v.acquired = at
		return v.acquiredEvent(), nil
	}
	c, err := parseCause(by)
	if err != nil {
		return contract.Event{}, err
	}
	ev := v.event(contract.EventRenewed, at)
	ev.At, ev.Principal, ev.RequestID, ev.TraceID = instant(v.renewedAt), c.principal, c.requestID, c.traceID
	return ev, nil
}
