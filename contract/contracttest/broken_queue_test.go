package contracttest_test

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"leased/contract"
	"leased/contract/memstore"
)

// Faults of the queue. They put waiters elsewhere by taking them out of the
// right queue for the length of a step.

// An instant of zero lets no time pass: what is to happen before a step must not
// let the step's own time pass first.

// line is the calls that wait, in the order in which they came.
type line []memstore.Acquire

// follow keeps the line up to date with a step.
func (q *line) follow(op memstore.Op, a memstore.Answer) {
	switch o := op.(type) {
	case memstore.Acquire:
		if a.Parked {
			*q = append(*q, o)
		}
	case memstore.Leave:
		q.remove(o.Call)
	case memstore.Restart:
		*q = nil
	}
	for _, w := range a.Wakes {
		q.remove(w.Call)
	}
}

// of returns those who wait for a key.
func (q *line) of(key contract.KeyID) line {
	var waiting line
	for _, w := range *q {
		if w.Request.Key.ID() == key {
			waiting = append(waiting, w)
		}
	}
	return waiting
}

func (q *line) remove(call memstore.CallID) {
	*q = slices.DeleteFunc(*q, func(w memstore.Acquire) bool { return w.Call == call })
}

// frees reports whether an operation can free a key. Time passes only in ticks.
func frees(op memstore.Op) bool {
	switch op.(type) {
	case memstore.Release, memstore.Revoke, memstore.Undo, memstore.Tick:
		return true
	}
	return false
}

// serves returns a fault: of those who wait for a key, the one is served that
// choose picks.
func serves(choose func(waiting line) memstore.CallID) func() step {
	return func() step {
		var q line
		return func(m *memstore.Model, now time.Time, op memstore.Op) memstore.Answer {
			if !frees(op) {
				a := m.Step(now, op)
				q.follow(op, a)
				return a
			}
			var aside line
			for _, w := range q {
				if choose(q.of(w.Request.Key.ID())) != w.Call {
					m.Step(time.Time{}, memstore.Leave{Call: w.Call})
					aside = append(aside, w)
				}
			}
			a := m.Step(now, op)
			q.follow(op, a)
			for _, w := range aside {
				also(&a, m.Step(now, w))
			}
			return a
		}
	}
}

// lastCome picks the newest waiter.
func lastCome(waiting line) memstore.CallID { return waiting[len(waiting)-1].Call }

// firstEverCome serves whoever asked first, also who was away when its turn
// came.
func firstEverCome() step {
	arrived := map[contract.Scope]memstore.CallID{}
	serve := serves(func(waiting line) memstore.CallID {
		return slices.MinFunc(waiting, func(x, y memstore.Acquire) int {
			return cmp.Compare(arrived[x.Request.Scope()], arrived[y.Request.Scope()])
		}).Call
	})()
	return func(m *memstore.Model, now time.Time, op memstore.Op) memstore.Answer {
		if acquire, ok := op.(memstore.Acquire); ok && arrived[acquire.Request.Scope()] == 0 {
			arrived[acquire.Request.Scope()] = acquire.Call
		}
		return serve(m, now, op)
	}
}

// overtaken hands a key over only when the next operation comes, which may be
// an acquire that did not wait.
func overtaken() step {
	var q, due line
	return func(m *memstore.Model, now time.Time, op memstore.Op) memstore.Answer {
		if frees(op) {
			for _, w := range q {
				m.Step(time.Time{}, memstore.Leave{Call: w.Call})
			}
			due = append(line(nil), q...)
			a := m.Step(now, op)
			q.follow(op, a)
			return a
		}
		a := m.Step(now, op)
		q.follow(op, a)
		for _, w := range due {
			if leave, ok := op.(memstore.Leave); ok && leave.Call == w.Call {
				continue
			}
			late := m.Step(now, w)
			also(&a, late)
			if !late.Parked {
				a.Wakes = append(a.Wakes, memstore.Wake{Call: w.Call, Result: late.Result, Err: late.Err})
				q.remove(w.Call)
			}
		}
		due = nil
		return a
	}
}

// ghosts serves waiters that have gone. Which ones, the handles say.
type ghosts struct {
	mu   sync.Mutex
	gone map[contract.Scope]bool
}

func (g *ghosts) add(r *contract.AcquireRequest) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.gone[r.Scope()] = true
}

// step makes the gone present for as long as it takes to free a key.
func (g *ghosts) step() step {
	var left line
	var q line
	return func(m *memstore.Model, now time.Time, op memstore.Op) memstore.Answer {
		if leave, ok := op.(memstore.Leave); ok {
			for _, w := range q {
				if w.Call == leave.Call {
					left = append(left, w)
				}
			}
		}
		if !frees(op) {
			a := m.Step(now, op)
			q.follow(op, a)
			return a
		}
		g.mu.Lock()
		defer g.mu.Unlock()
		var here line
		for _, w := range left {
			if g.gone[w.Request.Scope()] && m.Step(time.Time{}, w).Parked {
				here = append(here, w)
			}
		}
		a := m.Step(now, op)
		q.follow(op, a)
		for _, w := range here {
			m.Step(now, memstore.Leave{Call: w.Call})
		}
		return a
	}
}

// ttlFromEnqueue counts the TTL of a waiter from when it began to wait.
func ttlFromEnqueue() step {
	since := map[memstore.CallID]time.Time{}
	ends := map[contract.LeaseID]time.Time{}
	return func(m *memstore.Model, now time.Time, op memstore.Op) memstore.Answer {
		a := m.Step(now, op)
		if acquire, ok := op.(memstore.Acquire); ok && a.Parked {
			since[acquire.Call] = now
		}
		for _, w := range a.Wakes {
			if l := w.Result.Lease; l != nil && !w.Result.Replayed {
				ends[l.ID] = since[w.Call].Add(l.TTL)
			}
		}
		eachLease(&a, func(l *contract.Lease) {
			if end, ok := ends[l.ID]; ok && l.State == contract.StateActive && l.Renewals == 0 {
				l.ExpiresAt, l.ExpiresIn = end, max(0, end.Sub(now))
			}
		})
		return a
	}
}

// expiryServesNobody frees the key of an expired lease and forgets who waits.
func expiryServesNobody() step {
	var q line
	return func(m *memstore.Model, now time.Time, op memstore.Op) memstore.Answer {
		if _, ok := op.(memstore.Tick); !ok {
			a := m.Step(now, op)
			q.follow(op, a)
			return a
		}
		for _, w := range q {
			m.Step(time.Time{}, memstore.Leave{Call: w.Call})
		}
		a := m.Step(now, op)
		for _, w := range q {
			if holder(m, now, w.Request.Namespace, w.Request.Key.ID()) != nil {
				m.Step(now, w)
			}
		}
		return a
	}
}

// notUndone leaves a lease with a waiter who had gone when it was granted.
func notUndone() step {
	return func(m *memstore.Model, now time.Time, op memstore.Op) memstore.Answer {
		if _, ok := op.(memstore.Undo); ok {
			return m.Clone().Step(now, op)
		}
		return m.Step(now, op)
	}
}
