package client

import (
	"context"
	"sync"
)

// keeper knows every session of a client, and every Hold that may yet become one.
type keeper struct {
	mu      sync.Mutex
	closed  bool
	groups  map[groupID]*group
	pending map[*pendingHold]struct{}
	idle    chan struct{} // set by shutdown while Holds are pending, closed by the last
}

// groupID names the sessions that one bulk call can renew.
type groupID struct{ namespace, instance string }

// pendingHold is a Hold that has not returned.
type pendingHold struct{ cancel context.CancelCauseFunc }

// enter begins a Hold. The context that it returns ends with ctx and with the
// client's shutdown.
func (k *keeper) enter(ctx context.Context) (context.Context, *pendingHold, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closed {
		return nil, nil, ErrShutdown
	}
	ctx, cancel := context.WithCancelCause(ctx)
	p := &pendingHold{cancel}
	if k.pending == nil {
		k.pending = make(map[*pendingHold]struct{})
	}
	k.pending[p] = struct{}{}
	return ctx, p, nil
}

// leave ends a Hold.
func (k *keeper) leave(p *pendingHold) {
	p.cancel(nil)
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.pending, p)
	if k.idle != nil && len(k.pending) == 0 {
		close(k.idle)
		k.idle = nil
	}
}

// add begins to renew a session. It returns ErrShutdown once the client is shut
// down.
func (k *keeper) add(s *Session) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closed {
		return ErrShutdown
	}
	id := groupID{s.request.namespace, s.request.instance}
	g := k.groups[id]
	if g == nil {
		g = newGroup(s.client, id)
		if k.groups == nil {
			k.groups = make(map[groupID]*group)
		}
		k.groups[id] = g
	}
	s.group = g
	g.sessions[s] = struct{}{}
	g.wakeBefore(s)
	return nil
}

// remove ends the renewals of a session, and reports whether its group stops or
// has stopped, as it does with its last one.
func (k *keeper) remove(s *Session) (stopped bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	g := s.group
	if _, ok := g.sessions[s]; ok {
		delete(g.sessions, s)
		if len(g.sessions) == 0 {
			delete(k.groups, g.id)
			g.stop()
		}
	}
	return len(g.sessions) == 0
}

// of returns the sessions of a group, in no order.
func (k *keeper) of(g *group) []*Session {
	k.mu.Lock()
	defer k.mu.Unlock()
	all := make([]*Session, 0, len(g.sessions))
	for s := range g.sessions {
		all = append(all, s)
	}
	return all
}

// shut refuses new sessions, ends the Holds that are pending, and returns the
// sessions by group. idle is closed when no Hold is pending any more.
func (k *keeper) shut() (sessions [][]*Session, idle <-chan struct{}) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.closed = true
	for _, g := range k.groups {
		var all []*Session
		for s := range g.sessions {
			all = append(all, s)
		}
		sessions = append(sessions, all)
	}
	done := make(chan struct{})
	if len(k.pending) == 0 {
		close(done)
		return sessions, done
	}
	if k.idle == nil {
		k.idle = done
	}
	for p := range k.pending {
		p.cancel(ErrShutdown)
	}
	return sessions, k.idle
}
