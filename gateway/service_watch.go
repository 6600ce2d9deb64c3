package gateway

import (
	"context"
	"errors"
	"strings"
	"time"

	"leased/contract"
	"leased/gateway/api"
)

// Watched says which events a stream is to show. The filters are as the caller
// sent them and combined with "and"; an empty one selects all.
type Watched struct {
	Owner    string
	Instance string
	LeaseID  string
	KeyID    string
	// Events are names of kinds of events, with commas between.
	Events string
	// After is where an earlier stream came to; empty means from now on.
	After string
}

// EventSink takes what a stream shows. Each method returns the error that ends
// the stream.
type EventSink interface {
	// Begin is called once, before anything else. The stream shows what follows
	// the cursor.
	Begin(cursor string) error
	// Event shows one event, or a gap.
	Event(ev *contract.Event) error
	// KeepAlive is called when there was nothing to show for a while. The cursor
	// has moved over what the filters passed over.
	KeepAlive(cursor string) error
}

// streamTimes are the times of streams.
type streamTimes struct {
	// keepAlive is how long a stream is silent at most.
	keepAlive time.Duration
	// write bounds the writing of one event: a reader that takes longer is
	// dropped, since its connection and its events would be held for it.
	write time.Duration
	// recheck is how soon a store is looked at again that cannot serve, and
	// unwell how long it may be so before its streams end.
	recheck, unwell time.Duration
}

func defaultStreamTimes() streamTimes {
	// The API promises a sign of life every 15 s; a look at the store's health
	// comes before it.
	return streamTimes{keepAlive: 10 * time.Second, write: 5 * time.Second, recheck: time.Second, unwell: 5 * time.Second}
}

var (
	// errClientGone ends a stream whose client closed it.
	errClientGone = errors.New("the client closed the stream")
	// errSlowReader ends a stream whose client does not read.
	errSlowReader = errors.New("the client did not read for too long")
)

// watch is one stream.
type watch struct {
	s      *Service
	call   *Call
	rights Action
	stream contract.Stream
	sink   EventSink
	unwell time.Time // since when the store cannot serve; zero while it can
}

// Watch shows events until ctx ends, the gateway drains, the principal's rights
// end, the store cannot serve or the sink returns an error; it returns why. It
// blocks nobody: a reader that falls behind what the store keeps is told of a
// gap.
func (s *Service) Watch(ctx context.Context, c *Call, in *Watched, sink EventSink) error {
	ctx, interrupt := context.WithCancelCause(ctx)
	defer interrupt(nil)
	r, err := c.watchRequest(in)
	w := &watch{s: s, call: c, sink: sink}
	switch {
	case err != nil:
	case !s.drainer.park(&interrupt):
		err = errClosed()
	default:
		defer s.drainer.leave(&interrupt)
		err = w.open(ctx, r)
	}
	s.finish(c, &subject{instance: r.Instance, keyID: r.KeyID, leaseID: r.LeaseID}, &contract.Result{Outcome: contract.OutcomeFound}, err)
	if err != nil {
		return err
	}
	defer w.stream.Close()
	c.ns.metrics.streams.Inc()
	defer c.ns.metrics.streams.Dec()
	err = w.run(ctx)
	switch {
	case errors.Is(err, errSlowReader):
		c.ns.metrics.streamsDropped.Inc()
	case errors.Is(err, errClientGone):
	case ctx.Err() == nil:
		s.logFault(c, verdictOf(0, err), err)
	case errors.Is(context.Cause(ctx), errDraining):
		err = errClosed()
	default:
		err = errClientGone
	}
	return err
}

// watchRequest returns the request for the store, with the filters in the form
// that leases are kept in.
func (c *Call) watchRequest(in *Watched) (*contract.WatchRequest, error) {
	r := &contract.WatchRequest{Namespace: c.ns.Name, After: in.After}
	var err error
	if r.Owner, err = contract.NormalizeText("owner", in.Owner, contract.MaxText, false); err != nil {
		return r, err
	}
	if r.Instance, err = contract.NormalizeText("instance", in.Instance, contract.MaxText, false); err != nil {
		return r, err
	}
	if in.LeaseID != "" {
		if r.LeaseID, err = parseLeaseID("lease_id", in.LeaseID); err != nil {
			return r, err
		}
	}
	if in.KeyID != "" {
		if r.KeyID, err = parseKeyID(in.KeyID); err != nil {
			return r, err
		}
	}
	if in.Events != "" {
		for name := range strings.SplitSeq(in.Events, ",") {
			kind := contract.ParseEventKind(name)
			if kind == 0 || kind == contract.EventGap {
				return r, contract.Invalid("event", "must be of acquired, renewed, released, expired and revoked, with commas between")
			}
			r.Kinds |= contract.KindsOf(kind)
		}
	}
	return r, nil
}

func (w *watch) open(ctx context.Context, r *contract.WatchRequest) error {
	ctx, cancel := w.s.bound(ctx, w.call, 0)
	defer cancel()
	if err := w.authorize(ctx, r); err != nil {
		return err
	}
	stream, err := w.call.ns.Store.Watch(ctx, r)
	w.stream = stream
	return err
}

// authorize decides whether the stream may begin. Whoever has the right only on
// some keys is shown the events of those.
func (w *watch) authorize(ctx context.Context, r *contract.WatchRequest) error {
	c := w.call
	w.rights = Action{Verb: VerbWatch, Namespace: c.ns.Name, Some: c.Principal.Scoped}
	id := r.KeyID
	if id.IsZero() {
		id = r.LeaseID.KeyID()
	}
	if c.Principal.Scoped && !id.IsZero() {
		// One key is asked for: that there would never be an event to show is
		// better said at once.
		if _, err := w.s.authorizeID(ctx, c, VerbWatch, id); err != nil {
			return err
		}
	}
	return w.s.authorize(c, w.rights)
}

func (w *watch) run(ctx context.Context) error {
	if err := w.sink.Begin(w.stream.Cursor()); err != nil {
		return err
	}
	pause := w.s.streams.keepAlive
	for {
		if err := w.feed(ctx, pause); err != nil {
			return err
		}
		// Nobody may keep rights that ended by having begun before.
		if err := w.s.authorize(w.call, w.rights); err != nil {
			return err
		}
		var err error
		if pause, err = w.look(ctx); err != nil {
			return err
		}
		if err := w.sink.KeepAlive(w.stream.Cursor()); err != nil {
			return err
		}
	}
}

// feed shows events until there was none before the pause is over.
func (w *watch) feed(ctx context.Context, pause time.Duration) error {
	bound, cancel := context.WithTimeout(ctx, pause)
	defer cancel()
	for {
		ev, err := w.stream.Next(bound)
		switch {
		case ctx.Err() != nil:
			return ctx.Err() // Watch knows why
		case contract.CodeOf(err) == contract.CodeTimeout && bound.Err() != nil:
			return nil
		case err != nil:
			return err
		}
		if err := w.show(&ev); err != nil {
			return err
		}
	}
}

// show shows an event to whoever may see it.
func (w *watch) show(ev *contract.Event) error {
	if ev.Kind == contract.EventGap {
		w.call.ns.metrics.streamGaps.Inc()
		return w.sink.Event(ev)
	}
	if !w.s.auth.Authorize(w.call.Principal, onKey(VerbWatch, w.call.ns.Name, &ev.Key)) {
		return w.s.authorize(w.call, w.rights)
	}
	w.call.ns.metrics.streamEvents.Inc()
	return w.sink.Event(ev)
}

// look looks at the store's health and returns the pause until the next look. A
// store that reaches nobody may have no events for a stream, and no error either.
func (w *watch) look(ctx context.Context) (time.Duration, error) {
	times := &w.s.streams
	if healthOf(ctx, []*namespace{w.call.ns}, healthAge)[0].Ready {
		w.unwell = time.Time{}
		return times.keepAlive, nil
	}
	now := time.Now()
	if w.unwell.IsZero() {
		w.unwell = now
	}
	if now.Sub(w.unwell) >= times.unwell {
		return 0, refuse(api.CodeUnavailable, "the store cannot serve now, and a stream would say nothing; resume on another gateway, or later")
	}
	return times.recheck, nil
}
