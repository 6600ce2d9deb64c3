package contracttest_test

import (
	"maps"
	"math/rand/v2"
	"path"
	"slices"
	"time"

	"leased/contract"
	"leased/contract/memstore"
)

// Faults of what reads show.

// listShowsEnded lists leases whether they have ended or not.
func listShowsEnded() step {
	return func(m *memstore.Model, now time.Time, op memstore.Op) memstore.Answer {
		a := m.Step(now, op)
		list, ok := op.(memstore.List)
		if !ok || list.Request.State != 0 || list.Request.Cursor != "" {
			return a
		}
		for _, state := range []contract.State{contract.StateExpired, contract.StateReleased, contract.StateRevoked} {
			list.Request.State = state
			a.List.Leases = append(a.List.Leases, m.Step(now, list).List.Leases...)
		}
		return a
	}
}

// listRepeatsALease begins a page with the last lease of the page before.
func listRepeatsALease() step {
	last := map[string]contract.Lease{}
	return func(m *memstore.Model, now time.Time, op memstore.Op) memstore.Answer {
		a := m.Step(now, op)
		if list, ok := op.(memstore.List); ok {
			if l, ok := last[list.Request.Cursor]; ok && len(a.List.Leases) > 0 {
				a.List.Leases = append([]contract.Lease{l}, a.List.Leases...)
			}
			if a.List.NextCursor != "" {
				last[a.List.NextCursor] = a.List.Leases[len(a.List.Leases)-1]
			}
		}
		return a
	}
}

// listMissesALease begins a page one lease too late.
func listMissesALease() step {
	return func(m *memstore.Model, now time.Time, op memstore.Op) memstore.Answer {
		a := m.Step(now, op)
		if list, ok := op.(memstore.List); ok && list.Request.Cursor != "" && len(a.List.Leases) > 1 {
			a.List.Leases = a.List.Leases[1:]
		}
		return a
	}
}

// listByPosition counts how many leases were shown and goes on after as many: a
// lease that ends in between makes it miss another.
func listByPosition() step {
	shown := map[string]int{}
	return func(m *memstore.Model, now time.Time, op memstore.Op) memstore.Answer {
		list, ok := op.(memstore.List)
		if !ok || list.Request.Cursor != "" && shown[list.Request.Cursor] == 0 {
			return m.Step(now, op)
		}
		skip, limit := shown[list.Request.Cursor], list.Request.Limit
		if limit == 0 {
			limit = contract.DefaultPage
		}
		list.Request.Cursor, list.Request.Limit = "", contract.MaxPage
		a := m.Step(now, list)
		if a.List.NextCursor != "" {
			panic("more leases than this fault can hold")
		}
		rest := a.List.Leases[min(skip, len(a.List.Leases)):]
		if len(rest) <= limit {
			return memstore.Answer{List: contract.ListResult{Leases: rest}}
		}
		next := "position" + time.Duration(skip+limit).String()
		shown[next] = skip + limit
		return memstore.Answer{List: contract.ListResult{Leases: rest[:limit], NextCursor: next}}
	}
}

// filterAsPattern takes the characters of a filter for a pattern.
func filterAsPattern() step {
	like := func(pattern, text string) bool {
		if pattern == "" {
			return true
		}
		ok, err := path.Match(pattern, text)
		return ok || err != nil && pattern == text
	}
	return func(m *memstore.Model, now time.Time, op memstore.Op) memstore.Answer {
		list, ok := op.(memstore.List)
		if !ok {
			return m.Step(now, op)
		}
		want := list.Request
		r := &list.Request
		r.Owner, r.Instance, r.Tenant, r.Program, r.Actor, r.JobID = "", "", "", "", "", ""
		a := m.Step(now, list)
		a.List.Leases = slices.DeleteFunc(a.List.Leases, func(l contract.Lease) bool {
			return !like(want.Owner, l.Owner) || !like(want.Instance, l.Instance) || !like(want.Tenant, l.Key.Tenant) ||
				!like(want.Program, l.Key.Program) || !like(want.Actor, l.Key.Actor) || !like(want.JobID, l.JobID)
		})
		return a
	}
}

// filterIgnored returns a fault: listings do not look at the filter that drop
// takes out.
func filterIgnored(drop func(*contract.ListRequest)) func() step {
	return func() step {
		return func(m *memstore.Model, now time.Time, op memstore.Op) memstore.Answer {
			if list, ok := op.(memstore.List); ok {
				drop(&list.Request)
				op = list
			}
			return m.Step(now, op)
		}
	}
}

// endedForgotten does not find a lease once it has ended.
func endedForgotten() step {
	return func(m *memstore.Model, now time.Time, op memstore.Op) memstore.Answer {
		a := m.Step(now, op)
		if _, ok := op.(memstore.Get); ok && a.Result.Lease != nil && a.Result.Lease.State.Terminal() {
			a.Result = contract.Result{Outcome: contract.OutcomeNotFound}
		}
		return a
	}
}

// readsBehind shows keys as they were one operation ago, as a replica does that
// lags.
func readsBehind() step {
	var before *memstore.Model
	return func(m *memstore.Model, now time.Time, op memstore.Op) memstore.Answer {
		switch op.(type) {
		case memstore.Get, memstore.GetKey, memstore.Check, memstore.List, memstore.History, memstore.Health:
			if before != nil {
				return before.Clone().Step(now, op)
			}
			return m.Step(now, op)
		}
		before = m.Clone()
		return m.Step(now, op)
	}
}

// aliasOfAnswers hands out the same metadata each time.
func aliasOfAnswers() step {
	shared := map[contract.LeaseID]map[string]string{}
	return func(m *memstore.Model, now time.Time, op memstore.Op) memstore.Answer {
		a := m.Step(now, op)
		eachLease(&a, func(l *contract.Lease) {
			if shared[l.ID] == nil {
				shared[l.ID] = l.Metadata
			}
			l.Metadata = shared[l.ID]
		})
		return a
	}
}

// aliasOfRequest keeps the caller's own map of metadata. An answer copies it,
// and shows what the caller wrote there since.
func aliasOfRequest() step {
	kept := map[contract.Scope]map[string]string{}
	owned := map[contract.LeaseID]map[string]string{}
	return func(m *memstore.Model, now time.Time, op memstore.Op) memstore.Answer {
		a := m.Step(now, op)
		if acquire, ok := op.(memstore.Acquire); ok {
			scope := acquire.Request.Scope()
			if kept[scope] == nil {
				kept[scope] = acquire.Request.Metadata
			}
			if a.Result.Outcome == contract.OutcomeAcquired {
				owned[a.Result.Lease.ID] = kept[scope]
			}
		}
		eachLease(&a, func(l *contract.Lease) {
			if source := owned[l.ID]; source != nil {
				l.Metadata = maps.Clone(source)
			}
		})
		return a
	}
}

// readsOfTwoReplicas takes half of the reads from a replica that is some changes
// behind. Which ones, chance says: readers in step with each other would have
// every other one from the same.
func readsOfTwoReplicas() step {
	var replica *memstore.Model
	chance := rand.New(rand.NewPCG(1, 2))
	changes := 0
	return func(m *memstore.Model, now time.Time, op memstore.Op) memstore.Answer {
		switch op.(type) {
		case memstore.Get, memstore.GetKey, memstore.Check, memstore.List, memstore.History:
			if replica != nil && chance.IntN(2) == 0 {
				return replica.Clone().Step(now, op)
			}
		case memstore.Acquire, memstore.Renew, memstore.Release, memstore.Revoke:
			if changes++; changes%10 == 1 {
				replica = m.Clone()
			}
		}
		return m.Step(now, op)
	}
}

// unknownIsHolder finds the key's holder where the lease id is not known.
func unknownIsHolder() step {
	return func(m *memstore.Model, now time.Time, op memstore.Op) memstore.Answer {
		a := m.Step(now, op)
		if get, ok := op.(memstore.Get); ok && a.Result.Outcome == contract.OutcomeNotFound {
			if l := holder(m, now, get.Request.Namespace, get.Request.LeaseID.KeyID()); l != nil {
				a.Result = contract.Result{Outcome: contract.OutcomeFound, Lease: l}
			}
		}
		return a
	}
}

// lastHiddenWhileHeld shows what lease ended last only when nobody holds the
// key.
func lastHiddenWhileHeld() step {
	return func(m *memstore.Model, now time.Time, op memstore.Op) memstore.Answer {
		a := m.Step(now, op)
		if a.Key.Lease != nil {
			a.Key.Last = nil
		}
		return a
	}
}

// readMakesKnown knows a key once it was asked for it.
func readMakesKnown() step {
	asked := map[contract.KeyID]bool{}
	return func(m *memstore.Model, now time.Time, op memstore.Op) memstore.Answer {
		a := m.Step(now, op)
		if get, ok := op.(memstore.GetKey); ok && a.Key.Outcome == contract.OutcomeNotFound {
			asked[get.Request.KeyID] = true
		}
		if check, ok := op.(memstore.Check); ok && a.Result.Outcome == contract.OutcomeNotFound && asked[check.Request.KeyID] {
			a.Result.Outcome = contract.OutcomeStaleToken
		}
		return a
	}
}

// healthCountsEver counts a lease for ever.
func healthCountsEver() step {
	n := map[string]int64{}
	return func(m *memstore.Model, now time.Time, op memstore.Op) memstore.Answer {
		a := m.Step(now, op)
		for _, ev := range a.Events {
			if ev.Kind == contract.EventAcquired {
				n[ev.Namespace]++
			}
		}
		if health, ok := op.(memstore.Health); ok {
			a.Health.ActiveLeases = n[health.Request.Namespace]
		}
		return a
	}
}
