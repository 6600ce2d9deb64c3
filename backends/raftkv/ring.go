package raftkv

import (
	"fmt"
	"math"
	"sort"
	"sync"

	"leased/contract"
)

// ringSize is how many events a node keeps for streams to resume from.
const ringSize = 4096

// ring keeps the newest events of the log. It is not part of the replicated
// state: it is filled by applying entries and empty after a restore, and says so
// by its floor.
type ring struct {
	mu     sync.Mutex
	events []event // a circle once it is full
	size   int
	start  int // of the oldest event
	// floor is the place after which every event is here.
	floor pos
	// last is the newest entry that was applied.
	last uint64
	// grew is closed when events come.
	grew chan struct{}
}

func newRing(size int) *ring { return &ring{size: size, grew: make(chan struct{})} }

func (r *ring) append(events []event, last uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last = last
	if len(events) == 0 {
		return
	}
	for _, e := range events {
		if len(r.events) < r.size {
			r.events = append(r.events, e)
			continue
		}
		r.floor = r.events[r.start].pos
		r.events[r.start] = e
		r.start = (r.start + 1) % r.size
	}
	close(r.grew)
	r.grew = make(chan struct{})
}

// reset empties the ring: events up to and with entry last are not here.
func (r *ring) reset(last uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events, r.start = nil, 0
	r.floor, r.last = pos{index: last, n: math.MaxUint32}, last
	close(r.grew)
	r.grew = make(chan struct{})
}

func (r *ring) at(i int) *event { return &r.events[(r.start+i)%len(r.events)] }

// end returns the place of the newest event or, if there is none, the floor.
func (r *ring) end() pos {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.events) == 0 {
		return r.floor
	}
	return r.at(len(r.events) - 1).pos
}

// after returns the first event after p. With lost set, events between p and
// the oldest one kept are gone, and p must be moved to the floor. With neither
// an event nor a loss, grew tells when to ask again.
func (r *ring) after(p pos) (e event, ok, lost bool, floor pos, grew <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if p.compare(r.floor) < 0 {
		return event{}, false, true, r.floor, nil
	}
	i := sort.Search(len(r.events), func(i int) bool { return r.at(i).compare(p) > 0 })
	if i == len(r.events) {
		return event{}, false, false, r.floor, r.grew
	}
	return *r.at(i), true, false, r.floor, nil
}

// known reports whether p can be the place of an event: it is in the ring, or so
// old that the ring cannot tell.
func (r *ring) known(p pos) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if p.compare(r.floor) <= 0 {
		return true
	}
	i := sort.Search(len(r.events), func(i int) bool { return r.at(i).compare(p) >= 0 })
	return i < len(r.events) && r.at(i).pos == p
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
