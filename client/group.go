package client

import (
	"context"
	"slices"
	"sync"
	"time"

	"leased/gateway/api"
)

const (
	// maxBulk is how many leases one bulk renewal takes.
	maxBulk = 1000
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
	next := now.Add(s.look(now).next())
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
	inFlight bool
	due      time.Duration // until its renewal
	trust    time.Duration // until its trust is over
	interval time.Duration
}

// next returns the time until something has to be done.
func (o outlook) next() time.Duration {
	if o.inFlight {
		return o.trust
	}
	return min(o.due, o.trust)
}

func (s *Session) look(now time.Time) outlook {
	s.mu.Lock()
	defer s.mu.Unlock()
	return outlook{
		live: s.live(), inFlight: s.inFlight, interval: s.interval,
		due: s.due.left(now), trust: s.trust.left(now),
	}
}

// turn ends the sessions whose trust is over, renews those that are due, and
// returns how long it is until the next turn.
func (g *group) turn(ctx context.Context, calls *sync.WaitGroup) time.Duration {
	var (
		now   = g.client.now()
		next  = suspendPoll
		pace  = time.Duration(1<<63 - 1)
		ready []*Session
		dues  []time.Duration
		due   bool
	)
	for _, s := range g.client.keeper.of(g) {
		o := s.look(now)
		if o.live && o.trust <= 0 {
			s.expire(now)
			o = s.look(now)
		}
		if !o.live {
			g.client.keeper.remove(s)
			continue
		}
		pace = min(pace, o.interval)
		if !o.inFlight {
			ready, dues = append(ready, s), append(dues, o.due)
			due = due || o.due <= 0
		}
		if o.inFlight || o.due > 0 {
			next = min(next, o.next())
		} else {
			next = min(next, o.trust)
		}
	}
	if !due {
		return max(next, 0)
	}
	// Whoever is due within half an interval comes along: leases of one TTL are
	// renewed together from then on, since of two that are not, one is due within
	// half an interval of the other. More would renew those again that were renewed
	// a moment ago, each time that one lease has to be tried again.
	var batch []*Session
	for i, s := range ready {
		if dues[i] <= pace/2 {
			batch = append(batch, s)
		}
	}
	for chunk := range slices.Chunk(batch, maxBulk) {
		limit := pace
		for _, s := range chunk {
			s.setInFlight(true)
			limit = min(limit, s.look(now).interval)
		}
		calls.Go(func() { g.renew(ctx, chunk, limit) })
	}
	return max(next, 0)
}

func (s *Session) setInFlight(on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.inFlight = on
}

// renew renews a batch with one call, within the limit.
func (g *group) renew(ctx context.Context, batch []*Session, limit time.Duration) {
	defer g.poke()
	leases := make([]api.RenewBulkLease, len(batch))
	for i, s := range batch {
		leases[i] = api.RenewBulkLease{LeaseID: s.request.leaseID, Token: s.request.token}
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	// Half of it for an attempt: a server that swallows the first leaves time for
	// another one.
	got, err := g.client.renewBulk(ctx, RenewBulkRequest{Namespace: g.id.namespace, Instance: g.id.instance, Leases: leases}, limit/2)
	now := g.client.now()
	pause := min(max(limit/4, shortestPause), longestRetry)
	for i, s := range batch {
		switch {
		case err != nil:
			s.failed(err, now, pause)
		case got.Items[i].Error != nil:
			s.refused(got.Items[i].Error, now, pause)
		case got.Items[i].Lease.LeaseID != s.request.leaseID || got.Items[i].Lease.Token != s.request.token:
			s.failed(newError(api.CodeOutcomeUnknown, got.RequestID, errIncomplete, "the answer is about another lease"), now, pause)
		default:
			s.renewed(got.Items[i].Lease, got.SentAt)
		}
		s.setInFlight(false)
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
