package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"mime"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/go-json-experiment/json"

	"leased/gateway/api"
)

// maxSilence is how long a stream may say nothing before it counts as dead. The
// server gives a sign of life every 15 s.
const maxSilence = 20 * time.Second

// errSilent ends a connection on which nothing came for too long.
var errSilent = errors.New("nothing came from the server for too long")

// WatchRequest selects events. An empty filter matches everything, another one
// matches literally; filters are combined with "and".
type WatchRequest struct {
	Namespace string
	Owner     string
	Instance  string
	LeaseID   string
	KeyID     string
	// Events are the names of events to show, such as "revoked"; empty means all.
	Events []string
	// After is the ID of the event to resume after; empty means from now on.
	After string
	// OnBegin, if set, is called whenever a stream has begun or was resumed, with
	// the place where it begins, which After takes: nothing that happens later is
	// missed without a gap being told. OnBreak, if set, is called when it broke
	// off and will be resumed. Both are called by the loop and must not block.
	OnBegin func(after string)
	OnBreak func(error)
}

// Watch returns the namespace's events as they happen, in order, renewals
// included unless Events leaves them out. Each has one of the names "acquired",
// "renewed", "released", "expired" and "revoked", or is api.EventGap: then only ID and Namespace are
// filled, events were lost here, and what is believed of leases must be asked
// anew. Events come from when the first stream began, see OnBegin.
//
// A stream that breaks off is resumed, on another server if there are several,
// without a loss that is not told and without a repetition. That goes on until
// ctx ends, which ends the loop without an error, or until the server refuses:
// the last pair of the loop then has the error. A loop whose first stream did
// not begin before Options.RetryFor or ctx ended has an error too.
//
// Watch needs the right "watch". It tells early and not surely: whoever holds a
// lease must renew it all the same.
func (c *Client) Watch(ctx context.Context, r WatchRequest) iter.Seq2[*api.Event, error] {
	return func(yield func(*api.Event, error) bool) {
		w := &watcher{c: c, r: &r, after: r.After, yield: yield, pauses: newPauses()}
		if err := w.run(ctx); err != nil {
			yield(nil, err)
		}
	}
}

// watcher is one loop over events.
type watcher struct {
	c      *Client
	r      *WatchRequest
	yield  func(*api.Event, error) bool
	pauses *backoff.ExponentialBackOff

	after  string    // where to resume
	begun  bool      // a stream has begun, now or before
	live   bool      // the latest attempt's stream has begun
	lost   bool      // the server does not know the place any more
	failed time.Time // when the first attempt failed
}

// run returns the error to end with, nil if there is none to tell.
func (w *watcher) run(ctx context.Context) error {
	for {
		server := w.c.server.Load()
		v := w.attempt(ctx, w.c.servers[server%uint32(len(w.c.servers))])
		switch {
		case v == nil:
			return nil
		case ctx.Err() != nil:
			return w.over(ctx, v.err)
		case !v.again && w.begun && w.after != "" && isPlace(v.err):
			w.after, w.lost = "", true
			continue
		case !v.again:
			return v.err
		}
		w.c.server.CompareAndSwap(server, server+1)
		pause := max(w.pauses.NextBackOff(), v.err.Problem.RetryAfter())
		if !w.broke(v.err) && w.c.retryFor != 0 && time.Since(w.failed)+pause > w.c.retryFor {
			return v.err
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return w.over(ctx, v.err)
		}
	}
}

// broke tells of a stream that broke off, once, and reports whether any had begun.
func (w *watcher) broke(err error) bool {
	if w.failed.IsZero() {
		w.failed = time.Now()
	}
	if w.live && w.r.OnBreak != nil {
		w.r.OnBreak(err)
	}
	w.live = false
	return w.begun
}

// isPlace reports whether the server refuses the place to resume from: it has
// another store than the one that the place is of.
func isPlace(e *Error) bool {
	return e.Problem.Code == api.CodeInvalid && e.Problem.Field == api.HeaderLastEventID
}

// over returns how a loop ends whose context has ended.
func (w *watcher) over(ctx context.Context, last *Error) error {
	if w.begun {
		return nil
	}
	return w.c.ended(ctx, &call{}, last, false)
}

// attempt opens one stream and shows its events. It returns nil when the caller
// has left the loop.
func (w *watcher) attempt(ctx context.Context, server string) *verdict {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	silence := time.AfterFunc(w.c.attemptTimeout, func() { cancel(errSilent) })
	defer silence.Stop()
	resp, v := w.open(ctx, server)
	if v != nil {
		return v
	}
	defer resp.Body.Close()
	blocks := newBlocks(resp.Body)
	for first := true; ; first = false {
		b, err := blocks.next()
		if err != nil {
			if cause := context.Cause(ctx); errors.Is(cause, errSilent) {
				err = cause
			}
			return new(call).lost(true, fmt.Errorf("read the stream: %w", withoutURL(err)))
		}
		silence.Reset(maxSilence)
		if !first && b.event != api.EventEnd && b.event != api.EventGap {
			// It goes on. That it begins is not enough: one that ends at once again
			// and again would be asked for without a pause.
			w.pauses.Reset()
		}
		if b.id != "" {
			w.after = b.id
		}
		if first && !w.begins() {
			return nil
		}
		if b.event == "" {
			continue
		}
		if v, left := w.show(b); v != nil || left {
			return v
		}
	}
}

// begins is called when a stream has begun, and returns false when the caller has
// left the loop.
func (w *watcher) begins() bool {
	w.begun, w.live = true, true
	if w.r.OnBegin != nil {
		w.r.OnBegin(w.after)
	}
	if !w.lost {
		return true
	}
	w.lost = false
	return w.yield(&api.Event{ID: w.after, Event: api.EventGap, Namespace: orDefault(w.r.Namespace, w.c.namespace)}, nil)
}

// show hands an event on. It returns the verdict on a stream that ends with it,
// and whether the caller has left the loop.
func (w *watcher) show(b block) (v *verdict, left bool) {
	switch b.event {
	case "acquired", "renewed", "released", "expired", "revoked":
		ev := new(api.Event)
		if err := json.Unmarshal(b.data, ev); err != nil || ev.ID != b.id || ev.Event != b.event || ev.LeaseID == "" || ev.Token == 0 {
			return w.nonsense(err), false
		}
		return nil, !w.yield(ev, nil)
	case api.EventGap:
		var gap api.Gap
		if err := json.Unmarshal(b.data, &gap); err != nil || gap.ID != b.id {
			return w.nonsense(err), false
		}
		return nil, !w.yield(&api.Event{ID: gap.ID, Event: gap.Event, Namespace: gap.Namespace}, nil)
	case api.EventEnd:
		e := &Error{}
		if err := json.Unmarshal(b.data, &e.Problem); err != nil || e.Problem.Code == "" {
			return w.nonsense(err), false
		}
		return new(call).judge(e), false
	default:
		return nil, false // of a later release
	}
}

// nonsense is final: the same event would come again.
func (w *watcher) nonsense(cause error) *verdict {
	return &verdict{err: newError(api.CodeInternal, "", orDefault(cause, errIncomplete), "the stream is not what the API promises")}
}

// open sends the request. The answer is a stream.
func (w *watcher) open(ctx context.Context, server string) (*http.Response, *verdict) {
	var connected atomic.Bool
	traced := httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { connected.Store(true) }})
	query := url.Values{"timeout": {serverTimeout(w.c.attemptTimeout)}}
	for name, value := range map[string]string{
		"owner": w.r.Owner, "instance": w.r.Instance, "lease_id": w.r.LeaseID, "key_id": w.r.KeyID,
	} {
		if value != "" {
			query.Set(name, value)
		}
	}
	if len(w.r.Events) > 0 { // an empty name is refused: without it everything would be shown
		query.Set("event", strings.Join(w.r.Events, ","))
	}
	req, err := http.NewRequestWithContext(traced, http.MethodGet, server+w.c.in(w.r.Namespace)+"/events?"+query.Encode(), nil)
	if err != nil {
		return nil, &verdict{err: unsendable("", err)}
	}
	req.Header.Set("Accept", api.EventStreamMediaType)
	if w.after != "" {
		if err := setHeader(req, api.HeaderLastEventID, w.after); err != nil {
			return nil, &verdict{err: unsendable("", err)}
		}
	}
	if w.c.token != "" {
		req.Header.Set("Authorization", "Bearer "+w.c.token)
	}
	sent := &call{}
	resp, err := w.c.http.Do(req)
	if err != nil {
		if cause := context.Cause(ctx); errors.Is(cause, errSilent) {
			err = cause
		}
		return nil, sent.lost(connected.Load(), withoutURL(err))
	}
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if resp.StatusCode == http.StatusOK && kind == api.EventStreamMediaType {
		return resp, nil
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxReply))
	switch {
	case err != nil:
		return nil, sent.lost(true, fmt.Errorf("read the answer: %w", err))
	case resp.StatusCode/100 == 2:
		return nil, sent.lost(true, fmt.Errorf("the answer is %q and no stream of events", kind))
	}
	return nil, sent.refusal(resp, text)
}
