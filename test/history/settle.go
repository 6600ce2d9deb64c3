package history

import "math"

// settle returns the steps of a key's history. What became of a call whose answer
// was lost is read from the history that the server keeps, which other rules hold to
// what clients were told: had it to be guessed, each such call would double the
// number of histories that are possible.
func (h *History) settle(key string, leases map[string]*lease) []*step {
	var steps []*step
	add := func(s *step) { steps = append(steps, s) }
	for _, l := range leases {
		if l.key != key {
			continue
		}
		if s := l.granted(); s != nil {
			add(s)
		}
		if s := l.released(); s != nil {
			add(s)
		}
		if s := l.revoked(); s != nil {
			add(s)
		}
	}
	for i := range h.Ops {
		if o := &h.Ops[i]; o.Key == key && o.ReturnedNS != 0 {
			if s := o.seen(leases); s != nil {
				s.called, s.ends = o.CalledNS, o.ReturnedNS
				add(s)
			}
		}
	}
	return steps
}

// granted returns the step that granted the lease. It lies in one of the calls that
// were told of it, or of nothing, before anybody was told. That an answer is not a
// replay says that nobody was told before, not that its call was the one: a waiter's
// grant can be taken by the call that comes back for it.
func (l *lease) granted() *step {
	s := &step{what: grant, lease: l.id, token: l.token, holder: l.instance, called: math.MaxInt64, ends: never}
	unheard := l.unheard()
	for _, o := range l.acquires {
		told := o.Answer.Lease == l.id
		if told {
			s.ends = min(s.ends, o.ReturnedNS)
		}
		if told || o.unknown() || unheard && o.mayCross(l) {
			s.called = min(s.called, o.CalledNS)
		}
		if !o.certainlyNot() && s.ttl == 0 {
			s.ttl = o.TTLMS * millisecond
		}
		if o.granted() && told {
			s.ttl = o.Answer.TTLMS * millisecond
		}
	}
	if s.called == math.MaxInt64 {
		return nil // nobody asked for it; that is a rule of its own
	}
	return s
}

// unheard tells that the lease ended and nobody was told that it had been granted.
func (l *lease) unheard() bool {
	for _, o := range l.acquires {
		if o.Answer.Lease == l.id {
			return false
		}
	}
	return l.has("released")+l.has("expired") > 0
}

// mayCross tells that the call was one whose end the grant may have crossed: it waited,
// and was told that it has none. A grant that does is taken back; or its time is over
// when the call is told, as of one at a gateway that stood still.
func (o *Op) mayCross(l *lease) bool {
	over := l.has("released") > 0 || o.ReturnedNS >= o.CalledNS+o.TTLMS*millisecond
	again := o.granted() && o.Answer.Lease != l.id
	return over && o.WaitMS > 0 && (o.certainlyNot() || o.Answer.Outcome == Conflict || again)
}

// released returns the step that released the lease, if the server's history or a
// client's says so.
func (l *lease) released() *step {
	s := &step{what: release, lease: l.id, token: l.token, called: math.MaxInt64, ends: never}
	first, replayed := false, false
	for _, o := range l.uses {
		if o.Verb == Release && o.Answer.Outcome == Released {
			first, replayed = first || !o.Answer.Replayed, true
			s.ends = min(s.ends, o.ReturnedNS)
		}
	}
	if !replayed && l.has("released") == 0 {
		return nil
	}
	for _, o := range l.uses {
		if o.Verb != Release || o.certainlyNot() || first && (o.Answer.Outcome != Released || o.Answer.Replayed) {
			continue
		}
		s.called = min(s.called, o.CalledNS)
	}
	if s.called == math.MaxInt64 {
		// A grant that crossed the end of its wait is undone, by nobody's call but it.
		for _, o := range l.acquires {
			s.called = min(s.called, o.CalledNS)
		}
	}
	return s
}

// revoked returns the step that revoked the lease, if the server's history or a
// client's says so. It is a step of the request that the server's history names.
func (l *lease) revoked() *step {
	s := &step{what: revocation, lease: l.id, token: l.token, called: math.MaxInt64, ends: never}
	request := ""
	for _, e := range l.events {
		if e.Event == "revoked" {
			request = e.Request
		}
	}
	for _, o := range l.revokes {
		if o.Answer.Outcome == Revoked && request == "" {
			request = o.Request
		}
	}
	for _, o := range l.revokes {
		if o.Request != request || o.certainlyNot() {
			continue
		}
		s.called = min(s.called, o.CalledNS)
		if o.Answer.Outcome == Revoked {
			s.ends = min(s.ends, o.ReturnedNS)
		}
	}
	if s.called == math.MaxInt64 {
		return nil // it was not, or nobody asked for it; that is a rule of its own
	}
	return s
}

// seen returns the step that a call's answer is, other than that it granted, released
// or revoked.
func (o *Op) seen(leases map[string]*lease) *step {
	a := o.Answer
	s := &step{lease: o.Lease, token: o.Token}
	if o.Verb == Acquire {
		s.lease, s.token = a.Lease, a.Token
	}
	if l := leases[s.lease]; l != nil && o.Verb != Check {
		s.token = l.token
	}
	switch a.Outcome {
	case Conflict:
		s.what, s.holder = conflict, a.Holder
		if a.Holder == "" {
			return nil // its own grant was undone, and nobody has the key
		}
	case Acquired, Released, Revoked:
		if !a.Replayed {
			return nil
		}
		s.what = map[string]what{Acquire: active, Release: released, Revoke: revoked}[o.Verb]
	case Renewed:
		s.what, s.ttl = renewal, a.TTLMS*millisecond
		if a.Replayed {
			s.what = active
		}
	case Current:
		s.what = active
	case EndedExpired:
		s.what = expired
	case EndedReleased:
		s.what = released
	case EndedRevoked:
		s.what = revoked
	case StaleToken:
		if s.what = stale; o.Verb != Check {
			return nil // of this lease, whatever the key's is; a rule of its own
		}
	case NotFound:
		s.what = untouched
	default:
		return nil
	}
	return s
}
