package etcd

import (
	"slices"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// glance is what a line knows of its key without asking: the state as it was
// read last, kept up to date by etcd's watch and by what this store wrote
// itself. It saves reading the key before each hand-over. It decides nothing:
// the transaction compares all of it, and when that fails the key is read.
type glance struct {
	st *state // nil when the key must be read
	// Revisions up to which each part is known; what etcd tells late is older.
	head, alive, queue int64
	// told is up to when nobody can have come to the queue who is not in it: what
	// was read, and what etcd's watch has told since, which leaves out nothing.
	told int64
}

// read notes a state that was read.
func (g *glance) read(st *state) {
	if g.st != nil && st.rev < max(g.head, g.queue) {
		return // it is older than what was told meanwhile
	}
	c := *st
	g.st, g.head, g.alive, g.queue, g.told = &c, st.rev, st.rev, st.rev, st.rev
}

// takeKey notes changes of the key.
func (g *glance) takeKey(prefix string, evs []*clientv3.Event) {
	for _, ev := range evs {
		if g.st == nil {
			return
		}
		put := ev.Type == clientv3.EventTypePut
		rev := ev.Kv.ModRevision
		switch strings.TrimPrefix(string(ev.Kv.Key), prefix) {
		case partAlive:
			if rev > g.alive {
				g.alive, g.st.aliveMod = rev, revIf(put, rev)
			}
		case partLife:
			g.st.lifeMod = revIf(put, rev)
		case partHead:
			if rev <= g.head {
				continue
			}
			g.head, g.st.head, g.st.headMod = rev, nil, revIf(put, rev)
			if put {
				var err error
				if g.st.head, err = decodeRecord(ev.Kv.Value, rev, g.st.ref.id); err != nil {
					g.st = nil
				}
			}
		}
	}
}

func revIf(put bool, rev int64) int64 {
	if put {
		return rev
	}
	return 0
}

// takeQueue notes changes of the queue.
func (g *glance) takeQueue(prefix string, evs []*clientv3.Event) {
	for _, ev := range evs {
		if g.st == nil {
			return
		}
		g.told = max(g.told, ev.Kv.ModRevision)
		name := strings.TrimPrefix(string(ev.Kv.Key), prefix)
		if ev.Type == clientv3.EventTypeDelete {
			g.drop(name, ev.Kv.ModRevision)
			continue
		}
		p, err := decodePlace(name, ev.Kv)
		if err != nil {
			g.st = nil
			return
		}
		g.change(p, false)
	}
}

func (g *glance) drop(name string, rev int64) {
	for i := range g.st.queue.places {
		if p := g.st.queue.places[i]; p.name == name {
			p.mod = rev
			g.change(p, true)
			return
		}
	}
}

// change notes one place. The queue may be shared with a turn that runs.
func (g *glance) change(p place, drop bool) {
	q := queue{places: g.st.queue.places}
	q.put(p, drop)
	g.st.queue, g.queue = &q, max(g.queue, p.mod)
}

// wrote notes what this store wrote to the head.
func (g *glance) wrote(r *record) {
	if g.st == nil || r.rev <= g.head {
		return
	}
	g.head, g.alive = r.rev, r.rev
	g.st.head, g.st.headMod = r, r.rev
	g.st.aliveMod, g.st.lifeMod = revIf(!r.State.Terminal(), r.rev), 0
}

// queued notes what this store wrote to the queue.
func (g *glance) queued(changes []queueChange, rev int64) {
	if g.st == nil {
		return
	}
	q := queue{places: g.st.queue.places}
	q.apply(changes, rev)
	g.st.queue, g.queue = &q, max(g.queue, rev)
}

// glance returns what is known of the key, if it is enough for the spots: nobody
// leaves, and nobody asks for what was not read.
func (l *line) glance(locals []*local, session string) *state {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.known.st == nil || l.known.st.due() {
		return nil
	}
	st := *l.known.st
	st.told = l.known.told
	free := st.active() == nil
	if !st.queue.certain(st.sessions) {
		return nil
	}
	at := st.queue.index()
	for scope, i := range at {
		if l.waiting[scope] == nil && slices.Contains(st.queue.places[i].At, session) {
			return nil // it is to be left
		}
	}
	for _, lo := range locals {
		if lo.a.req.Limits.LeasesPerOwner > 0 || free && len(lo.leavers) > 0 {
			return nil
		}
		var p *place
		if i, ok := at[lo.a.scope]; ok {
			p = &st.queue.places[i]
		}
		switch {
		case !lo.stays && (p != nil || !lo.owed):
			// It leaves its place, if it has one.
		case p == nil && lo.sp.tried:
			return nil // whether it was answered must be read
		case p != nil && (!slices.Contains(p.At, session) || !p.equalPrint(lo.a.print)):
			return nil
		}
	}
	return &st
}

// forget makes the line read its key before it does anything.
func (l *line) forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.known.st = nil
}

// note changes what is known.
func (l *line) note(f func(*glance)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f(&l.known)
}

// lineWaits tells that calls of this store wait for the attempt's key already: the
// attempt can join them without a look of its own.
func (s *Store) lineWaits(a *attempt) bool {
	if a.req.Wait == 0 || a.req.Limits.LeasesPerOwner > 0 {
		return false
	}
	s.linesMu.Lock()
	l := s.lines[a.ref]
	s.linesMu.Unlock()
	if l == nil {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.retired && len(l.waiting) > 0
}
