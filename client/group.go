package client

import (
	"context"
	"sync"
	"time"

	"leased/gateway/api"
)

const (
	// suspendPoll is how often the clocks are read at least: the timers of a
	// machine that was suspended go on where they stopped.
	suspendPoll = time.Second
	// shortestPause and longestRetry bound the pause after a renewal that failed.
	shortestPause = 20 * time.Millisecond
	longestRetry  = 2 * time.Second
)

// group renews the sessions of one namespace and instance, as many with one call
// as a call takes, and follows their events. It has goroutines from its first
// session to its last.
type group struct {
	client *Client
	id     groupID
	stop   context.CancelFunc
	done   chan struct{} // closed when the goroutine and its calls have ended
	wake   chan struct{}

	sessions map[string][]*Session // by lease; guarded by keeper.mu

	mu     sync.Mutex
	wakeAt time.Time // when the goroutine looks next

	// What events that were lost are asked about, see lost.
	asks     bool          // a question is to come
	askAt    time.Time     // when the last one was asked, or is to be
	askPause time.Duration // from that one to the next

	questions sync.WaitGroup // those to come; follow waits for them
}

func newGroup(c *Client, id groupID) *group {
	ctx, cancel := context.WithCancel(context.Background())
	g := &group{
		client: c, id: id, stop: cancel, done: make(chan struct{}), wake: make(chan struct{}, 1), sessions: make(map[string][]*Session),
	}
	go func() {
		defer close(g.done)
		g.run(ctx)
	}()
	return g
}

// poke makes the goroutine look now.
func (g *group) poke() {
	select {
	case g.wake <- struct{}{}:
	default: // it will
	}
}

// wakeBefore makes the goroutine look in time for a session. Of thousands that
// are acquired one after the other, only the first few need it to look earlier.
func (g *group) wakeBefore(s *Session) {
	now := g.client.now()
	o := s.look(now)
	next := now.Add(min(o.due, o.trust))
	g.mu.Lock()
	sooner := g.wakeAt.IsZero() || next.Before(g.wakeAt)
	g.mu.Unlock()
	if sooner {
		g.poke()
	}
}

func (g *group) setWakeAt(at time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.wakeAt = at
}

func (g *group) run(ctx context.Context) {
	var calls sync.WaitGroup
	defer calls.Wait()
	calls.Go(func() { g.follow(ctx) })
	timer := time.NewTimer(suspendPoll)
	defer timer.Stop()
	for ctx.Err() == nil {
		// Zero while it looks: whoever is added meanwhile may be overlooked.
		g.setWakeAt(time.Time{})
		pause := g.turn(ctx, &calls)
		timer.Reset(pause)
		g.setWakeAt(g.client.now().Add(pause))
		select {
		case <-ctx.Done():
		case <-g.wake:
		case <-timer.C:
		}
	}
}

// outlook is when something has to be done for a session.
type outlook struct {
	live     bool
	doubt    bool // the latest renewal failed
	inFlight bool
	due      time.Duration // until its renewal
	trust    time.Duration // until its trust is over
	interval time.Duration
}

// next returns the time until something has to be done, beside a renewal that is
// under way or due.
func (o outlook) next() time.Duration {
	if o.inFlight || o.due <= 0 {
		return o.trust
	}
	return min(o.due, o.trust)
}

func (s *Session) look(now time.Time) outlook {
	s.mu.Lock()
	defer s.mu.Unlock()
	return outlook{
		live: s.live(), doubt: s.state == InDoubt, inFlight: s.inFlight, interval: s.interval,
		due: s.due.left(now), trust: s.trust.left(now),
	}
}

// turn ends the sessions whose trust is over, renews those that are due, and
// returns how long it is until the next turn.
func (g *group) turn(ctx context.Context, calls *sync.WaitGroup) time.Duration {
	now, next := g.client.now(), suspendPoll
	var ready []*item
	for _, same := range g.client.keeper.of(g) {
		i := &item{}
		for _, s := range same {
			o := s.look(now)
			if o.live && o.trust <= 0 {
				s.expire(now)
				o = s.look(now)
			}
			if !o.live {
				g.client.keeper.remove(s)
				continue
			}
			next = min(next, o.next())
			if !o.inFlight {
				i.add(s, &o)
			}
		}
		if len(i.sessions) > 0 {
			ready = append(ready, i)
		}
	}
	for _, batch := range batches(ready) {
		limit := batch[0].interval
		for _, i := range batch {
			limit = min(limit, i.interval)
			for _, s := range i.sessions {
				s.setInFlight(true, now)
			}
		}
		calls.Go(func() { g.renew(ctx, batch, limit) })
	}
	return max(next, 0)
}

func (s *Session) setInFlight(on bool, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.inFlight = on
	if !on && s.again {
		s.again, s.due = false, trust{sent: now}
	}
}

// refused takes the server's answer about one lease that was not renewed.
func (s *Session) refused(p *api.Problem, now time.Time, pause time.Duration) {
	err := &Error{Problem: *p}
	if over(p.Code) {
		s.lose(now, false, err)
		return
	}
	s.failed(err, now, pause)
}

// over reports whether an answer about a lease means that its holder does not
// hold it. It is a list of what does: a server that is broken, or refuses for
// another reason, has said nothing of the lease.
func over(code api.Code) bool {
	switch code {
	case api.CodeExpired, api.CodeReleased, api.CodeRevoked, api.CodeStaleToken, api.CodeNotOwner, api.CodeNotFound:
		return true
	default:
		return false
	}
}
