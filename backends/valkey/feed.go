package valkey

import (
	"context"
	"slices"
	"sort"
	"strconv"
	"sync"
	"time"

	"github.com/valkey-io/valkey-go"
)

const (
	// readAhead is how many events are fetched at once.
	readAhead = 256
	// blockFor is how long one read waits for events before it is sent again.
	blockFor = 5 * time.Second
	// feedTail is how many events a feed keeps for streams that are a little
	// behind. One that is further behind reads from the server by itself.
	feedTail = 1024
)

// feed waits for a namespace's events on behalf of all its streams at this
// gateway. Each stream used to wait by itself: on a connection of its own, which
// is most of a megabyte here and a client at the server, woken for each event.
type feed struct {
	room *room

	mu      sync.Mutex
	readers int
	stop    context.CancelFunc // of the goroutine that reads
	from    place              // what the tail follows
	tail    []valkey.XRangeEntry
	places  []place       // of the tail's events
	grew    chan struct{} // closed when there is reason to look again
}

func newFeed(r *room) *feed { return &feed{room: r, grew: make(chan struct{})} }

// enter counts a stream; leave forgets it. The feed reads while there is one.
func (f *feed) enter() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.readers++; f.readers > 1 {
		return
	}
	ctx, stop := context.WithCancel(context.Background())
	f.stop = stop
	f.room.store.start(func(life context.Context) {
		defer stop()
		defer context.AfterFunc(life, stop)()
		for ctx.Err() == nil {
			if f.follow(ctx) != nil {
				sleep(ctx, leavePause)
			}
		}
	})
}

func (f *feed) leave() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.readers--; f.readers == 0 {
		f.stop() // from here on it changes nothing
		f.from, f.tail, f.places = place{}, nil, nil
	}
}

// after returns events that follow the one at p, if the feed has them, and else
// what tells when to look again: at the feed and, because it may begin later than
// p, before that at the server.
func (f *feed) after(p place) ([]valkey.XRangeEntry, <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	first := 0
	if p != f.from {
		i := sort.Search(len(f.places), func(i int) bool { return !f.places[i].less(p) })
		if i == len(f.places) || f.places[i] != p {
			return nil, f.grew
		}
		first = i + 1
	}
	rest := f.tail[first:]
	return slices.Clone(rest[:min(len(rest), readAhead)]), f.grew
}

// follow reads from the present on, until something goes wrong or the server is
// another one.
func (f *feed) follow(ctx context.Context) error {
	defer f.change(ctx, func() {}) // the streams find out by themselves what it was
	generation := f.room.store.link.generation.Load()
	at, err := f.room.present(ctx)
	if err != nil {
		return err
	}
	// Who looked at the server before this moment looks again: what happened
	// since then the feed does not have.
	f.change(ctx, func() { f.from, f.tail, f.places = at, nil, nil })
	for generation == f.room.store.link.generation.Load() {
		entries, known, err := f.room.since(ctx, at)
		if err == nil && len(entries) == 0 {
			// The event at the place may be lost by the time that others come.
			known = false
			entries, err = f.room.await(ctx, at)
		}
		if err != nil {
			return err
		}
		for len(entries) > 0 {
			p, ok := entryPlace(entries[0])
			if !ok {
				return nil // each stream says so by itself
			}
			follows := known || p == place{at.epoch, at.n + 1}
			f.change(ctx, func() { f.add(entries[0], p, follows) })
			at, known, entries = p, true, entries[1:]
		}
	}
	return nil
}

// change changes the tail and has every stream look again, unless the feed was
// stopped.
func (f *feed) change(ctx context.Context, do func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if ctx.Err() != nil {
		return
	}
	do()
	close(f.grew)
	f.grew = make(chan struct{})
}

// add appends an event, which begins a new tail unless it follows the old one.
func (f *feed) add(e valkey.XRangeEntry, p place, follows bool) {
	if !follows {
		f.from, f.tail, f.places = place{}, nil, nil
	}
	if len(f.tail) >= feedTail {
		half := len(f.tail) / 2
		f.from = f.places[half-1]
		f.tail, f.places = slices.Clone(f.tail[half:]), slices.Clone(f.places[half:])
	}
	f.tail, f.places = append(f.tail, e), append(f.places, p)
}

// entryPlace returns the place of an entry of the stream.
func entryPlace(e valkey.XRangeEntry) (place, bool) {
	p, ok := parsePlace(e.ID)
	p.n++ // numbers begin at 1
	return p, ok
}

// present returns the place of the newest event.
func (r *room) present(ctx context.Context) (place, error) {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	a, err := r.store.exec(ctx, r, r.store.scripts.watch, "", "")
	if err != nil {
		return place{}, err
	}
	end, ok := parsePlace(a.text(0) + "-" + a.text(1))
	if a.code != "from" || !ok {
		return place{}, unexpected(a)
	}
	return end, nil
}

// since reads what follows the event at the place, and tells whether that one is
// still there, so that what follows it follows it.
func (r *room) since(ctx context.Context, at place) (entries []valkey.XRangeEntry, known bool, err error) {
	from := place{at.epoch, max(at.n, 1) - 1}
	msg, err := r.store.link.do(ctx, func(ctx context.Context, c valkey.Client) valkey.ValkeyResult {
		return c.Do(ctx, c.B().Xrange().Key(r.base+":e").Start(from.id()).End("+").Count(readAhead).Build())
	})
	if err != nil {
		return nil, false, err
	}
	if entries, err = msg.AsXRange(); err != nil {
		return nil, false, err
	}
	if len(entries) > 0 && at.n > 0 && entries[0].ID == from.id() {
		return entries[1:], true, nil
	}
	return entries, false, nil
}

// await waits for what comes after the place.
func (r *room) await(ctx context.Context, at place) ([]valkey.XRangeEntry, error) {
	after := place{at.epoch, max(at.n, 1) - 1}.id()
	if at.n == 0 {
		after = strconv.FormatUint(at.epoch-1, 10) + "-18446744073709551615"
	}
	c, err := r.store.link.get(ctx)
	if err != nil {
		return nil, err
	}
	key := r.base + ":e"
	// It goes over a connection of its own and ends with ctx.
	msg, err := c.Do(ctx, c.B().Xread().Count(readAhead).Block(blockFor.Milliseconds()).Streams().Key(key).Id(after).Build()).ToMessage()
	if valkey.IsValkeyNil(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	streams, err := msg.AsXRead()
	if err != nil {
		return nil, err
	}
	return streams[key], nil
}
