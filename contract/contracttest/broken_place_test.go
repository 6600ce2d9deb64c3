package contracttest_test

import (
	"time"

	"leased/contract"
	"leased/contract/memstore"
)

// Faults of places: who has one, who counts, who keeps it.

// placeLost returns a fault: who comes back after the operation that ended its
// wait finds itself at the end of the queue.
func placeLost(by func(op memstore.Op) bool) func() step {
	return func() step {
		var q line
		lost := map[contract.Scope]string{} // by what its request id is then longer
		return func(m *memstore.Model, now time.Time, op memstore.Op) memstore.Answer {
			leave, one := op.(memstore.Leave)
			for _, w := range q {
				if by(op) && (!one || w.Call == leave.Call) {
					lost[w.Request.Scope()] += mark
				}
			}
			asked := op
			if acquire, ok := op.(memstore.Acquire); ok {
				acquire.Request.RequestID += lost[acquire.Request.Scope()]
				op = acquire
			}
			a := m.Step(now, op)
			q.follow(asked, a)
			unmark(&a)
			return a
		}
	}
}

func leaves(op memstore.Op) bool {
	_, ok := op.(memstore.Leave)
	return ok
}

func restarts(op memstore.Op) bool {
	_, ok := op.(memstore.Restart)
	return ok
}

// copyTakesPlaceAway makes a waiter away as soon as one of its calls has left.
func copyTakesPlaceAway() step {
	var q line
	return func(m *memstore.Model, now time.Time, op memstore.Op) memstore.Answer {
		if leave, ok := op.(memstore.Leave); ok {
			var scope contract.Scope
			for _, w := range q {
				if w.Call == leave.Call {
					scope = w.Request.Scope()
				}
			}
			for _, w := range q {
				if w.Request.Scope() == scope && w.Call != leave.Call {
					m.Step(now, memstore.Leave{Call: w.Call})
				}
			}
		}
		a := m.Step(now, op)
		q.follow(op, a)
		return a
	}
}

// copiesCounted counts calls where it should count waiters.
func copiesCounted() step {
	var q line
	return func(m *memstore.Model, now time.Time, op memstore.Op) memstore.Answer {
		a := m.Step(now, op)
		q.follow(op, a)
		eachResult(&a, func(res *contract.Result) {
			if res.Outcome == contract.OutcomeConflict && res.Lease != nil {
				res.Queue.Length = len(q.of(res.Lease.KeyID))
			}
		})
		if a.Key.Outcome == contract.OutcomeFound {
			a.Key.Queue.Length = len(q.of(a.Key.KeyID))
		}
		return a
	}
}

// positionHidden does not tell a waiter that looks where it stands.
func positionHidden() step {
	return func(m *memstore.Model, now time.Time, op memstore.Op) memstore.Answer {
		a := m.Step(now, op)
		eachResult(&a, func(res *contract.Result) { res.Queue.Position = 0 })
		return a
	}
}

// wakesEverybody ends all waits when any lease ends.
func wakesEverybody() step {
	var q line
	return func(m *memstore.Model, now time.Time, op memstore.Op) memstore.Answer {
		a := m.Step(now, op)
		q.follow(op, a)
		if _, ok := op.(memstore.Release); !ok {
			return a
		}
		for _, w := range append(line(nil), q...) {
			left := m.Step(now, memstore.Leave{Call: w.Call})
			q.remove(w.Call)
			a.Wakes = append(a.Wakes, memstore.Wake{Call: w.Call, Result: left.Result})
		}
		return a
	}
}

// queueCountsAway counts places, not those who are there.
func queueCountsAway() step {
	places := map[contract.KeyID]map[contract.Scope]bool{}
	return func(m *memstore.Model, now time.Time, op memstore.Op) memstore.Answer {
		a := m.Step(now, op)
		if acquire, ok := op.(memstore.Acquire); ok {
			id := acquire.Request.Key.ID()
			if places[id] == nil {
				places[id] = map[contract.Scope]bool{}
			}
			if a.Parked {
				places[id][acquire.Request.Scope()] = true
			}
		}
		eachResult(&a, func(res *contract.Result) {
			if res.Outcome == contract.OutcomeConflict {
				res.Queue.Length = len(places[res.Lease.KeyID])
			}
			if res.Outcome == contract.OutcomeAcquired {
				for scope := range places[res.Lease.KeyID] {
					r := contract.AcquireRequest{
						Namespace: res.Lease.Namespace, Key: res.Lease.Key, Owner: res.Lease.Owner, RequestID: res.Lease.RequestID,
					}
					if scope == r.Scope() {
						delete(places[res.Lease.KeyID], scope)
					}
				}
			}
		})
		if a.Key.Outcome == contract.OutcomeFound {
			a.Key.Queue.Length = len(places[a.Key.KeyID])
		}
		return a
	}
}

// waitersUnlimited takes any number of waiters for a key.
func waitersUnlimited() step {
	return func(m *memstore.Model, now time.Time, op memstore.Op) memstore.Answer {
		if acquire, ok := op.(memstore.Acquire); ok {
			acquire.Request.Limits.WaitersPerKey = 0
			op = acquire
		}
		return m.Step(now, op)
	}
}

// waitersNeverFewer goes on with the largest number of waiters that was allowed.
func waitersNeverFewer() step {
	largest := 0
	return func(m *memstore.Model, now time.Time, op memstore.Op) memstore.Answer {
		if acquire, ok := op.(memstore.Acquire); ok {
			largest = max(largest, acquire.Request.Limits.WaitersPerKey)
			acquire.Request.Limits.WaitersPerKey = largest
			op = acquire
		}
		return m.Step(now, op)
	}
}

// roomOfAll forgets everybody who is away when the second place of two is asked
// for.
func roomOfAll() step {
	return func(m *memstore.Model, now time.Time, op memstore.Op) memstore.Answer {
		if acquire, ok := op.(memstore.Acquire); ok && acquire.Request.Limits.WaitersPerKey == 2 {
			acquire.Request.Limits.WaitersPerKey = 1
			op = acquire
		}
		return m.Step(now, op)
	}
}

// onlyFirstCopyServed gives a grant to one of the calls that share a place.
func onlyFirstCopyServed() step {
	return func(m *memstore.Model, now time.Time, op memstore.Op) memstore.Answer {
		a := m.Step(now, op)
		for i := range a.Wakes {
			if res := &a.Wakes[i].Result; res.Replayed {
				*res = contract.Result{Outcome: contract.OutcomeConflict, Lease: res.Lease}
			}
		}
		return a
	}
}
