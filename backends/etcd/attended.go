package etcd

import (
	"slices"

	"leased/contract"
)

// attended returns the state's queue as those are told of it who ask: without this
// store at places where none of its calls goes on waiting. Etcd learns that a call
// has ended a little after the call, and whoever made it must not count itself
// among those that wait when it asks again.
func (s *Store) attended(st *state) *queue {
	session, _ := s.presence.current()
	here := func(p place) bool { return slices.Contains(p.At, session) }
	if session == "" || !slices.ContainsFunc(st.queue.places, here) {
		return st.queue
	}
	if s.hints.wroteSince(st.ref, st.rev) {
		return st.queue // who was served since waited while the state was as it is
	}
	s.linesMu.Lock()
	l := s.lines[st.ref]
	s.linesMu.Unlock()
	if l != nil {
		l.mu.Lock()
		defer l.mu.Unlock()
	}
	var q *queue
	for i := range st.queue.places {
		if p := &st.queue.places[i]; !here(*p) || l != nil && l.waiting[p.scope].stays() {
			continue
		}
		if q == nil {
			q = st.queue.clone()
		}
		q.places[i].detach(session)
	}
	if q == nil {
		return st.queue
	}
	return q
}

// stays tells that a call goes on waiting at the spot, if there is one. The caller
// holds the line's lock.
func (sp *spot) stays() bool {
	return sp != nil && slices.ContainsFunc(sp.calls, func(w *waiter) bool { return !w.leaving })
}

// conflict is what the scope is told while others hold the key.
func (s *Store) conflict(st *state, scope contract.Scope, now int64) contract.Result {
	res := contract.Result{Outcome: contract.OutcomeConflict, Queue: s.attended(st).seenBy(scope, st.sessions)}
	if r := st.active(); r != nil {
		res.Lease = r.lease(st.ref.ns, now)
	}
	return res
}
