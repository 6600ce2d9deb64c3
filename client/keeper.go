package client

import (
	"context"
	"slices"
	"sync"
)

// keeper knows every session of a client, and every Hold that may yet become one.
type keeper struct {
	mu      sync.Mutex
	closed  bool
	groups  map[groupID]*group
	pending map[*pendingHold]struct{}
	idle    chan struct{} // set by shutdown while Holds are pending, closed by the last
	// news counts what the sessions were told of, or asked about, because of events. One
	// whose grant was on its way here meanwhile was not.
	news uint64
}

// groupID names the sessions that one bulk call can renew.
type groupID struct{ namespace, instance string }

func (c *Client) group(by heldBy) groupID {
	return groupID{orDefault(by.namespace, c.namespace), by.instance}
}

// pendingHold is a Hold that has not returned.
type pendingHold struct {
	cancel context.CancelCauseFunc
	news   uint64 // when it began
}

// enter begins a Hold. The context that it returns ends with ctx and with the
// client's shutdown.
func (k *keeper) enter(ctx context.Context) (context.Context, *pendingHold, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closed {
		return nil, nil, ErrShutdown
	}
	ctx, cancel := context.WithCancelCause(ctx)
	p := &pendingHold{cancel, k.news}
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

// add begins to renew the session of a Hold: at once if it may have missed news of its
// lease. It returns ErrShutdown once the client is shut down.
func (k *keeper) add(s *Session, pending *pendingHold) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closed {
		return ErrShutdown
	}
	id := s.client.group(s.request)
	g := k.groups[id]
	if g == nil {
		g = newGroup(s.client, id)
		if k.groups == nil {
			k.groups = make(map[groupID]*group)
		}
		k.groups[id] = g
	}
	if k.news != pending.news {
		s.dueNow(s.client.now())
	}
	s.group = g
	g.sessions[s.request.leaseID] = append(g.sessions[s.request.leaseID], s)
	g.wakeBefore(s)
	return nil
}

// remove ends the renewals of a session, and reports whether its group stops or
// has stopped, as it does with its last one.
func (k *keeper) remove(s *Session) (stopped bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	g := s.group
	id := s.request.leaseID
	before := len(g.sessions)
	g.sessions[id] = slices.DeleteFunc(g.sessions[id], func(other *Session) bool { return other == s })
	if len(g.sessions[id]) == 0 {
		delete(g.sessions, id)
	}
	if len(g.sessions) == 0 && before > 0 {
		delete(k.groups, g.id)
		g.stop()
	}
	return len(g.sessions) == 0
}

// of returns the sessions of a group by lease, in no order.
func (k *keeper) of(g *group) [][]*Session {
	k.mu.Lock()
	defer k.mu.Unlock()
	all := make([][]*Session, 0, len(g.sessions))
	for _, same := range g.sessions {
		all = append(all, slices.Clone(same))
	}
	return all
}

// noteNews notes that those sessions are told of news that are looked up afterwards.
func (k *keeper) noteNews() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.news++
}

// on returns the sessions on one lease.
func (k *keeper) on(id groupID, leaseID string) []*Session {
	k.mu.Lock()
	defer k.mu.Unlock()
	if g := k.groups[id]; g != nil {
		return slices.Clone(g.sessions[leaseID])
	}
	return nil
}

// shut refuses new sessions, ends the Holds that are pending, and returns the
// sessions by group and lease. idle is closed when no Hold is pending any more.
func (k *keeper) shut() (sessions [][][]*Session, idle <-chan struct{}) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.closed = true
	for _, g := range k.groups {
		var all [][]*Session
		for _, same := range g.sessions {
			all = append(all, slices.Clone(same))
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
