package gateway

import (
	"bytes"
	"errors"
	"net/http"
	"os"
	"time"

	"github.com/go-json-experiment/json"

	"leased/contract"
	"leased/gateway/api"
)

func watchParams() []string { return []string{"owner", "instance", "lease_id", "key_id", "event"} }

// events streams events until the client, or the gateway, has had enough.
func (h *handler) events(x *exchange) error {
	watched, err := x.takeWatched()
	if err != nil {
		return x.refused(err)
	}
	w := &eventWriter{x: x, patience: h.service.streams.write}
	err = h.service.Watch(x.r.Context(), &x.call, watched, w)
	if e, ok := errors.AsType[*contract.Error](err); ok && e.Code == contract.CodeInvalid && e.Field == "after" {
		err = contract.Invalid(api.HeaderLastEventID, "%s", e.Detail)
	}
	if !w.begun {
		return err
	}
	w.end(err)
	return nil
}

func (x *exchange) takeWatched() (*Watched, error) {
	ids := x.r.Header[http.CanonicalHeaderKey(api.HeaderLastEventID)]
	w := &Watched{
		Owner: x.query.Get("owner"), Instance: x.query.Get("instance"),
		LeaseID: x.query.Get("lease_id"), KeyID: x.query.Get("key_id"),
		Events: x.query.Get("event"),
	}
	switch {
	case len(ids) > 1:
		return nil, contract.Invalid(api.HeaderLastEventID, "is given %d times", len(ids))
	case len(ids) == 1 && ids[0] == "":
		return nil, contract.Invalid(api.HeaderLastEventID, "is empty; leave it out")
	case len(ids) == 1:
		w.After = ids[0]
	}
	return w, nil
}

// eventWriter writes server-sent events. It is an EventSink.
type eventWriter struct {
	x *exchange
	// to is the writer below gin's, whose Flush tells of errors.
	to       http.ResponseWriter
	control  *http.ResponseController
	patience time.Duration
	begun    bool
	buf      bytes.Buffer
}

// Begin implements EventSink. The first id comes without an event: who is cut off
// before the first event resumes from here.
func (w *eventWriter) Begin(cursor string) error {
	gin := w.x.c.Writer
	header := gin.Header()
	header["Content-Type"] = []string{api.EventStreamMediaType}
	header["Cache-Control"] = w.x.h.noStore
	header["X-Content-Type-Options"] = w.x.h.noSniff
	header["X-Accel-Buffering"] = []string{"no"} // else a proxy hands events on by the buffer
	w.to = gin
	if below, ok := gin.(interface{ Unwrap() http.ResponseWriter }); ok {
		w.to = below.Unwrap()
	}
	w.control = http.NewResponseController(w.to)
	// The deadlines of single writes do not suit what follows on the connection.
	w.x.connection().limited = time.Time{}
	gin.WriteHeaderNow()
	w.begun = true
	w.buf.WriteString("retry: 1000\n")
	w.id(cursor)
	return w.flush()
}

// Event implements EventSink.
func (w *eventWriter) Event(ev *contract.Event) error {
	w.id(ev.ID)
	if ev.Kind == contract.EventGap {
		return w.event(api.EventGap, &api.Gap{ID: ev.ID, Event: api.EventGap, Namespace: ev.Namespace})
	}
	shown := api.NewEvent(ev)
	return w.event(shown.Event, &shown)
}

// KeepAlive implements EventSink.
func (w *eventWriter) KeepAlive(cursor string) error {
	w.buf.WriteString(": keep-alive\n")
	w.id(cursor)
	return w.flush()
}

// end tells the client why the stream ends, if it is still there and listens.
func (w *eventWriter) end(err error) {
	switch {
	case errors.Is(err, errClientGone):
		w.x.outcome = "disconnected"
		return
	case errors.Is(err, errSlowReader):
		w.x.outcome = "slow_reader"
		w.x.connection().forget()
		panic(http.ErrAbortHandler) // the end of the body must not look like one
	}
	p := problemOf(err, w.x.call.RequestID)
	w.x.outcome = string(p.Code)
	if w.event(api.EventEnd, p) == nil { // else it is gone, and need not know
		_ = w.control.SetWriteDeadline(time.Now().Add(w.patience)) // of the body's end
	}
}

func (w *eventWriter) id(id string) {
	w.buf.WriteString("id: ")
	w.buf.WriteString(id)
	w.buf.WriteByte('\n')
}

func (w *eventWriter) event(name string, data any) error {
	w.buf.WriteString("event: ")
	w.buf.WriteString(name)
	w.buf.WriteString("\ndata: ")
	if err := json.MarshalWrite(&w.buf, data, w.x.h.encode); err != nil {
		return err
	}
	w.buf.WriteByte('\n')
	return w.flush()
}

// flush ends a block and sends it.
func (w *eventWriter) flush() error {
	w.buf.WriteByte('\n')
	began := time.Now()
	// An error says that the writer, as a test's, has no connection below it.
	_ = w.control.SetWriteDeadline(began.Add(w.patience))
	_, err := w.to.Write(w.buf.Bytes())
	w.buf.Reset()
	if err == nil {
		err = w.control.Flush()
	}
	switch {
	case err == nil:
		// In HTTP/2 a deadline that passes ends a stream on which nothing is
		// written too.
		_ = w.control.SetWriteDeadline(time.Time{})
		return nil
	case errors.Is(err, os.ErrDeadlineExceeded) || time.Since(began) >= w.patience:
		return errSlowReader
	}
	return errClientGone
}
