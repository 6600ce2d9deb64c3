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
	// mods has the revisions of what this store itself wrote to the queue and etcd's
	// watch has not told of yet.
	mods map[string]int64
	// since is from when on the watch leaves out nothing.
	since int64
}

// read notes a state that was read.
func (g *glance) read(st *state) {
	if st.rev < max(g.since, g.head, g.alive, g.queue, g.told) {
		return // it is older than what was told meanwhile
	}
	c := *st
	g.mods = nil
	g.st, g.head, g.alive, g.queue, g.told = &c, st.rev, st.rev, st.rev, st.rev
}

// followedSince forgets all: changes of the queue up to a revision may have been
// left out, or be of an etcd that was before this one.
func (g *glance) followedSince(rev int64) { *g = glance{since: rev} }

// lost notes that etcd has deleted what a lease hung on. It reports whether that
// is news.
func (g *glance) lost(rev int64) bool {
	if rev <= g.alive {
		return false
	}
	g.alive = rev
	if g.st != nil {
		g.st.aliveMod = 0 // whichever it was, the TTL's or the maximum lifetime's
	}
	return true
}

// takeQueue notes changes of the queue. It reports whether others than the session
// made them, as far as that is to be seen.
func (g *glance) takeQueue(prefix, session string, evs []*clientv3.Event) (news bool) {
	for _, ev := range evs {
		rev := ev.Kv.ModRevision
		g.told = max(g.told, rev)
		if g.st == nil {
			news = true
			continue
		}
		name := strings.TrimPrefix(string(ev.Kv.Key), prefix)
		if g.mods[name] >= rev {
			continue // it is this store's own
		}
		was := g.st.queue.named(name)
		foreign := was != nil && !was.isOf(session)
		if ev.Type == clientv3.EventTypeDelete {
			if was != nil {
				p := *was
				p.mod = rev
				g.change(p, true)
			}
			if foreign && g.st.active() == nil {
				g.st = nil // it was served, and what it was given is not known
			}
		} else {
			p, err := decodePlace(name, ev.Kv)
			if err != nil {
				g.st, news = nil, true
				continue
			}
			foreign = foreign || !p.isOf(session)
			g.change(p, false)
		}
		news = news || foreign
	}
	for name, rev := range g.mods {
		if rev <= g.told {
			delete(g.mods, name)
		}
	}
	return news
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
	g.st.aliveMod, g.st.lifeMod = 0, 0
	if !r.State.Terminal() {
		g.st.aliveMod, g.st.lifeMod = r.aliveRev, r.lifeRev
	}
}

// queued notes what this store wrote to the queue.
func (g *glance) queued(changes []queueChange, rev int64) {
	if g.st == nil {
		return
	}
	q := queue{places: g.st.queue.places}
	q.apply(changes, rev)
	if rev > g.told {
		if g.mods == nil {
			g.mods = map[string]int64{}
		}
		for i := range changes {
			g.mods[changes[i].place.name] = rev
		}
	}
	g.st.queue, g.queue = &q, max(g.queue, rev)
}

// glance returns what is known of the key, if it is enough for the spots: nobody
// leaves, and nobody asks for what was not read.
func (l *line) glance(locals []*local, session string) *state {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.known.st == nil {
		return nil
	}
	if l.known.st.due() {
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
		case !lo.stays && p == nil && len(lo.leavers) > 0 && !lo.owed && !lo.seating:
			return nil // who holds the key must be read
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

// lineUp tells that the attempt can join other calls of this store without a look
// of its own: they wait for its key already, or one of them is trying for it. If
// it tells otherwise the attempt is noted as trying until tried is called.
func (s *Store) lineUp(a *attempt) bool {
	s.linesMu.Lock()
	defer s.linesMu.Unlock()
	if a.req.Wait > 0 && a.req.Limits.LeasesPerOwner == 0 {
		if s.trying[a.ref] > 0 {
			return true
		}
		if l := s.lines[a.ref]; l != nil && l.waits() {
			return true
		}
	}
	s.trying[a.ref]++
	return false
}

// tried notes that an attempt has finished trying.
func (s *Store) tried(a *attempt) {
	s.linesMu.Lock()
	defer s.linesMu.Unlock()
	if s.trying[a.ref]--; s.trying[a.ref] == 0 {
		delete(s.trying, a.ref)
	}
}

// waits tells that calls wait in the line.
func (l *line) waits() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.retired && len(l.waiting) > 0
}
