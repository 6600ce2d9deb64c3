package contracttest_test

import (
	"strconv"
	"strings"
	"time"

	"leased/contract"
	"leased/contract/memstore"
)

// Faults of what is remembered under a request id.

// mark ends request ids that a fault made up. What leaves the store does not
// show it.
const mark = "~"

func unmark(a *memstore.Answer) {
	strip := func(id string) string {
		id, _, _ = strings.Cut(id, mark)
		return id
	}
	eachLease(a, func(l *contract.Lease) { l.RequestID = strip(l.RequestID) })
	eachEvent(a, func(ev *contract.Event) { ev.RequestID = strip(ev.RequestID) })
}

// replayGrantsAgain takes the repetition of a request whose lease is over for a
// fresh attempt.
func replayGrantsAgain() step {
	n := 0
	return func(m *memstore.Model, now time.Time, op memstore.Op) memstore.Answer {
		a := m.Step(now, op)
		if acquire, ok := op.(memstore.Acquire); ok && a.Result.Lease != nil && a.Result.Lease.State.Terminal() {
			n++
			acquire.Request.RequestID += mark + strconv.Itoa(n)
			a = m.Step(now, acquire)
		}
		unmark(&a)
		return a
	}
}

// replayWaitsForItself takes a retry that may wait for a fresh attempt, which
// queues behind the grant of the first one.
func replayWaitsForItself() step {
	n := 0
	return func(m *memstore.Model, now time.Time, op memstore.Op) memstore.Answer {
		a := m.Step(now, op)
		if acquire, ok := op.(memstore.Acquire); ok && a.Result.Replayed && acquire.Request.Wait > 0 {
			n++
			acquire.Request.RequestID += mark + strconv.Itoa(n)
			a = m.Step(now, acquire)
		}
		unmark(&a)
		return a
	}
}

// replayReadsAsLive repeats the answer as it was first given, also when its
// lease is over.
func replayReadsAsLive() step {
	return func(m *memstore.Model, now time.Time, op memstore.Op) memstore.Answer {
		a := m.Step(now, op)
		if _, ok := op.(memstore.Acquire); ok && a.Result.Replayed && a.Result.Lease.State.Terminal() {
			a.Result = contract.Result{Outcome: contract.OutcomeAcquired, Lease: revived(*a.Result.Lease, now), Replayed: true}
		}
		return a
	}
}

// replayStartsTTLAgain shows a repeated grant with all of its TTL left.
func replayStartsTTLAgain() step {
	return func(m *memstore.Model, now time.Time, op memstore.Op) memstore.Answer {
		a := m.Step(now, op)
		if _, ok := op.(memstore.Acquire); ok && a.Result.Replayed && a.Result.Outcome == contract.OutcomeAcquired {
			a.Result.Lease.ExpiresIn = a.Result.Lease.TTL
		}
		return a
	}
}

// first keeps the first operation of each scope.
type first map[contract.Scope]memstore.Op

// of returns the operation that the scope of op was first used for; op itself if
// it has no scope.
func (f first) of(op memstore.Op, scope contract.Scope) memstore.Op {
	if _, ok := f[scope]; !ok {
		f[scope] = op
	}
	return f[scope]
}

func scopeOf(op memstore.Op) (contract.Scope, bool) {
	switch o := op.(type) {
	case memstore.Acquire:
		return o.Request.Scope(), true
	case memstore.Renew:
		return o.Request.Scope(), true
	case memstore.Release:
		return o.Request.Scope(), true
	case memstore.Revoke:
		return o.Request.Scope(), true
	}
	return contract.Scope{}, false
}

// reusedIDAccepted answers another request under a known id as if it were the
// first one.
func reusedIDAccepted() step {
	seen := first{}
	return func(m *memstore.Model, now time.Time, op memstore.Op) memstore.Answer {
		a := m.Step(now, op)
		scope, ok := scopeOf(op)
		if !ok {
			return a
		}
		stored := seen.of(op, scope)
		if a.Result.Outcome != contract.OutcomeRequestIDReused {
			return a
		}
		if acquire, ok := op.(memstore.Acquire); ok {
			again, _ := stored.(memstore.Acquire)
			again.Call, again.Request.Wait = acquire.Call, acquire.Request.Wait
			stored = again
		}
		return m.Step(now, stored)
	}
}

// fingerprintForgets returns a fault: acquires are compared without the part
// that forget clears.
func fingerprintForgets(forget func(*contract.AcquireRequest)) func() step {
	return func() step {
		seen := first{}
		return func(m *memstore.Model, now time.Time, op memstore.Op) memstore.Answer {
			a := m.Step(now, op)
			acquire, ok := op.(memstore.Acquire)
			if !ok {
				return a
			}
			stored, _ := seen.of(op, acquire.Request.Scope()).(memstore.Acquire)
			if a.Result.Outcome != contract.OutcomeRequestIDReused {
				return a
			}
			forget(&acquire.Request)
			bare := stored.Request
			forget(&bare)
			if acquire.Request.Fingerprint() == bare.Fingerprint() {
				return m.Step(now, stored)
			}
			return a
		}
	}
}

// idsSharedBetweenOwners leaves the owner out of the scope of an acquire.
func idsSharedBetweenOwners() step {
	seen := first{}
	return func(m *memstore.Model, now time.Time, op memstore.Op) memstore.Answer {
		acquire, ok := op.(memstore.Acquire)
		if !ok {
			return m.Step(now, op)
		}
		anybody := acquire.Request
		anybody.Owner = "anybody"
		stored, _ := seen.of(op, anybody.Scope()).(memstore.Acquire)
		if stored.Request.Owner != acquire.Request.Owner {
			stored.Request.Wait = 0
			return m.Step(now, stored)
		}
		return m.Step(now, op)
	}
}

// refusalsStored repeats a conflict after the key became free.
func refusalsStored() step {
	refused := map[contract.Scope]contract.Result{}
	return func(m *memstore.Model, now time.Time, op memstore.Op) memstore.Answer {
		acquire, ok := op.(memstore.Acquire)
		if !ok {
			return m.Step(now, op)
		}
		scope := acquire.Request.Scope()
		if res, ok := refused[scope]; ok {
			return memstore.Answer{Result: res}
		}
		a := m.Step(now, op)
		if a.Result.Outcome == contract.OutcomeConflict {
			refused[scope] = a.Result
		}
		return a
	}
}

// answersForgottenEarly keeps an answer for half as long as it should.
func answersForgottenEarly() step {
	return func(m *memstore.Model, now time.Time, op memstore.Op) memstore.Answer {
		if acquire, ok := op.(memstore.Acquire); ok {
			acquire.Request.Retention.Idempotency /= 2
			op = acquire
		}
		return m.Step(now, op)
	}
}

// answersKeptAsTheGrants forgets all that was asked about a lease with the answer
// to its acquire.
func answersKeptAsTheGrants() step {
	keep := map[contract.LeaseID]time.Duration{}
	return func(m *memstore.Model, now time.Time, op memstore.Op) memstore.Answer {
		switch o := op.(type) {
		case memstore.Acquire:
			a := m.Step(now, op)
			if a.Result.Outcome == contract.OutcomeAcquired {
				keep[a.Result.Lease.ID] = o.Request.Retention.Idempotency
			}
			return a
		case memstore.Release:
			if d, ok := keep[o.Request.LeaseID]; ok {
				o.Request.Retention.Idempotency = d
			}
			op = o
		}
		return m.Step(now, op)
	}
}

// answersLostAtRestart remembers no request id over a restart.
func answersLostAtRestart() step {
	restarts := 0
	return func(m *memstore.Model, now time.Time, op memstore.Op) memstore.Answer {
		era := mark + strconv.Itoa(restarts)
		switch o := op.(type) {
		case memstore.Restart:
			restarts++
		case memstore.Acquire:
			o.Request.RequestID += era
			op = o
		case memstore.Renew:
			o.Request.RequestID += era
			op = o
		case memstore.Release:
			o.Request.RequestID += era
			op = o
		case memstore.Revoke:
			o.Request.RequestID += era
			op = o
		}
		a := m.Step(now, op)
		unmark(&a)
		return a
	}
}

// mutationsNotReplayed returns a fault: an operation that has the verb is done
// afresh each time.
func mutationsNotReplayed(verb contract.Verb) func() step {
	return func() step {
		n := 0
		return func(m *memstore.Model, now time.Time, op memstore.Op) memstore.Answer {
			n++
			fresh := mark + strconv.Itoa(n)
			switch o := op.(type) {
			case memstore.Renew:
				if verb == contract.VerbRenew {
					o.Request.RequestID += fresh
					op = o
				}
			case memstore.RenewBulk:
				if verb == contract.VerbRenew {
					o.Request.RequestID += fresh
					op = o
				}
			case memstore.Release:
				if verb == contract.VerbRelease {
					o.Request.RequestID += fresh
					op = o
				}
			case memstore.Revoke:
				if verb == contract.VerbRevoke {
					o.Request.RequestID += fresh
					op = o
				}
			}
			a := m.Step(now, op)
			unmark(&a)
			return a
		}
	}
}

// replayUnmarked does not tell a repetition from a first answer.
func replayUnmarked() step {
	return func(m *memstore.Model, now time.Time, op memstore.Op) memstore.Answer {
		a := m.Step(now, op)
		eachResult(&a, func(res *contract.Result) { res.Replayed = false })
		return a
	}
}

// firstAnswerForever repeats a grant as it was at first, whatever became of the
// lease since.
func firstAnswerForever() step {
	given := map[contract.LeaseID]contract.Lease{}
	return func(m *memstore.Model, now time.Time, op memstore.Op) memstore.Answer {
		a := m.Step(now, op)
		if _, ok := op.(memstore.Acquire); !ok || a.Result.Outcome != contract.OutcomeAcquired {
			return a
		}
		if l := *a.Result.Lease; !a.Result.Replayed {
			given[l.ID] = l.Clone()
		} else if first, ok := given[l.ID]; ok {
			first = first.Clone()
			first.ExpiresIn = max(first.ExpiresAt.Sub(now), 1)
			a.Result.Lease = &first
		}
		return a
	}
}

// renewReplayReadsAsLive repeats the answer to a renewal, also when the lease is
// over.
func renewReplayReadsAsLive() step {
	return func(m *memstore.Model, now time.Time, op memstore.Op) memstore.Answer {
		a := m.Step(now, op)
		if _, ok := op.(memstore.Renew); ok && a.Result.Replayed && a.Result.Lease.State.Terminal() {
			a.Result = contract.Result{Outcome: contract.OutcomeRenewed, Lease: revived(*a.Result.Lease, now), Replayed: true}
		}
		return a
	}
}

// answersDieWithHistory forgets an answer when its lease is no longer in the
// key's history.
func answersDieWithHistory() step {
	n := 0
	return func(m *memstore.Model, now time.Time, op memstore.Op) memstore.Answer {
		before := m.Clone()
		a := m.Step(now, op)
		l := a.Result.Lease
		acquire, ok := op.(memstore.Acquire)
		if ok && a.Result.Replayed && lookup(m, now, l.Namespace, l.ID) == nil {
			*m = *before
			n++
			acquire.Request.RequestID += mark + strconv.Itoa(n)
			a = m.Step(now, acquire)
		}
		unmark(&a)
		return a
	}
}

// idFreeAfterEnd takes a request id for unused once its lease is over.
func idFreeAfterEnd() step {
	seen := first{}
	n := 0
	return func(m *memstore.Model, now time.Time, op memstore.Op) memstore.Answer {
		a := m.Step(now, op)
		acquire, ok := op.(memstore.Acquire)
		if !ok {
			unmark(&a)
			return a
		}
		stored := seen.of(op, acquire.Request.Scope())
		if a.Result.Outcome == contract.OutcomeRequestIDReused {
			if was := m.Step(now, stored).Result.Lease; was != nil && was.State.Terminal() {
				n++
				acquire.Request.RequestID += mark + strconv.Itoa(n)
				a = m.Step(now, acquire)
			}
		}
		unmark(&a)
		return a
	}
}

// waitMakesAnother takes a repetition that waits otherwise for another request.
func waitMakesAnother() step {
	waits := map[contract.Scope]time.Duration{}
	return func(m *memstore.Model, now time.Time, op memstore.Op) memstore.Answer {
		a := m.Step(now, op)
		acquire, ok := op.(memstore.Acquire)
		if !ok {
			return a
		}
		scope := acquire.Request.Scope()
		if a.Result.Replayed && waits[scope] != acquire.Request.Wait {
			return memstore.Answer{Result: contract.Result{Outcome: contract.OutcomeRequestIDReused}}
		}
		if _, ok := waits[scope]; !ok {
			waits[scope] = acquire.Request.Wait
		}
		return a
	}
}
