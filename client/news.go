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
	// gapPause is the pause after the first time that events were lost, before what
	// was lost then is asked about.
	gapPause = time.Second
)

// follow follows the events of the group's instance until ctx ends, so that the
// end of a lease is known when it happens and not with the next renewal. It adds
// to the renewals and takes nothing from them: whoever may not watch, or has a
// server that does not tell, learns of the end by renewing.
func (g *group) follow(ctx context.Context) {
	defer g.questions.Wait()
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
		// Its own renewals, the most of what happens, are no news.
		Events: []string{"released", "expired", "revoked"},
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
			g.lost(ctx)
			continue
		}
		g.hear(e)
	}
}

// ask renews all sessions now: the answers tell what became of them. It returns the
// shortest of their intervals.
func (g *group) ask() (interval time.Duration) {
	now := g.client.now()
	g.client.keeper.noteNews()
	for _, same := range g.client.keeper.of(g) {
		for _, s := range same {
			if every := s.dueNow(now); interval == 0 || every < interval {
				interval = every
			}
		}
	}
	g.poke()
	return interval
}

// lost asks what became of the sessions, since the end of a lease may be among the
// events that were lost.
//
// Renewals make events, and each reader that is overtaken by them asks by renewing
// all that it has: if each loss were asked about at once, thousands of leases would be
// renewed without end. So the pause before the next question doubles, up to the time
// after which a lease is renewed anyway, for as long as events are lost.
func (g *group) lost(ctx context.Context) {
	now := g.client.now()
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.asks {
		return // what was lost now is asked about too
	}
	if now.Sub(g.askAt) > 2*g.askPause {
		g.askPause = 0
	}
	wait := max(0, g.askAt.Add(g.askPause).Sub(now))
	g.asks, g.askAt = true, now.Add(wait)
	g.askPause = max(gapPause, 2*g.askPause)
	g.questions.Go(func() {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
			return
		}
		g.mu.Lock()
		g.asks = false
		g.mu.Unlock()
		interval := g.ask()
		g.mu.Lock()
		defer g.mu.Unlock()
		g.askPause = min(g.askPause, max(gapPause, interval))
	})
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
	if code != api.CodeReleased { // by its holder, that is, who has it no more
		g.client.keeper.noteNews()
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

// dueNow makes the next renewal due, and returns how often that is. One that is in flight may have been answered
// before what is asked about.
func (s *Session) dueNow(now time.Time) (interval time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.due, s.again = trust{sent: now}, s.inFlight
	return s.interval
}
