package contracttest_test

import (
	"strings"
	"time"

	"leased/contract"
	"leased/contract/memstore"
)

// Faults of what a grant is: its fields, its life, its key.

// lifeOff gives a lease another life than it says. The extra one may be
// negative.
func lifeOff(extra func(ttl time.Duration) time.Duration) func() step {
	return func() step {
		more := map[contract.LeaseID]time.Duration{}
		return func(m *memstore.Model, now time.Time, op memstore.Op) memstore.Answer {
			acquire, ok := op.(memstore.Acquire)
			var d time.Duration
			if ok {
				d = extra(acquire.Request.TTL)
				acquire.Request.TTL += d
				acquire.Request.MaxLifetime = max(acquire.Request.MaxLifetime, acquire.Request.TTL)
				op = acquire
			}
			a := m.Step(now, op)
			if ok && a.Result.Outcome == contract.OutcomeAcquired && !a.Result.Replayed {
				more[a.Result.Lease.ID] = d
			}
			eachLease(&a, func(l *contract.Lease) {
				l.TTL -= more[l.ID]
				l.ExpiresAt = l.ExpiresAt.Add(-more[l.ID])
				switch l.State {
				case contract.StateActive:
					l.ExpiresIn = max(l.ExpiresIn-more[l.ID], 1)
				case contract.StateExpired:
					l.EndedAt = l.ExpiresAt
				}
			})
			return a
		}
	}
}

// aTenthEarly ends a lease before its TTL is over.
func aTenthEarly(ttl time.Duration) time.Duration { return -ttl / 10 }

// twiceAsLong ends a lease long after its TTL is over.
func twiceAsLong(ttl time.Duration) time.Duration { return ttl }

// jobLost does not keep what job a lease is for.
func jobLost() step {
	return func(m *memstore.Model, now time.Time, op memstore.Op) memstore.Answer {
		a := m.Step(now, op)
		eachLease(&a, func(l *contract.Lease) { l.JobID = "" })
		return a
	}
}

// ttlRoundedDown grants whole seconds, and never more than was asked for.
func ttlRoundedDown() step {
	return func(m *memstore.Model, now time.Time, op memstore.Op) memstore.Answer {
		if acquire, ok := op.(memstore.Acquire); ok && acquire.Request.TTL > time.Second {
			acquire.Request.TTL = acquire.Request.TTL.Truncate(time.Second)
			op = acquire
		}
		return m.Step(now, op)
	}
}

// conflictHidesQueue does not tell a loser how many wait.
func conflictHidesQueue() step {
	return func(m *memstore.Model, now time.Time, op memstore.Op) memstore.Answer {
		a := m.Step(now, op)
		eachResult(&a, func(res *contract.Result) { res.Queue.Length = 0 })
		return a
	}
}

// waitsForFreeKey refuses a free key to an acquire that may wait: it takes
// itself for one of those who queue.
func waitsForFreeKey() step {
	return func(m *memstore.Model, now time.Time, op memstore.Op) memstore.Answer {
		before := m.Clone()
		a := m.Step(now, op)
		acquire, ok := op.(memstore.Acquire)
		if ok && acquire.Request.Wait > 0 && a.Result.Outcome == contract.OutcomeAcquired && !a.Result.Replayed {
			*m = *before
			return memstore.Answer{Result: contract.Result{Outcome: contract.OutcomeConflict, Lease: a.Result.Lease}}
		}
		return a
	}
}

// likeKeys leases two keys as one when their parts are the same text without
// what separates them.
func likeKeys() step {
	joined := map[string]contract.Key{}
	return func(m *memstore.Model, now time.Time, op memstore.Op) memstore.Answer {
		if acquire, ok := op.(memstore.Acquire); ok {
			k := acquire.Request.Key
			text := acquire.Request.Namespace + strings.Join([]string{
				k.Tenant, k.Program, string(k.Target.Type), k.Target.ID, k.Actor, k.Workflow, k.Operation,
			}, "/")
			if first, ok := joined[text]; ok {
				acquire.Request.Key = first
				op = acquire
			} else {
				joined[text] = k
			}
		}
		return m.Step(now, op)
	}
}

// onePart names the namespace by what stands before the first slash.
func onePart(namespace string) string {
	first, _, _ := strings.Cut(namespace, "/")
	return first
}

// namespacesMixed keeps the leases of namespaces that begin alike in one place.
func namespacesMixed() step {
	return func(m *memstore.Model, now time.Time, op memstore.Op) memstore.Answer {
		var asked string
		switch o := op.(type) {
		case memstore.Acquire:
			asked, o.Request.Namespace = o.Request.Namespace, onePart(o.Request.Namespace)
			op = o
		case memstore.Get:
			asked, o.Request.Namespace = o.Request.Namespace, onePart(o.Request.Namespace)
			op = o
		case memstore.Renew:
			asked, o.Request.Namespace = o.Request.Namespace, onePart(o.Request.Namespace)
			op = o
		case memstore.Release:
			asked, o.Request.Namespace = o.Request.Namespace, onePart(o.Request.Namespace)
			op = o
		}
		a := m.Step(now, op)
		if asked != "" {
			eachLease(&a, func(l *contract.Lease) { l.Namespace = asked })
		}
		return a
	}
}

// listByPrefix lists every namespace that begins with the one asked for.
func listByPrefix() step {
	seen := map[string]bool{}
	return func(m *memstore.Model, now time.Time, op memstore.Op) memstore.Answer {
		if acquire, ok := op.(memstore.Acquire); ok {
			seen[acquire.Request.Namespace] = true
		}
		a := m.Step(now, op)
		if list, ok := op.(memstore.List); ok {
			asked := list.Request.Namespace
			for other := range seen {
				if other != asked && strings.HasPrefix(other, asked) {
					list.Request.Namespace = other
					a.List.Leases = append(a.List.Leases, m.Step(now, list).List.Leases...)
				}
			}
		}
		return a
	}
}

// loserUnavailable answers a repetition that meets its first attempt with an
// error, as a store does whose writes contend.
func loserUnavailable() step {
	return func(m *memstore.Model, now time.Time, op memstore.Op) memstore.Answer {
		a := m.Step(now, op)
		if _, ok := op.(memstore.Acquire); ok && a.Result.Replayed {
			return memstore.Answer{Err: contract.Errorf(contract.CodeUnavailable, nil, "another attempt was first")}
		}
		return a
	}
}

// loserConflicts answers a repetition as it would anybody else.
func loserConflicts() step {
	return func(m *memstore.Model, now time.Time, op memstore.Op) memstore.Answer {
		a := m.Step(now, op)
		if _, ok := op.(memstore.Acquire); ok && a.Result.Replayed && a.Result.Outcome == contract.OutcomeAcquired {
			a.Result = contract.Result{Outcome: contract.OutcomeConflict, Lease: a.Result.Lease}
		}
		return a
	}
}
