package history

import (
	"slices"
	"time"
)

// The verbs of an Op.
const (
	Acquire = "acquire"
	Renew   = "renew"
	Release = "release"
	Check   = "check"
	Revoke  = "revoke" // or force-release, which does the same
	Write   = "write"  // to the guarded register
)

// The outcomes of an Op that are told apart here. Others of the API stand as they are.
const (
	Acquired      = "acquired"
	Renewed       = "renewed"
	Released      = "released"
	Revoked       = "revoked"
	Current       = "current"
	Accepted      = "accepted" // by the guarded register
	Conflict      = "conflict"
	NotFound      = "not_found"
	NotOwner      = "not_owner"
	StaleToken    = "stale_token"
	EndedExpired  = "ended_expired" // the three are codes without "ended_" in the API
	EndedReleased = "ended_released"
	EndedRevoked  = "ended_revoked"
	Reused        = "request_id_reused"
	Unavailable   = "unavailable"
	Timeout       = "timeout"
	Closed        = "closed"
	Invalid       = "invalid"
	Internal      = "internal"
	NotSent       = "not_sent" // there was no connection
	Lost          = "lost"     // the connection ended before the answer
	Unknown       = "outcome_unknown"
)

// Op is one call of a client, or one write.
type Op struct {
	ID     string `json:"id"` // of the client and, behind a dash, which of its calls
	Client string `json:"client"`
	Server string `json:"server,omitzero"`

	Verb     string `json:"verb"`
	Key      string `json:"key"`
	Request  string `json:"request,omitzero"`
	Instance string `json:"instance,omitzero"`
	Job      string `json:"job,omitzero"`
	TTLMS    int64  `json:"ttl_ms,omitzero"`
	WaitMS   int64  `json:"wait_ms,omitzero"`
	Lease    string `json:"lease,omitzero"`  // that is presented
	Token    uint64 `json:"token,omitzero"`  // that is presented
	Reason   string `json:"reason,omitzero"` // of a revocation, as is the mode
	Mode     string `json:"mode,omitzero"`

	// CalledNS and ReturnedNS are instants of the machine's monotonic clock;
	// ReturnedNS is 0 when the client ended before.
	CalledNS   int64 `json:"called_ns"`
	ReturnedNS int64 `json:"returned_ns,omitzero"`

	Answer Answer `json:"answer,omitzero"`
}

// Answer is what a client was told.
type Answer struct {
	Outcome     string `json:"outcome,omitzero"`
	Replayed    bool   `json:"replayed,omitzero"`
	Lease       string `json:"lease,omitzero"`
	Token       uint64 `json:"token,omitzero"`
	TTLMS       int64  `json:"ttl_ms,omitzero"`
	ExpiresInMS int64  `json:"expires_in_ms,omitzero"`
	Holder      string `json:"holder,omitzero"` // the instance that holds the key
	Detail      string `json:"detail,omitzero"`
}

// Event is an entry of the history that the server keeps of a key.
type Event struct {
	Key     string `json:"key"`
	Event   string `json:"event"`
	Lease   string `json:"lease"`
	Token   uint64 `json:"token"`
	Request string `json:"request"`
	Reason  string `json:"reason,omitzero"`
}

// Written is what the guarded register accepted.
type Written struct {
	Key      string `json:"key"`
	Token    uint64 `json:"token"`
	Instance string `json:"instance"`
}

// Fault is what was done to the service, from its beginning to when it served again.
type Fault struct {
	Name   string `json:"name"`
	FromNS int64  `json:"from_ns"`
	ToNS   int64  `json:"to_ns"`
	// Harmless tells that no lease may end later because of it.
	Harmless bool `json:"harmless,omitzero"`
}

// History is everything that is known of a run.
type History struct {
	Ops    []Op
	Events []Event   // of each key, oldest first
	Writes []Written // in the order in which they were accepted
	Faults []Fault
}

// Promise is what the service is held to beyond what all services are.
type Promise struct {
	// Slack is how late a lease may end while nothing is wrong.
	Slack time.Duration
	// FaultSlack is how much later it may end for each fault that it lived through,
	// besides the time that the fault lasted.
	FaultSlack time.Duration
	// Loses tells that acknowledged changes may be lost. Then tokens still rise, and
	// nothing else is held of who has a key.
	Loses bool
}

// done tells that the service did what it was asked.
func (o *Op) done() bool {
	return slices.Contains([]string{Acquired, Renewed, Released, Revoked, Current, Accepted}, o.Answer.Outcome)
}

// certainlyNot tells that the answer was that nothing changed, because the call was
// not carried out.
func (o *Op) certainlyNot() bool {
	return slices.Contains([]string{Unavailable, Timeout, Closed, Invalid, NotSent, "rate_limited"}, o.Answer.Outcome)
}

// unknown tells that the call may have had any effect, now or later.
func (o *Op) unknown() bool {
	return o.ReturnedNS == 0 || slices.Contains([]string{Lost, Unknown, Internal}, o.Answer.Outcome)
}

// granted tells that the client was told that it has the lease.
func (o *Op) granted() bool { return o.Verb == Acquire && o.Answer.Outcome == Acquired }

const millisecond = int64(time.Millisecond)

// leases returns what is known of each lease of the history.
func (h *History) leases() map[string]*lease {
	all := map[string]*lease{}
	at := func(id string) *lease {
		if all[id] == nil {
			all[id] = &lease{id: id}
		}
		return all[id]
	}
	// A request has one lease. Of one that was granted two, each has the calls that
	// were told of it, and those that were told of none.
	requests := map[string]map[*lease]bool{}
	give := func(l *lease, key, request string, token uint64) {
		l.key, l.request, l.token = key, request, token
		l.tokens = append(l.tokens, token)
		if requests[request] == nil {
			requests[request] = map[*lease]bool{}
		}
		requests[request][l] = true
	}
	for _, e := range h.Events {
		l := at(e.Lease)
		l.events = append(l.events, e)
		if e.Event == "acquired" {
			give(l, e.Key, e.Request, e.Token)
		}
	}
	for i := range h.Ops {
		o := &h.Ops[i]
		if o.granted() {
			give(at(o.Answer.Lease), o.Key, o.Request, o.Answer.Token)
		}
	}
	for i := range h.Ops {
		o := &h.Ops[i]
		switch {
		case o.Verb == Acquire:
			for l := range requests[o.Request] {
				// A node that loses the leader asks again for who waits: of a grant that was
				// undone meanwhile the call is not told, but of the next.
				again := o.granted() && o.WaitMS > 0 && o.Answer.Token > l.token && l.has("released") > 0
				if o.Answer.Lease == "" || o.Answer.Lease == l.id || again {
					l.acquires = append(l.acquires, o)
					l.instance = o.Instance
				}
			}
		case (o.Verb == Renew || o.Verb == Release) && all[o.Lease] != nil:
			l := at(o.Lease)
			l.uses = append(l.uses, o)
		case o.Verb == Revoke && all[o.Lease] != nil:
			l := at(o.Lease)
			l.revokes = append(l.revokes, o)
		case o.Verb == Check && all[o.Answer.Lease] != nil:
			l := at(o.Answer.Lease)
			l.checks = append(l.checks, o)
		}
	}
	return all
}

// lease is what is known of one.
type lease struct {
	id, key, request, instance string
	token                      uint64
	tokens                     []uint64 // that clients and the server's history name, more than one only by a mistake
	acquires                   []*Op    // under its request id
	uses                       []*Op    // renewals and releases that present it
	revokes                    []*Op    // revocations that name it
	checks                     []*Op    // whose answer names it
	events                     []Event  // that the server keeps of it
}

// has counts the server's events of a kind.
func (l *lease) has(event string) int {
	n := 0
	for _, e := range l.events {
		if e.Event == event {
			n++
		}
	}
	return n
}
