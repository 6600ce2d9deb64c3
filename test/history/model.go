package history

import (
	"fmt"
	"math"

	"github.com/anishathalye/porcupine"
)

// resolution is how much a lease may seem to end early: its end and what is left of
// it are told in whole milliseconds, on a clock of which each reading is cut as well.
const resolution = 2 * millisecond

// never is when a call without an answer returns.
const never = math.MaxInt64

// step is one transition, or one look, of a key.
type step struct {
	what         what
	lease        string
	token        uint64
	holder       string // the instance, of a grant and of a conflict
	ttl          int64  // ns
	called, ends int64  // the instant lies between the two
}

type what int

const (
	_          what = iota
	grant           // the key is free, and granted
	renewal         // the lease is active, and its TTL begins again
	release         // the lease is active, and ended
	revocation      // the lease is active, and ended by somebody else
	active          // the lease is seen to be active
	conflict        // the key is seen to be held by holder
	expired         // the lease is seen to have expired
	released        // the lease is seen to have been released
	revoked         // the lease is seen to have been revoked
	stale           // the token is seen not to be that of the latest grant
	untouched       // the key is seen never to have been granted
)

// keyState is what a key can be known to be.
type keyState struct {
	lease  string // the latest grant; empty before the first
	token  uint64
	holder string
	ended  what // expired, released, revoked, or 0 while it need not have ended
	// soonest is the instant before which it cannot have expired, and now one before
	// which no later step can lie.
	soonest, now int64
}

func (s keyState) isActive() bool { return s.lease != "" && s.ended == 0 }

// next returns the state after the step, if there can be one.
func (s keyState) next(st *step) (keyState, bool) {
	s.now = max(s.now, st.called)
	ok := false
	switch st.what {
	case grant:
		if s.isActive() && !s.expire(st) {
			return s, false
		}
		ok = st.token > s.token
		s = keyState{lease: st.lease, token: st.token, holder: st.holder, soonest: s.now + st.ttl - resolution, now: s.now}
	case renewal:
		ok = s.isActive() && s.lease == st.lease
		s.soonest = s.now + st.ttl - resolution
	case release:
		ok = s.isActive() && s.lease == st.lease
		s.ended = released
	case revocation:
		ok = s.isActive() && s.lease == st.lease
		s.ended = revoked
	case active:
		ok = s.isActive() && s.token == st.token
	case conflict:
		ok = s.isActive() && s.holder == st.holder
	case expired:
		ok = s.token > st.token || s.token == st.token && (s.ended == expired || s.isActive() && s.expire(st))
	case released:
		ok = s.token > st.token || s.token == st.token && s.ended == released
	case revoked:
		ok = s.token > st.token || s.token == st.token && s.ended == revoked
	case stale:
		ok = s.lease != "" && s.token != st.token
	case untouched:
		ok = s.lease == ""
	}
	return s, ok
}

// expire ends the lease, if it can be over when the step is.
func (s *keyState) expire(st *step) bool {
	if st.ends < s.soonest {
		return false
	}
	s.ended, s.now = expired, max(s.now, s.soonest)
	return true
}

// model is a key for porcupine. Whatever an answer said is in the step.
func model() porcupine.Model {
	return porcupine.Model{
		Init: func() any { return keyState{} },
		Step: func(state, input, _ any) (bool, any) {
			s, isState := state.(keyState)
			st, isStep := input.(*step)
			next, ok := s.next(st)
			return ok && isState && isStep, next
		},
		DescribeOperation: func(input, _ any) string { return fmt.Sprint(input) },
		DescribeState:     func(state any) string { return fmt.Sprintf("%+v", state) },
	}
}

// String names the step and what it is about.
func (st *step) String() string {
	names := []string{"", "grant", "renew", "release", "revocation", "active", "conflict", "expired", "released", "revoked", "stale", "untouched"}
	return fmt.Sprintf("%s token %d %s", names[st.what], st.token, st.holder)
}
