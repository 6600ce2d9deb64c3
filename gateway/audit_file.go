package gateway

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"

	"github.com/go-json-experiment/json"
	"gopkg.in/natefinch/lumberjack.v2"

	"leased/contract"
	"leased/gateway/api"
)

const (
	auditQueue   = 8192 // events
	auditFileMiB = 100  // size at which a file is put aside
	auditBackups = 20   // files kept
)

// OpenAudit opens a sink that appends one JSON object a line to the file at
// path, which is put aside when it has grown to 100 MiB; the last 20 are kept.
// An empty path is no sink: nil, nil.
//
// The policy when the file cannot be written is to go on serving: events are
// dropped, counted, and the count is shown by /readyz and the metrics. The
// transitions themselves are safe in the store's history.
func OpenAudit(path string) (AuditSink, error) {
	if path == "" {
		return nil, nil //nolint:nilnil // no sink is a valid answer, and it must cost nothing
	}
	// lumberjack opens at the first write, when nobody is left to tell.
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("gateway: audit file: %w", err)
	}
	if err := f.Close(); err != nil {
		return nil, fmt.Errorf("gateway: audit file: %w", err)
	}
	return newAuditLog(&lumberjack.Logger{Filename: path, MaxSize: auditFileMiB, MaxBackups: auditBackups}, auditQueue), nil
}

// auditLog writes events on a goroutine of its own. A sink that froze the
// requests when its disk did is how an audit log becomes an outage.
type auditLog struct {
	w       io.WriteCloser
	dropped atomic.Uint64
	done    chan struct{} // closed when the writer has ended
	failed  error         // written before done is closed

	// mu makes sure that nothing is sent on a closed channel. Record shares it;
	// only Close takes it alone.
	mu     sync.RWMutex
	closed bool
	queue  chan *AuditEvent
}

func newAuditLog(w io.WriteCloser, queue int) *auditLog {
	l := &auditLog{w: w, done: make(chan struct{}), queue: make(chan *AuditEvent, queue)}
	go l.run()
	return l
}

// Record implements AuditSink.
func (l *auditLog) Record(e *AuditEvent) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if !l.closed {
		select {
		case l.queue <- e:
			return
		default:
		}
	}
	l.dropped.Add(1)
}

// Dropped implements AuditSink.
func (l *auditLog) Dropped() uint64 { return l.dropped.Load() }

// Close implements AuditSink.
func (l *auditLog) Close(ctx context.Context) error {
	l.mu.Lock()
	if !l.closed {
		l.closed = true
		close(l.queue)
	}
	l.mu.Unlock()
	select {
	case <-l.done:
		return l.failed
	case <-ctx.Done():
		return fmt.Errorf("gateway: audit file: %d events are not written: %w", len(l.queue), ctx.Err())
	}
}

// run writes until the queue is closed and empty. It flushes whenever it has
// caught up, so that a line is late only while more lines come.
func (l *auditLog) run() {
	defer close(l.done)
	buf := bufio.NewWriterSize(l.w, 64<<10)
	unflushed := uint64(0)
	torn := false // the last write may have ended inside a line
	for e := range l.queue {
		line, err := json.Marshal(newAuditLine(e))
		if torn {
			line = append([]byte{'\n'}, line...)
			torn = false
		}
		if err == nil {
			_, err = buf.Write(append(line, '\n'))
			unflushed++
		}
		if err == nil && len(l.queue) == 0 {
			err = buf.Flush()
		}
		switch {
		case err != nil:
			// bufio keeps its error for ever; a disk that is full now may have
			// room again later.
			l.dropped.Add(max(unflushed, 1))
			buf.Reset(l.w)
			unflushed, torn = 0, true
		case buf.Buffered() == 0:
			unflushed = 0
		}
	}
	err := buf.Flush()
	if err != nil {
		l.dropped.Add(unflushed)
	}
	if err := errors.Join(err, l.w.Close()); err != nil {
		l.failed = fmt.Errorf("gateway: audit file: %w", err)
	}
}

// auditLine is an AuditEvent as it stands in the file.
type auditLine struct {
	Time          api.Time `json:"time"`
	RequestID     string   `json:"request_id"`
	TraceID       string   `json:"trace_id"`
	Principal     string   `json:"principal"`
	Instance      string   `json:"instance"`
	Namespace     string   `json:"namespace"`
	Key           string   `json:"key"` // canonical text
	KeyID         string   `json:"key_id"`
	LeaseID       string   `json:"lease_id"`
	Token         uint64   `json:"token"`
	Operation     string   `json:"operation"`
	Outcome       string   `json:"outcome"`
	Code          string   `json:"code"`
	Replayed      bool     `json:"replayed"`
	PreviousState string   `json:"previous_state"`
	State         string   `json:"state"`
	LatencyMS     float64  `json:"latency_ms"`
	Reason        string   `json:"reason"`
}

func newAuditLine(e *AuditEvent) *auditLine {
	line := &auditLine{
		Time: api.NewTime(e.Time), RequestID: e.RequestID, TraceID: e.TraceID,
		Principal: e.Principal, Instance: e.Instance, Namespace: e.Namespace,
		Token: uint64(e.Token), Operation: e.Operation, Outcome: e.Outcome, Code: e.Code,
		Replayed: e.Replayed, LatencyMS: float64(e.Latency.Microseconds()) / 1000, Reason: e.Reason,
	}
	if e.Key != (contract.Key{}) {
		line.Key = e.Key.Canonical()
	}
	if !e.KeyID.IsZero() {
		line.KeyID = e.KeyID.String()
	}
	if !e.LeaseID.IsZero() {
		line.LeaseID = e.LeaseID.String()
	}
	if e.Previous != 0 {
		line.PreviousState = e.Previous.String()
	}
	if e.State != 0 {
		line.State = e.State.String()
	}
	return line
}
