package raftkv

import (
	"fmt"
	"math"
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

// after returns events that follow p, in order, not all that there are. With lost
// set, events between p and the oldest one kept are gone, and p must be moved to the
// floor. With neither events nor a loss, grew tells when to ask again.
func (r *ring) after(p pos) (events []event, lost bool, floor pos, grew <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if p.compare(r.floor) < 0 {
		return nil, true, r.floor, nil
	}
	return r.from(func(q pos) bool { return q.compare(p) > 0 }), false, r.floor, r.grew
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

func parseEventID(field, id string) (pos, error) {
	var p pos
	n, err := fmt.Sscanf(id, "%016x-%08x", &p.index, &p.n)
	if err != nil || n != 2 || eventID(p) != id {
		return pos{}, contract.Invalid(field, "is not the id of an event")
	}
	return p, nil
}
