package client

import (
	"context"
	"sync"
	"time"

	"leased/gateway/api"
)

// State is what a session knows of its lease.
type State int

// The states of a session. A session begins held, moves between held and in
// doubt, and ends lost or released.
const (
	// Held: the latest renewal succeeded, or none was due yet.
	Held State = iota + 1
	// InDoubt: the latest renewal failed. The lease is still trusted and the work
	// may go on; unless a renewal succeeds, Lost follows.
	InDoubt
	// Lost: the lease is over, or can be trusted no longer. The context has ended.
	Lost
	// Released: the holder released it. The context has ended.
	Released
)

// String returns the state in lower case.
func (s State) String() string {
	switch s {
	case Held:
		return "held"
	case InDoubt:
		return "in doubt"
	case Lost:
		return "lost"
	case Released:
		return "released"
	default:
		return "invalid"
	}
}

// Status is a session at one instant.
type Status struct {
	State State
	// Lease is the lease as the server described it last. It is shared: read only.
	Lease *api.Lease
	// TrustedUntil is when the context ends unless the lease is renewed before.
	TrustedUntil time.Time
	// Err is what the latest renewal met while in doubt, and the *LostError once
	// lost; otherwise nil.
	Err error
}

// Session holds one lease: it renews it until Release. All methods may be used
// concurrently.
type Session struct {
	client  *Client
	group   *group
	request heldBy
	margin  time.Duration
	ctx     context.Context //nolint:containedctx // the session is the call that it belongs to, as an http.Request is
	cancel  context.CancelCauseFunc

	release    sync.Once
	releaseErr error

	mu       sync.Mutex
	state    State
	lease    *api.Lease
	trust    trust
	interval time.Duration // between renewals
	due      trust         // no margin: the next renewal is due when it is over
	inFlight bool
	again    bool  // renew again after the one in flight
	err      error // see Status.Err
	changed  chan struct{}
}

// heldBy is what every request of a holder names.
type heldBy struct {
	namespace, instance, leaseID string
	token                        uint64
}

// Context returns the context of the work. It ends when the lease can be trusted
// no longer, before another could have it; when the server says that it is over;
// when it is released; and when the context given to Hold ends. context.Cause
// tells which: a *LostError, ErrSessionReleased, ErrShutdown or the parent's.
//
// When the parent ends, the lease is kept until Release: the work may need it
// until it has stopped.
func (s *Session) Context() context.Context { return s.ctx }

// LeaseID returns the lease's id.
func (s *Session) LeaseID() string { return s.request.leaseID }

// Token returns the fencing token: what every write of the work has to carry.
func (s *Session) Token() uint64 { return s.request.token }

// Margin returns how long before the lease ends the work is told to.
func (s *Session) Margin() time.Duration { return s.margin }

// Status returns the session as it is now, and a channel that is closed at the
// next change: of the state, or by a renewal. A reader that is slow misses steps
// in between and never the last one.
func (s *Session) Status() (Status, <-chan struct{}) {
	_ = s.Err() // reads the clocks
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.changed == nil {
		s.changed = make(chan struct{})
	}
	return Status{State: s.state, Lease: s.lease, TrustedUntil: s.trust.end(), Err: s.err}, s.changed
}

// Err returns nil while the lease can be trusted, and afterwards the *LostError,
// or ErrSessionReleased. It reads both clocks, so that it is right also in the
// first moment after the machine was suspended or the process stopped, when the
// context has not ended yet: ask it right before a side effect.
func (s *Session) Err() error {
	s.expire(s.client.now())
	s.mu.Lock()
	defer s.mu.Unlock()
	switch s.state {
	case Lost:
		return s.err
	case Released:
		return ErrSessionReleased
	default:
		return nil
	}
}

// live reports whether the session renews. mu is held.
func (s *Session) live() bool { return s.state == Held || s.state == InDoubt }

// change tells whoever watches. mu is held.
func (s *Session) change() {
	if s.changed != nil {
		close(s.changed)
		s.changed = nil
	}
}

// renewed takes what the server granted in answer to a request sent then.
func (s *Session) renewed(lease *api.Lease, sent time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.live() {
		return // released meanwhile: nothing revives it
	}
	s.grant(lease, sent)
	s.state, s.err = Held, nil
	s.change()
}

// grant sets what follows from a grant. mu is held.
func (s *Session) grant(lease *api.Lease, sent time.Time) {
	s.lease = lease
	s.trust = trust{sent: sent, life: wireDuration(lease.ExpiresInMS), margin: s.margin}
	if !atLifetime(lease) {
		// Near its maximum lifetime a lease is granted what is left. A third of
		// that, and of what is left then, would be ever more requests for nothing.
		s.interval = min(s.interval, wireDuration(lease.TTLMS)/renewPart)
	}
	s.due = trust{sent: sent, life: s.interval}
}

// failed notes that a renewal did not succeed and says nothing of the lease.
// pause is until the next one.
func (s *Session) failed(err error, now time.Time, pause time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.live() {
		return
	}
	s.state, s.err = InDoubt, err
	s.due = trust{sent: now, life: pause}
	s.change()
}

// expire ends a session whose trust is over.
func (s *Session) expire(now time.Time) {
	s.mu.Lock()
	over := s.live() && s.trust.left(now) <= 0
	err := s.err
	if err == nil && atLifetime(s.lease) {
		err = ErrMaxLifetime
	}
	s.mu.Unlock()
	if over {
		s.lose(now, true, err)
	}
}

// lose ends the session: the lease is over, or in doubt for too long.
func (s *Session) lose(now time.Time, doubt bool, err error) {
	lost := &LostError{Namespace: s.request.namespace, LeaseID: s.request.leaseID, Token: s.request.token, At: now, Doubt: doubt, Err: err}
	if s.finish(Lost, lost) {
		s.cancel(lost)
	}
}

// finish makes a state the last one and reports whether it did.
func (s *Session) finish(state State, err error) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	// Between the look at the clock and here a renewal may have come.
	if !s.live() || state == Lost && isDoubt(err) && s.trust.left(s.client.now()) > 0 {
		return false
	}
	s.state, s.err = state, err
	s.change()
	return true
}

func isDoubt(err error) bool {
	lost, ok := err.(*LostError) //nolint:errorlint // lose made it
	return ok && lost.Doubt
}

// atLifetime reports whether the lease ends with its maximum lifetime, so that no
// renewal can make it longer. Both times are the server's.
func atLifetime(l *api.Lease) bool {
	end := l.AcquiredAt.Add(wireDuration(l.MaxLifetimeMS))
	return l.MaxLifetimeMS > 0 && !l.ExpiresAt.Add(time.Millisecond).Before(end) // the wire has whole milliseconds
}

// wireDuration returns what a field that ends in _ms stands for; nonsense from a
// broken server must not become a long trust.
func wireDuration(ms int64) time.Duration {
	const most = int64(1) << 40 // 34 years
	return time.Duration(max(0, min(ms, most))) * time.Millisecond
}
