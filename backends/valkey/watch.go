package valkey

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/valkey-io/valkey-go"

	"leased/contract"
	"leased/contract/lifecycle"
)

// Watch implements contract.Store. A stream reads the namespace's stream on the
// server at its own pace; a reader that is overtaken is told by a gap.
func (s *Store) Watch(ctx context.Context, r *contract.WatchRequest) (contract.Stream, error) {
	ctx, room, end, err := s.begin(ctx, r.Namespace, r.Validate)
	if err != nil {
		return nil, err
	}
	defer end()
	args := []string{"", ""}
	if r.After != "" {
		p, ok := parsePlace(r.After)
		if !ok || p.epoch == 0 {
			return nil, errAfter()
		}
		args = []string{num(p.epoch), num(p.n)}
	}
	generation := s.link.generation.Load()
	a, err := s.exec(ctx, room, s.scripts.watch, args...)
	if err != nil {
		return nil, err
	}
	if a.code != "from" {
		return nil, errAfter()
	}
	at, ok := parsePlace(a.text(0) + "-" + a.text(1))
	if !ok {
		return nil, unexpected(a)
	}
	life, err := s.handle.Stream()
	if err != nil {
		return nil, err
	}
	room.feed.enter()
	return &stream{
		Stream: life, store: s, room: room, filter: *r, at: at, generation: generation, leave: sync.OnceFunc(room.feed.leave),
	}, nil
}

func errAfter() error { return contract.Invalid("after", "is not the id of an event") }

type stream struct {
	*lifecycle.Stream
	store  *Store
	room   *room
	filter contract.WatchRequest
	at     place // of the last event that was read
	ahead  []valkey.XRangeEntry
	// known tells that at is an event's that the server was seen to have, so that
	// what follows it follows it.
	known bool
	// generation is the link's as of at.
	generation int64
	leave      func() // the room's feed
}

// Next implements contract.Stream.
func (st *stream) Next(ctx context.Context) (contract.Event, error) {
	for {
		if err := st.Err(); err != nil {
			return contract.Event{}, err
		}
		if len(st.ahead) > 0 {
			ev, show, err := st.take()
			if err != nil || show {
				return ev, err
			}
			continue
		}
		if ctx.Err() != nil {
			return contract.Event{}, contract.Errorf(contract.CodeTimeout, context.Cause(ctx), "no event before the deadline")
		}
		if g := st.store.link.generation.Load(); g != st.generation {
			return st.relocate(ctx, g)
		}
		if err := st.read(ctx); err != nil {
			return contract.Event{}, err
		}
	}
}

// relocate goes on after the server became another one, which may not know what
// was read here and may have used its ids again: there is a gap.
func (st *stream) relocate(ctx context.Context, generation int64) (contract.Event, error) {
	end, err := st.room.present(ctx)
	if err != nil {
		return contract.Event{}, err
	}
	if end.less(st.at) {
		st.at = end
	}
	st.known, st.generation = false, generation
	return st.gap(st.at), nil
}

// gap is the event that tells of what a stream does not have. Only the ID is
// promised of it.
func (st *stream) gap(at place) contract.Event {
	return contract.Event{ID: at.id(), Kind: contract.EventGap, Namespace: st.filter.Namespace}
}

// take turns the next entry that was read into an event, and tells whether it
// is to be shown.
func (st *stream) take() (contract.Event, bool, error) {
	e := st.ahead[0]
	p, ok := entryPlace(e)
	if !ok {
		return contract.Event{}, false, contract.Errorf(contract.CodeInternal, nil, "the namespace's stream is corrupt")
	}
	before := place{p.epoch, p.n - 1}
	if before != st.at && (p.epoch == st.at.epoch || !st.known) {
		st.at, st.known = before, true
		return st.gap(before), true, nil
	}
	st.ahead = st.ahead[1:]
	st.at, st.known = p, true
	ev, err := streamed(st.room.namespace, p, e.FieldValues["r"], e.FieldValues["c"])
	if err != nil {
		return contract.Event{}, false, contract.Errorf(contract.CodeInternal, err, "the namespace's stream is corrupt")
	}
	show := st.filter.Selects(&ev)
	return ev, show, nil
}

// Cursor implements contract.Stream.
func (st *stream) Cursor() string { return st.at.id() }

// read fetches what follows, waiting for it until ctx ends or the stream is
// closed.
func (st *stream) read(ctx context.Context) error {
	entries, grew := st.room.feed.after(st.at)
	if len(entries) > 0 {
		st.ahead, st.known = entries, true
		return nil
	}
	entries, known, err := st.room.since(ctx, st.at)
	switch {
	case err == nil:
		st.ahead, st.known = entries, known
	case ctx.Err() != nil, errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return nil // Next finds out why; what is not over was another call's, which connected for both
	default:
		return st.store.link.rules.of(ctx, err, true)
	}
	if len(entries) > 0 {
		return nil
	}
	again := time.NewTimer(blockFor)
	defer again.Stop()
	select {
	case <-grew:
	case <-again.C:
	case <-ctx.Done():
	case <-st.Ended():
	}
	return nil
}

// Close implements contract.Stream.
func (st *stream) Close() {
	st.Stream.Close()
	st.leave()
}
