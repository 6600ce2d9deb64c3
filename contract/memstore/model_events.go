package memstore

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"leased/contract"
)

// commit records that l changed: in the key's history, unless it was renewed,
// and in the namespace's stream.
func (m *Model) commit(k *keyState, l *contract.Lease, kind contract.EventKind, previous contract.State, c cause) {
	m.seq++
	ev := contract.Event{
		ID: eventID(m.seq), At: m.now, Kind: kind,
		Namespace: l.Namespace, Key: l.Key, KeyID: l.KeyID, LeaseID: l.ID, Token: l.Token,
		Owner: l.Owner, Instance: l.Instance, JobID: l.JobID,
		Principal: c.principal, RequestID: c.requestID, TraceID: c.traceID, Reason: c.reason,
		Previous: previous, State: l.State,
	}
	if kind == contract.EventExpired {
		ev.Late = m.now.Sub(l.EndedAt)
	}
	m.events = append(m.events, ev)
	if kind != contract.EventRenewed {
		k.history = append(k.history, ev)
	}
	if extra := len(k.history) - k.keep.HistoryPerKey; extra > 0 {
		k.history = slices.Delete(k.history, 0, extra)
	}
	s := m.space(l.Namespace)
	s.stream = append(s.stream, ev)
	if len(s.stream) > m.ring {
		s.lost, _ = parseEventID(s.stream[0].ID)
		s.stream = slices.Delete(s.stream, 0, 1)
	}
}

func (op History) apply(m *Model) Answer {
	r := &op.Request
	before := m.seq + 1
	if r.Cursor != "" {
		var ok bool
		if before, ok = parseCursor(historyCursor, r.Cursor, parseEventID); !ok || before == 0 || before > m.seq {
			return Answer{Err: contract.Invalid("cursor", "is not one that history gave")}
		}
	}
	var res contract.HistoryResult
	k := m.keys[keyRef{r.Namespace, r.KeyID}]
	if k == nil {
		return Answer{}
	}
	for _, ev := range slices.Backward(k.history) {
		if seq, _ := parseEventID(ev.ID); seq >= before {
			continue
		}
		if len(res.Events) == pageSize(r.Limit) {
			res.NextCursor = historyCursor + res.Events[len(res.Events)-1].ID
			break
		}
		res.Events = append(res.Events, ev)
	}
	return Answer{History: res}
}

func (op Watch) apply(m *Model) Answer {
	if op.Request.After == "" {
		return Answer{Cursor: m.seq}
	}
	seq, ok := parseEventID(op.Request.After)
	if !ok || seq > m.seq { // 0 is where a stream of an empty store begins
		return Answer{Err: contract.Invalid("after", "is not the id of an event")}
	}
	return Answer{Cursor: seq}
}

func (op Read) apply(m *Model) Answer {
	s := m.spaces[op.Request.Namespace]
	if s == nil {
		return Answer{Cursor: op.Cursor}
	}
	if s.lost > op.Cursor {
		gap := contract.Event{
			ID: eventID(s.lost), At: m.now, Kind: contract.EventGap, Namespace: op.Request.Namespace,
		}
		return Answer{Cursor: s.lost, Event: &gap}
	}
	from, seen := slices.BinarySearchFunc(s.stream, eventID(op.Cursor), func(ev contract.Event, id string) int {
		return strings.Compare(ev.ID, id)
	})
	if seen {
		from++
	}
	cursor := op.Cursor
	for i := range s.stream[from:] {
		ev := s.stream[from+i]
		cursor, _ = parseEventID(ev.ID)
		if op.Request.Selects(&ev) {
			return Answer{Cursor: cursor, Event: &ev}
		}
	}
	return Answer{Cursor: cursor}
}

// eventID has a fixed width, so that ids sort as text like the events they name.
func eventID(seq uint64) string { return fmt.Sprintf("%016x", seq) }

// parseEventID is the strict inverse of eventID.
func parseEventID(id string) (uint64, bool) {
	seq, err := strconv.ParseUint(id, 16, 64)
	return seq, err == nil && eventID(seq) == id
}
