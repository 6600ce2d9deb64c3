package api

import "leased/contract"

// LeaseReply answers acquire, renew, release, revoke and check that did what
// was asked.
type LeaseReply struct {
	Outcome string `json:"outcome"`
	Lease   *Lease `json:"lease"`
	// Replayed: the answer was stored under this request id before, by an earlier request
	// or by this one, where its store had to be asked a second time.
	Replayed bool `json:"replayed,omitzero"`
}

// GetReply answers GET …/leases/{lease_id}.
type GetReply struct {
	Lease *Lease `json:"lease"`
}

// ListReply is one page of leases. An empty NextCursor ends the list.
type ListReply struct {
	Leases     []*Lease `json:"leases"`
	NextCursor string   `json:"next_cursor"`
}

// KeyReply answers GET …/keys/{key_id}.
type KeyReply struct {
	Key   Key    `json:"key"`
	KeyID string `json:"key_id"`
	Lease *Lease `json:"lease"` // the active lease, or null
	Queue Queue  `json:"queue"`
	Last  *Lease `json:"last"` // the lease that ended last, or null
}

// NewKeyReply returns r for the wire.
func NewKeyReply(r *contract.KeyResult) *KeyReply {
	w := KeyReply{Key: NewKey(r.Key), KeyID: r.KeyID.String(), Queue: NewQueue(r.Queue)}
	if r.Lease != nil {
		w.Lease = NewLease(r.Lease)
	}
	if r.Last != nil {
		w.Last = NewLease(r.Last)
	}
	return &w
}

// HistoryReply is one page of a key's events, newest first. An empty NextCursor
// ends the history.
type HistoryReply struct {
	Events     []Event `json:"events"`
	NextCursor string  `json:"next_cursor"`
}

// ResolveReply answers resolve.
type ResolveReply struct {
	Key       Key    `json:"key"`
	KeyID     string `json:"key_id"`
	Canonical string `json:"canonical"`
}

// RenewBulkReply has one item for each lease asked for, in the same order.
type RenewBulkReply struct {
	Results []RenewBulkItem `json:"results"`
}

// RenewBulkItem is the answer for one lease of a bulk renewal: Outcome and
// Lease, or Error.
type RenewBulkItem struct {
	Outcome  string   `json:"outcome,omitzero"`
	Lease    *Lease   `json:"lease,omitzero"`
	Replayed bool     `json:"replayed,omitzero"`
	Error    *Problem `json:"error,omitzero"`
}

// The names that events have in a stream beside the kinds of Event.
const (
	// EventGap tells that events were lost here; its data is a Gap.
	EventGap = "gap"
	// EventEnd tells why the server ends the stream; its data is a Problem. A
	// stream that just breaks off has none.
	EventEnd = "end"
)

// Gap tells a reader of events that some can no longer be shown to it: it was too
// slow, or came back too late. What it believes of leases must be asked anew.
type Gap struct {
	ID        string `json:"id"` // may be resumed from
	Event     string `json:"event"`
	Namespace string `json:"namespace"`
}

// Event is one transition of a key, or in a stream a renewal.
type Event struct {
	ID            string `json:"id"`
	At            Time   `json:"at"`
	Event         string `json:"event"`
	Namespace     string `json:"namespace"`
	Key           Key    `json:"key"`
	KeyID         string `json:"key_id"`
	LeaseID       string `json:"lease_id"`
	Token         uint64 `json:"token"`
	Owner         string `json:"owner"`
	Instance      string `json:"instance"`
	Principal     string `json:"principal"`
	RequestID     string `json:"request_id"`
	TraceID       string `json:"trace_id"`
	JobID         string `json:"job_id"`
	PreviousState string `json:"previous_state"`
	State         string `json:"state"`
	Reason        string `json:"reason"`
}

// NewEvent returns e for the wire.
func NewEvent(e *contract.Event) Event {
	return Event{
		ID: e.ID, At: NewTime(e.At), Event: e.Kind.String(), Namespace: e.Namespace,
		Key: NewKey(e.Key), KeyID: e.KeyID.String(), LeaseID: e.LeaseID.String(), Token: uint64(e.Token),
		Owner: e.Owner, Instance: e.Instance, Principal: e.Principal,
		RequestID: e.RequestID, TraceID: e.TraceID, JobID: e.JobID,
		PreviousState: e.Previous.String(), State: e.State.String(), Reason: e.Reason,
	}
}
