package valkey

import (
	"cmp"
	"context"
	"strings"
	"time"

	"leased/contract"
)

// A cursor begins with what tells which method made it.
const (
	historyCursor = "h"
	listCursor    = "l"
	endedCursor   = "e"
)

func pageSize(limit int) int {
	if limit == 0 {
		return contract.DefaultPage
	}
	return limit
}

// Check implements contract.Store.
func (s *Store) Check(ctx context.Context, r *contract.CheckRequest) (contract.Result, error) {
	ctx, room, end, err := s.begin(ctx, r.Namespace, r.Validate)
	if err != nil {
		return contract.Result{}, err
	}
	defer end()
	a, err := s.exec(ctx, room, s.scripts.check, r.KeyID.String())
	if err != nil {
		return contract.Result{}, err
	}
	l, err := s.leaseOf(room, r.KeyID, a.text(0), a.now)
	switch {
	case err != nil:
		return contract.Result{}, err
	case l == nil:
		return contract.Result{Outcome: contract.OutcomeNotFound}, nil
	case l.Token != r.Token:
		return contract.Result{Outcome: contract.OutcomeStaleToken}, nil
	case l.State.Terminal():
		return contract.Result{Outcome: contract.EndedOutcome(l.State), Lease: l}, nil
	}
	return contract.Result{Outcome: contract.OutcomeCurrent, Lease: l}, nil
}

// Get implements contract.Store.
func (s *Store) Get(ctx context.Context, r *contract.GetRequest) (contract.Result, error) {
	ctx, room, end, err := s.begin(ctx, r.Namespace, r.Validate)
	if err != nil {
		return contract.Result{}, err
	}
	defer end()
	a, err := s.exec(ctx, room, s.scripts.get, r.LeaseID.KeyID().String(), string(r.LeaseID[16:]))
	if err != nil {
		return contract.Result{}, err
	}
	l, err := s.leaseOf(room, r.LeaseID.KeyID(), a.text(0), a.now)
	if err != nil {
		return contract.Result{}, err
	}
	if l == nil {
		return contract.Result{Outcome: contract.OutcomeNotFound}, nil
	}
	return contract.Result{Outcome: contract.OutcomeFound, Lease: l}, nil
}

// GetKey implements contract.Store.
func (s *Store) GetKey(ctx context.Context, r *contract.GetKeyRequest) (contract.KeyResult, error) {
	ctx, room, end, err := s.begin(ctx, r.Namespace, r.Validate)
	if err != nil {
		return contract.KeyResult{}, err
	}
	defer end()
	a, err := s.exec(ctx, room, s.scripts.getKey, r.KeyID.String())
	if err != nil {
		return contract.KeyResult{}, err
	}
	out := contract.KeyResult{Outcome: contract.OutcomeNotFound, KeyID: r.KeyID}
	if out.Lease, err = s.leaseOf(room, r.KeyID, a.text(0), a.now); err != nil {
		return contract.KeyResult{}, err
	}
	if out.Last, err = s.leaseOf(room, r.KeyID, a.text(1), a.now); err != nil {
		return contract.KeyResult{}, err
	}
	for _, l := range []*contract.Lease{out.Last, out.Lease} {
		if l != nil {
			out.Outcome, out.Key, out.Queue.Length = contract.OutcomeFound, l.Key, int(a.number(2))
		}
	}
	return out, nil
}

// History implements contract.Store.
func (s *Store) History(ctx context.Context, r *contract.HistoryRequest) (contract.HistoryResult, error) {
	ctx, room, end, err := s.begin(ctx, r.Namespace, r.Validate)
	if err != nil {
		return contract.HistoryResult{}, err
	}
	defer end()
	var before place
	if r.Cursor != "" {
		text, ok := strings.CutPrefix(r.Cursor, historyCursor)
		if before, ok = cursorPlace(text, ok); !ok {
			return contract.HistoryResult{}, contract.Invalid("cursor", "is not one that history gave")
		}
	}
	limit := pageSize(r.Limit)
	// A lease has up to two events, and the first may be on the page before.
	a, err := s.exec(ctx, room, s.scripts.history, r.KeyID.String(), num(before.epoch), num(before.n), num(limit/2+2))
	if err != nil {
		return contract.HistoryResult{}, err
	}
	oldest := a.now - a.number(0)
	seen, most := int(a.number(2)), int(a.number(1))
	var out contract.HistoryResult
	for i := 3; i < len(a.rest); i++ {
		v, err := parseRecord(room.namespace, a.text(i), false)
		if err != nil {
			return contract.HistoryResult{}, contract.Errorf(contract.CodeInternal, err, "a stored record is corrupt")
		}
		for _, ev := range v.events() {
			at, _ := parsePlace(ev.ID) // it was made from a place
			seen++
			switch {
			case seen > most || ev.At.Before(instant(oldest)) || ev.At.Equal(instant(oldest)):
				return out, nil
			case before != (place{}) && !at.less(before):
			case len(out.Events) == limit:
				out.NextCursor = historyCursor + out.Events[limit-1].ID
				return out, nil
			default:
				out.Events = append(out.Events, ev)
			}
		}
	}
	return out, nil
}

func cursorPlace(text string, ok bool) (place, bool) {
	if !ok {
		return place{}, false
	}
	p, ok := parsePlace(text)
	return p, ok && p != place{}
}

// events returns those of the lease that are in a history, newest first.
func (v *stored) events() []contract.Event {
	if v.lease.State == contract.StateActive {
		return []contract.Event{v.acquiredEvent()}
	}
	return []contract.Event{v.endedEvent(), v.acquiredEvent()}
}

// Health implements contract.Store.
func (s *Store) Health(ctx context.Context, r *contract.HealthRequest) (contract.Health, error) {
	h := contract.Health{Guarantees: s.guarantees()}
	ctx, room, end, err := s.begin(ctx, r.Namespace, r.Validate)
	switch code := contract.CodeOf(err); {
	case code == contract.CodeTimeout:
		h.Detail = "the deadline passed before the server was asked"
		return h, nil
	case err != nil:
		return contract.Health{}, err
	}
	defer end()
	a, err := s.exec(ctx, room, s.scripts.health)
	if err != nil {
		h.Detail = detailOf(err)
		return h, nil
	}
	st := s.link.state.Load()
	h.Ready, h.ActiveLeases, h.Waiters = true, a.number(0), a.number(1)
	if why := cmp.Or(st.forbid, st.refuse); why != "" {
		h.Ready, h.Detail = false, why
	} else if st.persistence != "" {
		h.Detail = "persistence: " + st.persistence
	}
	h.Guarantees = s.guarantees()
	return h, nil
}

func detailOf(err error) string {
	if e, ok := err.(*contract.Error); ok { //nolint:errorlint // exec wraps nothing
		return e.Detail
	}
	return "the store cannot serve"
}

func (s *Store) guarantees() contract.Guarantees { return Guarantees() }

// Guarantees returns what this backend promises on a server that persists with
// appendonly yes and appendfsync always; what it promises with less is in the
// texts.
func Guarantees() contract.Guarantees {
	return contract.Guarantees{
		ProcessCrash: "With appendonly yes and appendfsync always nothing that was acknowledged is lost when the server process dies; with everysec up to the last second, with snapshots what came after the last one, and without persistence everything. Tokens rise all the same; those above the clock, where a floor was raised beyond it, as long as a gateway lives that saw them.",
		MachineCrash: "As a process crash, as long as the disk keeps what it confirmed.",
		FailOver:     "Replication is asynchronous: a fail-over can lose acknowledged grants, and then two may hold a key until the first lease ends. Replica acknowledgement undoes a grant that too few replicas confirmed and makes that rare, not impossible. Tokens rise all the same, so a fence refuses the older holder, if the new primary's clock is not behind by more than the fail-over took; gateways raise the floor to what they saw as soon as they notice.",
		Partition:    "A primary that was cut off grants until its side notices (min-replicas-to-write bounds that); what it granted is lost when the partition heals.",
		ClockStep:    "The server's wall clock decides. A step forward ends leases early by the step, a step back lets them end late; tokens rise over both.",
		Restore:      "Leases and history are those of the backup. Tokens are taken from the clock and stay above those of the backup; raise the floor if the clock is not to be trusted.",
		Granularity:  time.Millisecond,
		MinTTL:       time.Millisecond,
		Slack:        250 * time.Millisecond,
		Fairness:     "First come first served per key, over all gateways.",
		QuotaExact:   true,
	}
}
