package contract

import (
	"context"
	"fmt"
	"time"
)

// EventKind says what happened.
type EventKind uint8

// The kinds. EventRenewed is streamed but not kept in the history, where a
// lease's Renewals count stands for it. EventGap stands only in a stream, for
// events that can no longer be shown.
const (
	_ EventKind = iota
	EventAcquired
	EventRenewed
	EventReleased
	EventExpired
	EventRevoked
	EventGap
)

var eventKindNames = [...]string{
	EventAcquired: "acquired",
	EventRenewed:  "renewed",
	EventReleased: "released",
	EventExpired:  "expired",
	EventRevoked:  "revoked",
	EventGap:      "gap",
}

// String returns the kind as it stands in the HTTP API.
func (k EventKind) String() string {
	if k == 0 || int(k) >= len(eventKindNames) {
		return fmt.Sprintf("event(%d)", uint8(k))
	}
	return eventKindNames[k]
}

// ParseEventKind returns the kind that the HTTP API calls name, or 0.
func ParseEventKind(name string) EventKind {
	for k := EventAcquired; k <= EventGap; k++ {
		if k.String() == name {
			return k
		}
	}
	return 0
}

// EventKinds is a set of kinds. The zero value selects every kind.
type EventKinds uint8

// KindsOf returns the set of the kinds named.
func KindsOf(kinds ...EventKind) EventKinds {
	var s EventKinds
	for _, k := range kinds {
		s |= 1 << k
	}
	return s
}

// Selects reports whether events of the kind are asked for.
func (s EventKinds) Selects(k EventKind) bool { return s == 0 || s&(1<<k) != 0 }

// EndedEvent returns the kind of event that moved a lease into the terminal
// state s, or 0 if s is not terminal.
func EndedEvent(s State) EventKind {
	switch s {
	case StateExpired:
		return EventExpired
	case StateReleased:
		return EventReleased
	case StateRevoked:
		return EventRevoked
	default:
		return 0
	}
}

// Event is one transition of a key. It was committed in the same atomic step as
// the transition itself.
type Event struct {
	// ID is the event's place among all events of its store, as an opaque
	// cursor: Watch resumes after it. The same event has the same ID in a
	// history and in a stream, on every gateway and after a restart.
	ID   string
	At   time.Time
	Kind EventKind

	Namespace string
	Key       Key
	KeyID     KeyID
	LeaseID   LeaseID
	Token     Token
	Owner     string
	Instance  string
	// Principal caused the event; empty for an expiry.
	Principal string
	// RequestID and TraceID are those of the call that caused the event.
	RequestID string
	TraceID   string
	JobID     string
	Previous  State
	State     State
	Reason    string

	// Late is how long after the lease's end an expiry was recorded. It is not
	// part of the HTTP API: it feeds the lateness metric.
	Late time.Duration
}

// Stream is a running Watch. It is used by one goroutine at a time, except
// Close.
type Stream interface {
	// Next returns the next event, in order. It blocks until there is one, ctx
	// ends (CodeTimeout), the stream or the store is closed (CodeClosed), or the
	// store cannot serve (CodeUnavailable); after an error other than
	// CodeTimeout the stream is over. An event of kind EventGap tells that
	// events were lost here: the reader was too slow, or the cursor it came with
	// is older than what the store keeps. Its ID may be resumed from.
	Next(ctx context.Context) (Event, error)
	// Cursor returns the place that the stream has come to, for Watch to resume
	// after on any gateway: Next returned every event up to it that the filters
	// select, and none after it. Before the first event that is where the stream
	// began; while Next passes over events of others it moves on with them, so
	// that a stream which is seldom told anything does not resume from so long
	// ago that there is a gap. It does no I/O and is answered after Close too.
	Cursor() string
	// Close ends the stream and frees what it holds. It may be called twice and
	// beside Next.
	Close()
}

// ExpiryObserver is told of each expiry that a store recorded, once among all
// gateways, with Late filled: nobody called for an expiry, so no answer carries
// it. It is called on a goroutine of the store's and must not block.
type ExpiryObserver func(Event)
