package client

import (
	"context"
	"time"

	"leased/gateway/api"
)

const (
	// newsAfter is how long a group lives before it follows events: a lease that is
	// held for a moment is not worth a stream.
	newsAfter = 200 * time.Millisecond
	// newsAgain is the pause after which a group tries again that was refused a
	// stream, as one without the right to watch is.
	newsAgain = time.Minute
)

// follow follows the events of the group's instance until ctx ends, so that the
// end of a lease is known when it happens and not with the next renewal. It adds
// to the renewals and takes nothing from them: whoever may not watch, or has a
// server that does not tell, learns of the end by renewing.
func (g *group) follow(ctx context.Context) {
	for pause := newsAfter; ; pause = newsAgain {
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return
		}
		g.watch(ctx)
	}
}

// watch follows one stream, over as many connections as it takes, until the
// server refuses it.
func (g *group) watch(ctx context.Context) {
	begun := false
	for e, err := range g.client.Watch(ctx, WatchRequest{
		Namespace: g.id.namespace, Instance: g.id.instance,
		OnBegin: func(string) {
			if !begun {
				begun = true
				g.ask() // what happened before it began is told by nobody
			}
		},
	}) {
		if err != nil {
			return
		}
		if e.Event == api.EventGap {
			g.ask() // the end of a lease may be among the events that were lost
			continue
		}
		g.hear(e)
	}
}

// ask renews all sessions now: the answers tell what became of them.
func (g *group) ask() {
	now := g.client.now()
	for _, same := range g.client.keeper.of(g) {
		for _, s := range same {
			s.dueNow(now)
		}
	}
	g.poke()
}

// hear takes an event. The end of a lease ends its session.
func (g *group) hear(e *api.Event) {
	var code api.Code
	switch e.Event {
	case "expired":
		code = api.CodeExpired
	case "released":
		code = api.CodeReleased
	case "revoked":
		code = api.CodeRevoked
	default:
		return
	}
	for _, s := range g.client.keeper.on(g.id, e.LeaseID) {
		if s.request.token == e.Token {
			s.lose(g.client.now(), false, &Error{Problem: *ended(code, e, s)})
		}
	}
	g.poke() // it has a session less
}

// ended returns what a renewal would be answered after the event.
func ended(code api.Code, e *api.Event, s *Session) *api.Problem {
	status, _ := s.Status()
	lease := *status.Lease
	lease.State, lease.EndedAt, lease.EndedBy, lease.Reason, lease.ExpiresInMS = e.State, e.At, e.Principal, e.Reason, 0
	p := api.NewProblem(code, e.RequestID, "the lease is over")
	p.Lease = &lease
	return p
}

// dueNow makes the next renewal due. One that is in flight may have been answered
// before what is asked about.
func (s *Session) dueNow(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.due, s.again = trust{sent: now}, s.inFlight
}
