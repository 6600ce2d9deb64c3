package contracttest_test

import (
	"context"
	"slices"
	"strings"
	"time"

	"leased/contract"
	"leased/contract/memstore"
)

// Faults of histories and streams.

// historyMisses returns a fault: the history lacks one kind of transition.
func historyMisses(kind contract.EventKind) func() step {
	return func() step {
		return func(m *memstore.Model, now time.Time, op memstore.Op) memstore.Answer {
			a := m.Step(now, op)
			a.History.Events = slices.DeleteFunc(a.History.Events, func(ev contract.Event) bool { return ev.Kind == kind })
			return a
		}
	}
}

// historyKeepsOldest drops the newest events when there are too many.
func historyKeepsOldest() step {
	kept := map[contract.KeyID][]contract.Event{}
	limit := map[contract.KeyID]int{}
	return func(m *memstore.Model, now time.Time, op memstore.Op) memstore.Answer {
		if acquire, ok := op.(memstore.Acquire); ok {
			limit[acquire.Request.Key.ID()] = acquire.Request.Retention.HistoryPerKey
		}
		a := m.Step(now, op)
		for _, ev := range a.Events {
			if ev.Kind != contract.EventRenewed && len(kept[ev.KeyID]) < limit[ev.KeyID] {
				kept[ev.KeyID] = append(kept[ev.KeyID], ev)
			}
		}
		if history, ok := op.(memstore.History); ok && len(kept[history.Request.KeyID]) == limit[history.Request.KeyID] {
			events := slices.Clone(kept[history.Request.KeyID])
			slices.Reverse(events)
			a.History = contract.HistoryResult{Events: events}
		}
		return a
	}
}

// historyLostAtRestart shows only what happened since the last restart.
func historyLostAtRestart() step {
	lost := ""
	last := ""
	return func(m *memstore.Model, now time.Time, op memstore.Op) memstore.Answer {
		if _, ok := op.(memstore.Restart); ok {
			lost = last
		}
		a := m.Step(now, op)
		for _, ev := range a.Events {
			last = ev.ID
		}
		a.History.Events = slices.DeleteFunc(a.History.Events, func(ev contract.Event) bool { return ev.ID <= lost })
		return a
	}
}

// historyOfRefusals also records what was refused.
func historyOfRefusals() step {
	var refused []contract.Event
	return func(m *memstore.Model, now time.Time, op memstore.Op) memstore.Answer {
		a := m.Step(now, op)
		switch o := op.(type) {
		case memstore.Acquire:
			if l := a.Result.Lease; a.Result.Outcome == contract.OutcomeConflict {
				refused = append(refused, contract.Event{
					ID: "refused", At: now, Kind: contract.EventAcquired, Namespace: l.Namespace, Key: l.Key, KeyID: l.KeyID,
					LeaseID: l.ID, Token: l.Token, Owner: o.Request.Owner, Instance: o.Request.Instance,
					Principal: o.Request.Owner, RequestID: o.Request.RequestID, Previous: contract.StateActive, State: contract.StateActive,
				})
			}
		case memstore.History:
			for _, ev := range slices.Backward(refused) {
				if ev.KeyID == o.Request.KeyID && ev.Namespace == o.Request.Namespace && o.Request.Cursor == "" {
					a.History.Events = append([]contract.Event{ev}, a.History.Events...)
				}
			}
		}
		return a
	}
}

// gapNotTold goes on after the events that were lost as if nothing were missing.
func gapNotTold() step {
	return func(m *memstore.Model, now time.Time, op memstore.Op) memstore.Answer {
		a := m.Step(now, op)
		if read, ok := op.(memstore.Read); ok && a.Event != nil && a.Event.Kind == contract.EventGap {
			read.Cursor = a.Cursor
			return m.Step(now, read)
		}
		return a
	}
}

// watchMisses returns a fault: the stream lacks one kind of event.
func watchMisses(kind contract.EventKind) func() step {
	return func() step {
		return func(m *memstore.Model, now time.Time, op memstore.Op) memstore.Answer {
			a := m.Step(now, op)
			read, ok := op.(memstore.Read)
			for ok && a.Event != nil && a.Event.Kind == kind {
				read.Cursor = a.Cursor
				a = m.Step(now, read)
			}
			return a
		}
	}
}

// resumeFromNow starts a stream at the newest event, whatever cursor it came
// with.
func resumeFromNow() step {
	return func(m *memstore.Model, now time.Time, op memstore.Op) memstore.Answer {
		a := m.Step(now, op)
		if watch, ok := op.(memstore.Watch); ok && a.Err == nil {
			watch.Request.After = ""
			return m.Step(now, watch)
		}
		return a
	}
}

// watchUnfiltered streams every event to everybody.
func watchUnfiltered() step {
	return func(m *memstore.Model, now time.Time, op memstore.Op) memstore.Answer {
		if read, ok := op.(memstore.Read); ok {
			read.Request = contract.WatchRequest{Namespace: read.Request.Namespace}
			op = read
		}
		return m.Step(now, op)
	}
}

// watchAnyKind does not look at the kinds that are asked for.
func watchAnyKind() step {
	return func(m *memstore.Model, now time.Time, op memstore.Op) memstore.Answer {
		if read, ok := op.(memstore.Read); ok {
			read.Request.Kinds = 0
			op = read
		}
		return m.Step(now, op)
	}
}

// watchFromStart shows a stream without a cursor all that there ever was.
func watchFromStart() step {
	return func(m *memstore.Model, now time.Time, op memstore.Op) memstore.Answer {
		a := m.Step(now, op)
		if watch, ok := op.(memstore.Watch); ok && watch.Request.After == "" {
			a.Cursor = 0
		}
		return a
	}
}

// resumeRepeats shows the event again after which a stream resumes.
func resumeRepeats() step {
	return func(m *memstore.Model, now time.Time, op memstore.Op) memstore.Answer {
		a := m.Step(now, op)
		if watch, ok := op.(memstore.Watch); ok && watch.Request.After != "" && a.Cursor > 0 {
			a.Cursor--
		}
		return a
	}
}

// streamIDs gives events ids in a stream that are not those of the history.
func streamIDs() step {
	const own = "s"
	return func(m *memstore.Model, now time.Time, op memstore.Op) memstore.Answer {
		if watch, ok := op.(memstore.Watch); ok {
			watch.Request.After = strings.TrimPrefix(watch.Request.After, own)
			op = watch
		}
		a := m.Step(now, op)
		if a.Event != nil {
			a.Event.ID = own + a.Event.ID
		}
		return a
	}
}

// expiryRecordedEarly writes down an expiry as of before it.
func expiryRecordedEarly() step {
	return func(m *memstore.Model, now time.Time, op memstore.Op) memstore.Answer {
		a := m.Step(now, op)
		eachEvent(&a, func(ev *contract.Event) {
			if ev.Kind == contract.EventExpired {
				ev.At = ev.At.Add(-time.Second)
			}
		})
		return a
	}
}

// historyListsRenewals keeps renewals one by one.
func historyListsRenewals() step {
	renewed := map[contract.KeyID][]contract.Event{}
	return func(m *memstore.Model, now time.Time, op memstore.Op) memstore.Answer {
		a := m.Step(now, op)
		for _, ev := range a.Events {
			if ev.Kind == contract.EventRenewed {
				renewed[ev.KeyID] = append(renewed[ev.KeyID], ev)
			}
		}
		if history, ok := op.(memstore.History); ok && history.Request.Cursor == "" {
			a.History.Events = append(a.History.Events, renewed[history.Request.KeyID]...)
			slices.SortFunc(a.History.Events, func(x, y contract.Event) int { return strings.Compare(y.ID, x.ID) })
		}
		return a
	}
}

// historyByPosition counts how many events were shown and goes on after as many:
// a new one in between makes it repeat one.
func historyByPosition() step {
	shown := map[string]int{}
	return func(m *memstore.Model, now time.Time, op memstore.Op) memstore.Answer {
		history, ok := op.(memstore.History)
		skip := shown[history.Request.Cursor]
		if !ok || history.Request.Cursor != "" && skip == 0 {
			return m.Step(now, op)
		}
		limit := history.Request.Limit
		if limit == 0 {
			limit = contract.DefaultPage
		}
		history.Request.Cursor, history.Request.Limit = "", contract.MaxPage
		all := m.Step(now, history).History.Events
		rest := all[min(skip, len(all)):]
		if len(rest) <= limit {
			return memstore.Answer{History: contract.HistoryResult{Events: rest}}
		}
		next := "position" + time.Duration(skip+limit).String()
		shown[next] = skip + limit
		return memstore.Answer{History: contract.HistoryResult{Events: rest[:limit], NextCursor: next}}
	}
}

// handoverBackwards tells of a grant before the end that made it possible.
func handoverBackwards() step {
	return func(m *memstore.Model, now time.Time, op memstore.Op) memstore.Answer {
		a := m.Step(now, op)
		events := a.History.Events
		for i := 0; i+1 < len(events); i++ {
			if events[i].Kind == contract.EventAcquired && events[i].At.Equal(events[i+1].At) {
				events[i], events[i+1] = events[i+1], events[i]
				i++
			}
		}
		return a
	}
}

// causeLost does not keep with which call something was done.
func causeLost() step {
	return func(m *memstore.Model, now time.Time, op memstore.Op) memstore.Answer {
		a := m.Step(now, op)
		eachEvent(&a, func(ev *contract.Event) {
			if ev.Kind != contract.EventAcquired {
				ev.TraceID = ""
			}
		})
		return a
	}
}

// cursored gives the streams of a store a wrong Cursor.
type cursored struct {
	contract.Store
	wrong func(*cursorStream) string
}

// cursorStream notes what was shown.
type cursorStream struct {
	contract.Stream
	began, last string // cursor at the beginning, id of the last event
	newest      func() string
}

func (s *cursored) Watch(ctx context.Context, r *contract.WatchRequest) (contract.Stream, error) {
	stream, err := s.Store.Watch(ctx, r)
	if err != nil {
		return nil, err
	}
	c := &cursorStream{Stream: stream, began: stream.Cursor(), last: r.After}
	c.newest = func() string {
		now, err := s.Store.Watch(context.Background(), &contract.WatchRequest{Namespace: r.Namespace})
		if err != nil {
			return ""
		}
		defer now.Close()
		return now.Cursor()
	}
	return wrongCursor{c, s.wrong}, nil
}

// Next implements contract.Stream.
func (c *cursorStream) Next(ctx context.Context) (contract.Event, error) {
	ev, err := c.Stream.Next(ctx)
	if err == nil {
		c.last = ev.ID
	}
	return ev, err
}

type wrongCursor struct {
	*cursorStream
	wrong func(*cursorStream) string
}

func (w wrongCursor) Cursor() string { return w.wrong(w.cursorStream) }

// cursorOfEvents is unknown before the first event.
func cursorOfEvents(c *cursorStream) string { return c.last }

// cursorStays does not move over events of others.
func cursorStays(c *cursorStream) string {
	if c.last == "" {
		return c.began
	}
	return c.last
}

// cursorRunsAhead is that of the newest event, read or not.
func cursorRunsAhead(c *cursorStream) string { return c.newest() }
