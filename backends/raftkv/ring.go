package raftkv

import (
	"fmt"
	"math"
	"slices"
	"sort"
	"sync"

	"leased/contract"
)

// ringSize is how many events a node keeps at least for streams to resume from.
const ringSize = 4096

// ring keeps the newest events of the log. It is not part of the replicated
// state: it is filled by applying entries and empty after a restore, and says so
// by its floor.
//
// It keeps them as they came, in pieces that do not change: a stream takes a piece,
// and looks through it without keeping others waiting, the FSM among them. A hundred
// streams that took one event at a time kept it from applying.
type ring struct {
	mu     sync.Mutex
	pieces [][]event // oldest first, none empty
	size   int
	count  int // of events
	// floor is the place after which every event is here.
	floor pos
	// last is the newest entry that was applied.
	last uint64
	// grew is closed when events come.
	grew chan struct{}
}

// rings are a ring of all events, and one without renewals: those are so many where
// leases are held that streams which do not show them would be overtaken by them, and
// woken for each.
type rings struct{ all, rare *ring }

func newRings(size int) rings { return rings{newRing(size), newRing(size)} }

func (r rings) append(events []event, last uint64) {
	rare := events
	if slices.ContainsFunc(events, isRenewal) {
		// With no more room than they need: a piece may be kept for a long time.
		rare = nil
		for i := range events {
			if !isRenewal(events[i]) {
				rare = append(rare, events[i])
			}
		}
	}
	r.rare.append(rare, last)
	r.all.append(events, last)
}

func isRenewal(e event) bool { return e.kind == contract.EventRenewed }

func (r rings) reset(last uint64) {
	r.rare.reset(last)
	r.all.reset(last)
}

// of returns the ring that has all events of the kinds.
func (r rings) of(kinds contract.EventKinds) *ring {
	if kinds.Selects(contract.EventRenewed) {
		return r.all
	}
	return r.rare
}

func newRing(size int) *ring { return &ring{size: size, grew: make(chan struct{})} }

// append takes events, which must not change any more.
func (r *ring) append(events []event, last uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last = last
	if len(events) == 0 {
		return
	}
	r.pieces = append(r.pieces, events)
	r.count += len(events)
	for oldest := r.pieces[0]; r.count-len(oldest) >= r.size; oldest = r.pieces[0] {
		r.floor = newest(oldest)
		r.count -= len(oldest)
		r.pieces[0] = nil
		r.pieces = r.pieces[1:]
	}
	close(r.grew)
	r.grew = make(chan struct{})
}

// newest returns the place of the last event of a piece.
func newest(piece []event) pos { return piece[len(piece)-1].pos }

// reset empties the ring: events up to and with entry last are not here.
func (r *ring) reset(last uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pieces, r.count = nil, 0
	r.floor, r.last = pos{index: last, n: math.MaxUint32}, last
	close(r.grew)
	r.grew = make(chan struct{})
}

// end returns the place behind everything that was applied. That of the newest event
// would be before the floor of a node that was restarted since, as if that had lost some.
func (r *ring) end() pos {
	r.mu.Lock()
	defer r.mu.Unlock()
	return pos{index: r.last, n: math.MaxUint32}
}

// found is what follows a place.
type found struct {
	// events come in order; they need not be all.
	events []event
	// lost says that events between the place and the oldest one kept are gone.
	lost bool
	// at is where to look next, if there are no events: the floor after a loss,
	// otherwise the end.
	at pos
	// grew is closed when there is more, if there is nothing yet.
	grew <-chan struct{}
}

// after returns what follows p.
func (r *ring) after(p pos) found {
	r.mu.Lock()
	defer r.mu.Unlock()
	if p.compare(r.floor) < 0 {
		return found{lost: true, at: r.floor}
	}
	f := found{events: r.from(func(q pos) bool { return q.compare(p) > 0 }), at: p, grew: r.grew}
	if end := (pos{index: r.last, n: math.MaxUint32}); len(f.events) == 0 && p.compare(end) < 0 {
		f.at = end
	}
	return f
}

// from returns the events of one piece, from the first for whose place is holds, as it
// does for all behind. r.mu is held.
func (r *ring) from(is func(pos) bool) []event {
	i := sort.Search(len(r.pieces), func(i int) bool { return is(newest(r.pieces[i])) })
	if i == len(r.pieces) {
		return nil
	}
	piece := r.pieces[i]
	return piece[sort.Search(len(piece), func(i int) bool { return is(piece[i].pos) }):]
}

// known reports whether p can be the place of an event, or the end of a ring: it is in
// this one, or so old that this one cannot tell.
func (r *ring) known(p pos) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case p.compare(r.floor) <= 0:
		return true
	case p.n == math.MaxUint32: // behind an entry: the end of a ring, or a floor
		return p.index <= r.last
	}
	events := r.from(func(q pos) bool { return q.compare(p) >= 0 })
	return len(events) > 0 && events[0].pos == p
}

// eventID writes a place as text that sorts like the place.
func eventID(p pos) string { return fmt.Sprintf("%016x-%08x", p.index, p.n) }

// parseEventID is its reverse.
func parseEventID(id string) (pos, bool) {
	var p pos
	n, err := fmt.Sscanf(id, "%016x-%08x", &p.index, &p.n)
	return p, err == nil && n == 2 && eventID(p) == id
}
