package valkey

import (
	"context"
	"time"

	"leased/contract"
)

// keyText is how many characters a key's id has; a scope follows it where the
// server names a place.
const keyText = 22

// tidy is what a room knows of places that calls could not leave: that there may be
// some. Which they are the server knows, however many calls an outage meets. A place
// whose callers have gone unseen would be served with nobody there, for as long as
// this gateway lives.
type tidy struct {
	due     bool // there may be places to leave
	running bool
	// turns are places whose turn came and at which nobody stands, as the last tick
	// told: the server does not list these any more.
	turns []string
	// more is since when the server has this gateway standing at more places than it
	// does; zero when it has not.
	more time.Time
}

// trailing is after how long a place at which nobody stands here is none that a call
// takes or leaves just now: its commands are over.
const trailing = tryTimeout + leavePause

// count is told at how many places the server has this gateway standing. What a
// connection left behind when it ended the server may run later than anything that
// was sent since, and a place that it makes then was made after all were left.
func (r *room) count(places int64) {
	r.mu.Lock()
	switch {
	case places <= int64(len(r.spots)):
		r.tidy.more = time.Time{}
	case r.tidy.more.IsZero():
		r.tidy.more = time.Now()
	case time.Since(r.tidy.more) > trailing:
		r.tidy.more, r.tidy.due = time.Time{}, true
		r.startTidy()
		return
	}
	r.mu.Unlock()
}

// tidyLater leaves the places at which nobody stands here as soon as the server can
// be reached.
func (r *room) tidyLater() {
	r.mu.Lock()
	r.tidy.due = true
	r.startTidy()
}

// startTidy is called with mu held, and lets go of it.
func (r *room) startTidy() {
	running := r.tidy.running
	r.tidy.running = true
	r.mu.Unlock()
	if !running {
		r.store.start(r.tidyUp) // unless the store is over: then the heartbeat ends
	}
}

// turn takes a place whose turn the server says has come.
func (r *room) turn(place string) {
	scope := scopeOf(place)
	r.mu.Lock()
	if len(place) <= keyText || r.spots[scope] != nil {
		r.mu.Unlock()
		r.wake(place[max(len(place)-len(scope), 0):])
		return
	}
	r.tidy.turns = append(r.tidy.turns, place)
	r.startTidy()
}

// scopeOf returns the scope of a place as the server names it, which is its end.
func scopeOf(place string) (s contract.Scope) {
	if len(place) >= len(s) {
		copy(s[:], place[len(place)-len(s):])
	}
	return s
}

// tidyUp works until there is nothing to be tidied.
func (r *room) tidyUp(ctx context.Context) {
	for {
		r.mu.Lock()
		turns, due := r.tidy.turns, r.tidy.due
		r.tidy.turns, r.tidy.due = nil, false
		if turns == nil && !due {
			r.tidy.running = false
			r.mu.Unlock()
			return
		}
		r.mu.Unlock()
		if r.leaveEmpty(ctx, turns, due) {
			continue
		}
		// The ticks tell of turns again.
		r.mu.Lock()
		r.tidy.due = r.tidy.due || due
		r.mu.Unlock()
		if !sleep(ctx, leavePause) {
			return
		}
	}
}

// leaveEmpty leaves those of some places at which nobody stands here, and with all
// those of all that the server knows of this gateway. It reports whether it could.
func (r *room) leaveEmpty(ctx context.Context, places []string, all bool) bool {
	cursor := ""
	if all {
		cursor = "0"
	}
	for {
		empty, n := r.empty(places)
		rep, ok := r.leaveAll(ctx, append([]string{r.store.gateway, num(n), cursor}, empty...))
		switch {
		case !ok:
			return false
		case !all:
			return true
		}
		places = places[:0]
		for i := 1; i < len(rep.rest); i++ {
			places = append(places, rep.text(i))
		}
		if cursor = rep.text(0); cursor == "0" {
			all, cursor = false, "" // the last page is still to be left
		}
	}
}

func (r *room) leaveAll(ctx context.Context, args []string) (*reply, bool) {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	rep, err := r.store.exec(ctx, r, r.store.scripts.tidy, args...)
	return rep, err == nil && rep.code == "tidied"
}

// empty returns the places at which nobody stands, and the number up to which their
// attachments are over: whoever comes to one of them from now on has a higher one.
func (r *room) empty(places []string) ([]string, uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []string
	for _, p := range places {
		if r.spots[scopeOf(p)] == nil {
			out = append(out, p)
		}
	}
	return out, r.store.lastN.Load()
}
