package raftkv

import (
	"context"
	"errors"
	"time"

	"github.com/hashicorp/raft"

	"leased/contract"
)

// retryAfter is the advice that goes with unavailable: about the time an
// election takes.
const retryAfter = 250 * time.Millisecond

// classify says what is known of a command whose proposal failed. What was
// certainly not applied is an allow-list; everything else may have been.
func classify(ctx context.Context, err error) *contract.Error {
	var submission interface{ Submitted() bool }
	switch {
	case errors.As(err, &submission) && !submission.Submitted():
		return notSubmitted(ctx, err)
	case errors.Is(err, raft.ErrEnqueueTimeout):
		return notSubmitted(ctx, err)
	case errors.Is(err, raft.ErrNotLeader),
		errors.Is(err, raft.ErrLeadershipTransferInProgress):
		return unavailable(err, "this node does not lead")
	}
	e := contract.Errorf(contract.CodeOutcomeUnknown, err, "the answer was lost; repeat it with the same request id")
	e.RetryAfter = retryAfter
	return e
}

// classifyRead says why a read could not be confirmed. A read changes nothing,
// so nothing about it is unknown.
func classifyRead(ctx context.Context, err error) *contract.Error {
	if ctx.Err() != nil {
		return contract.Errorf(contract.CodeTimeout, err, "the deadline passed before the read was confirmed")
	}
	return unavailable(err, "this node does not lead")
}

func notSubmitted(ctx context.Context, err error) *contract.Error {
	if ctx.Err() != nil {
		return contract.NotSubmitted(ctx)
	}
	return unavailable(err, "this node takes no commands now")
}

func unavailable(err error, detail string) *contract.Error {
	e := contract.Errorf(contract.CodeUnavailable, err, "%s", detail)
	e.RetryAfter = retryAfter
	return e
}

func notLeading() *contract.Error { return unavailable(nil, "this node does not lead") }

// result turns what Apply answered into what the caller gets.
func (r *reply) result() (contract.Result, error) {
	if r.code != 0 {
		return contract.Result{}, contract.Errorf(r.code, nil, "%s", r.detail)
	}
	out := contract.Result{Outcome: r.outcome, Replayed: r.replayed, Queue: r.queue, Limit: r.limit}
	if r.lease != nil {
		l := r.lease
		if r.first != nil {
			shown := *l
			shown.life = *r.first
			l = &shown
		}
		v := view(l, r.now)
		out.Lease = &v
	}
	return out, nil
}

// view copies a lease out of the state, as seen at an instant of its clock.
func view(l *lease, now int64) contract.Lease {
	v := contract.Lease{
		RecordVersion: contract.RecordVersion,
		Namespace:     l.ns, Key: l.key, KeyID: l.id, ID: l.leaseID(),
		Owner: l.owner, Instance: l.instance, Token: contract.Token(l.token), State: l.state(),
		AcquiredAt: instant(l.wall), RenewedAt: instant(l.renewed), ExpiresAt: instant(l.nominal),
		TTL: time.Duration(l.ttl), MaxLifetime: time.Duration(l.maxLifetime), Renewals: l.renewals,
		ExecutionID: l.executionID, JobID: l.jobID, TraceID: l.traceID, RequestID: l.requestID,
		Metadata: metadataOf(l.metadata),
	}
	if l.end == nil {
		v.ExpiresIn = time.Duration(max(l.expires-now, 0))
		return v
	}
	v.EndedAt = instant(l.end.wall)
	if l.end.state == contract.StateExpired {
		v.EndedAt = instant(max(l.nominal, l.end.wall-l.end.late))
	}
	v.EndedBy, v.Reason = l.end.by, l.end.reason
	return v
}

func instant(ns int64) time.Time { return time.Unix(0, ns).UTC() }

func metadataOf(pairs []string) map[string]string {
	if len(pairs) == 0 {
		return nil
	}
	m := make(map[string]string, len(pairs)/2)
	for i := 0; i+1 < len(pairs); i += 2 {
		m[pairs[i]] = pairs[i+1]
	}
	return m
}

// eventView copies an event out of the ring.
func eventView(e *event) contract.Event {
	l := e.lease
	v := contract.Event{
		ID: eventID(e.pos), At: instant(e.wall), Kind: e.kind,
		Namespace: l.ns, Key: l.key, KeyID: l.id, LeaseID: l.leaseID(), Token: contract.Token(l.token),
		Owner: l.owner, Instance: l.instance, Principal: e.principal, RequestID: e.requestID, TraceID: e.traceID,
		JobID: l.jobID, Previous: contract.StateActive, State: contract.StateActive,
	}
	switch {
	case e.kind == contract.EventAcquired:
		v.Previous = contract.StateFree
	case e.kind != contract.EventRenewed:
		v.State, v.Reason = l.end.state, l.end.reason
		v.Late = time.Duration(l.end.late)
	}
	return v
}

// acquiredEvent and endedEvent make a lease's events from its record, the same
// as the ring has them.
func acquiredEvent(l *lease) *event {
	return &event{
		pos: l.at, kind: contract.EventAcquired, when: l.when(), wall: l.wall, lease: l,
		principal: l.owner, requestID: l.requestID, traceID: l.traceID,
	}
}

func endedEvent(l *lease) *event {
	return &event{
		pos: l.end.at, kind: contract.EndedEvent(l.end.state), when: l.end.when, wall: l.end.wall, lease: l,
		principal: l.end.by, requestID: l.end.requestID, traceID: l.end.traceID,
	}
}
