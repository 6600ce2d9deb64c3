package contracttest_test

import (
	"time"

	"leased/contract"
	"leased/contract/memstore"
)

// Faults of what survives a restart.

// leasesLost returns a fault: the n-th restart begins with an empty store,
// except for its tokens.
func leasesLost(n int) func() step {
	return func() step {
		restarts := 0
		last := map[string]contract.Token{}
		return func(m *memstore.Model, now time.Time, op memstore.Op) memstore.Answer {
			a := m.Step(now, op)
			for _, ev := range a.Events {
				last[ev.Namespace] = max(last[ev.Namespace], ev.Token)
			}
			if _, ok := op.(memstore.Restart); !ok {
				return a
			}
			if restarts++; restarts == n {
				*m = *memstore.NewModel(ring)
				for namespace, token := range last {
					m.Step(now, memstore.RaiseFloor{Request: contract.RaiseFloorRequest{Namespace: namespace, Above: token}})
				}
			}
			return a
		}
	}
}

// restartTakesAnHour counts a restart as an hour of every lease's life.
func restartTakesAnHour() step {
	return func(m *memstore.Model, now time.Time, op memstore.Op) memstore.Answer {
		a := m.Step(now, op)
		if _, ok := op.(memstore.Restart); ok {
			also(&a, m.Step(now.Add(time.Hour), memstore.Tick{}))
		}
		return a
	}
}

// restartStopsTheClock lets no time pass after a restart: no lease ends.
func restartStopsTheClock() step {
	var stopped time.Time
	return func(m *memstore.Model, now time.Time, op memstore.Op) memstore.Answer {
		if _, ok := op.(memstore.Restart); ok && stopped.IsZero() {
			stopped = now
		}
		if !stopped.IsZero() {
			now = stopped
		}
		return m.Step(now, op)
	}
}

// countsDoubled counts what it finds when it starts on top of what it counted.
func countsDoubled() step {
	starts := int64(1)
	return func(m *memstore.Model, now time.Time, op memstore.Op) memstore.Answer {
		a := m.Step(now, op)
		if _, ok := op.(memstore.Restart); ok {
			starts++
		}
		a.Health.ActiveLeases *= starts
		return a
	}
}

// cursorsForgotten knows only the cursors that it gave out since it started.
func cursorsForgotten() step {
	given := map[string]bool{"": true}
	return func(m *memstore.Model, now time.Time, op memstore.Op) memstore.Answer {
		invalid := memstore.Answer{Err: contract.Invalid("cursor", "is not known")}
		switch o := op.(type) {
		case memstore.Restart:
			clear(given)
			given[""] = true
		case memstore.List:
			if !given[o.Request.Cursor] {
				return invalid
			}
		case memstore.History:
			if !given[o.Request.Cursor] {
				return invalid
			}
		}
		a := m.Step(now, op)
		given[a.List.NextCursor], given[a.History.NextCursor] = true, true
		return a
	}
}
