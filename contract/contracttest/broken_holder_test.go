package contracttest_test

import (
	"time"

	"leased/contract"
	"leased/contract/memstore"
)

// Faults of grants and of what a holder does with its lease.

// twoWinners grants a key again that was granted at the same instant, as a store
// does that looks first and writes then.
func twoWinners() step {
	return func(m *memstore.Model, now time.Time, op memstore.Op) memstore.Answer {
		a := m.Step(now, op)
		r, ok := op.(memstore.Acquire)
		if ok && a.Result.Outcome == contract.OutcomeConflict && a.Result.Lease.AcquiredAt.Equal(now) &&
			a.Result.Lease.Owner != r.Request.Owner {
			l := *a.Result.Lease
			l.ID = contract.NewLeaseID(l.KeyID, r.Nonce)
			l.Owner, l.Instance, l.RequestID = r.Request.Owner, r.Request.Instance, r.Request.RequestID
			l.Token++
			a.Result = contract.Result{Outcome: contract.OutcomeAcquired, Lease: &l}
		}
		return a
	}
}

// reentrant answers its holder with its lease, whatever the request id.
func reentrant() step {
	return func(m *memstore.Model, now time.Time, op memstore.Op) memstore.Answer {
		a := m.Step(now, op)
		r, ok := op.(memstore.Acquire)
		if ok && a.Result.Outcome == contract.OutcomeConflict && a.Result.Lease.Owner == r.Request.Owner &&
			a.Result.Lease.Instance == r.Request.Instance {
			a.Result = contract.Result{Outcome: contract.OutcomeAcquired, Lease: a.Result.Lease, Replayed: true}
		}
		return a
	}
}

// guessableLeaseID counts instead of drawing the nonce of a lease id.
func guessableLeaseID() step {
	var n byte
	return func(m *memstore.Model, now time.Time, op memstore.Op) memstore.Answer {
		if acquire, ok := op.(memstore.Acquire); ok {
			n++
			acquire.Nonce = [16]byte{15: n}
			op = acquire
		}
		return m.Step(now, op)
	}
}

// endlessLifetime renews past the maximum lifetime.
func endlessLifetime() step {
	asked := map[contract.Scope]time.Duration{}
	shown := map[contract.LeaseID]time.Duration{}
	return func(m *memstore.Model, now time.Time, op memstore.Op) memstore.Answer {
		acquire, ok := op.(memstore.Acquire)
		var scope contract.Scope
		if ok {
			scope = acquire.Request.Scope()
			asked[scope] = acquire.Request.MaxLifetime
			acquire.Request.MaxLifetime = contract.MaxDuration
			op = acquire
		}
		a := m.Step(now, op)
		if ok && a.Result.Outcome == contract.OutcomeAcquired && !a.Result.Replayed {
			shown[a.Result.Lease.ID] = asked[scope]
		}
		eachLease(&a, func(l *contract.Lease) {
			if d, ok := shown[l.ID]; ok {
				l.MaxLifetime = d
			}
		})
		return a
	}
}

// renewRevives answers the renewal of a lease that is over with a live one.
func renewRevives() step {
	return func(m *memstore.Model, now time.Time, op memstore.Op) memstore.Answer {
		a := m.Step(now, op)
		if _, ok := op.(memstore.Renew); ok && contract.EndedOutcome(stateOf(a.Result)) == a.Result.Outcome && a.Result.Lease != nil {
			a.Result = contract.Result{Outcome: contract.OutcomeRenewed, Lease: revived(*a.Result.Lease, now)}
			a.Result.Lease.Renewals++
		}
		return a
	}
}

func stateOf(res contract.Result) contract.State {
	if res.Lease == nil {
		return 0
	}
	return res.Lease.State
}

// renewByOwnerAlone renews for every instance of the owner: four processes with
// one name would each believe themselves the holder.
func renewByOwnerAlone() step {
	return func(m *memstore.Model, now time.Time, op memstore.Op) memstore.Answer {
		if renew, ok := op.(memstore.Renew); ok {
			if l := lookup(m, now, renew.Request.Namespace, renew.Request.LeaseID); l != nil {
				renew.Request.Instance = l.Instance
				op = renew
			}
		}
		return m.Step(now, op)
	}
}

// renewNeverShortens keeps the old expiry when a shorter TTL is asked for.
func renewNeverShortens() step {
	return func(m *memstore.Model, now time.Time, op memstore.Op) memstore.Answer {
		if renew, ok := op.(memstore.Renew); ok {
			if l := lookup(m, now, renew.Request.Namespace, renew.Request.LeaseID); l != nil && renew.Request.TTL > 0 {
				renew.Request.TTL = max(renew.Request.TTL, l.ExpiresIn)
				op = renew
			}
		}
		return m.Step(now, op)
	}
}

// bulkStops does nothing for the items after the first that is refused.
func bulkStops() step {
	return func(m *memstore.Model, now time.Time, op memstore.Op) memstore.Answer {
		bulk, ok := op.(memstore.RenewBulk)
		if !ok {
			return m.Step(now, op)
		}
		var a memstore.Answer
		for i := range bulk.Request.Leases {
			one := m.Step(now, memstore.Renew{Request: bulk.Request.Item(i)})
			also(&a, one)
			a.Bulk.Items = append(a.Bulk.Items, contract.RenewItemResult{Result: one.Result})
			if !one.Result.Outcome.OK() {
				break
			}
		}
		for len(a.Bulk.Items) < len(bulk.Request.Leases) {
			a.Bulk.Items = append(a.Bulk.Items, contract.RenewItemResult{
				Err: contract.Errorf(contract.CodeUnavailable, nil, "an item before this one was refused"),
			})
		}
		return a
	}
}

// releaseWithoutCompare releases the lease for whoever names it.
func releaseWithoutCompare() step {
	return func(m *memstore.Model, now time.Time, op memstore.Op) memstore.Answer {
		if release, ok := op.(memstore.Release); ok {
			r := &release.Request
			if l := lookup(m, now, r.Namespace, r.LeaseID); l != nil {
				r.Owner, r.Instance, r.Token = l.Owner, l.Instance, l.Token
				op = release
			}
		}
		return m.Step(now, op)
	}
}

// releaseWithoutToken compares the holder and forgets the token.
func releaseWithoutToken() step {
	return func(m *memstore.Model, now time.Time, op memstore.Op) memstore.Answer {
		if release, ok := op.(memstore.Release); ok {
			if l := lookup(m, now, release.Request.Namespace, release.Request.LeaseID); l != nil {
				release.Request.Token = l.Token
				op = release
			}
		}
		return m.Step(now, op)
	}
}

// releaseEndsNewer deletes the key's lease, whichever it is by then.
func releaseEndsNewer() step {
	return func(m *memstore.Model, now time.Time, op memstore.Op) memstore.Answer {
		a := m.Step(now, op)
		release, ok := op.(memstore.Release)
		if !ok || a.Result.Lease == nil || a.Result.Outcome != contract.EndedOutcome(a.Result.Lease.State) {
			return a
		}
		if l := holder(m, now, release.Request.Namespace, release.Request.LeaseID.KeyID()); l != nil {
			r := &release.Request
			r.Owner, r.Instance, r.Token, r.LeaseID, r.RequestID = l.Owner, l.Instance, l.Token, l.ID, r.RequestID+"~"
			more := m.Step(now, release)
			also(&a, more)
		}
		return a
	}
}

// revokeTouchesNewer revokes the key's lease, whichever it is by then.
func revokeTouchesNewer() step {
	return func(m *memstore.Model, now time.Time, op memstore.Op) memstore.Answer {
		if revoke, ok := op.(memstore.Revoke); ok {
			if l := holder(m, now, revoke.Request.Namespace, revoke.Request.LeaseID.KeyID()); l != nil {
				revoke.Request.LeaseID = l.ID
				op = revoke
			}
		}
		return m.Step(now, op)
	}
}

// revokeLosesReason does not keep why a lease was revoked.
func revokeLosesReason() step {
	return func(m *memstore.Model, now time.Time, op memstore.Op) memstore.Answer {
		if revoke, ok := op.(memstore.Revoke); ok {
			revoke.Request.Reason = ""
			op = revoke
		}
		return m.Step(now, op)
	}
}

// checkTakesHigher lets a token pass that is higher than the holder's.
func checkTakesHigher() step {
	return func(m *memstore.Model, now time.Time, op memstore.Op) memstore.Answer {
		a := m.Step(now, op)
		check, ok := op.(memstore.Check)
		if !ok || a.Result.Outcome != contract.OutcomeStaleToken {
			return a
		}
		if l := holder(m, now, check.Request.Namespace, check.Request.KeyID); l != nil && check.Request.Token > l.Token {
			a.Result = contract.Result{Outcome: contract.OutcomeCurrent, Lease: l}
		}
		return a
	}
}

// checkIgnoresEnd takes the newest token for current after its lease is over.
func checkIgnoresEnd() step {
	return func(m *memstore.Model, now time.Time, op memstore.Op) memstore.Answer {
		a := m.Step(now, op)
		if _, ok := op.(memstore.Check); ok && a.Result.Lease != nil && a.Result.Lease.State.Terminal() {
			a.Result = contract.Result{Outcome: contract.OutcomeCurrent, Lease: revived(*a.Result.Lease, now)}
		}
		return a
	}
}

// quotaIgnored grants an owner as many leases as it asks for.
func quotaIgnored() step {
	return func(m *memstore.Model, now time.Time, op memstore.Op) memstore.Answer {
		if acquire, ok := op.(memstore.Acquire); ok {
			acquire.Request.Limits.LeasesPerOwner = 0
			op = acquire
		}
		return m.Step(now, op)
	}
}

// renewAddsUp counts the TTL from the end of the old life.
func renewAddsUp() step {
	return func(m *memstore.Model, now time.Time, op memstore.Op) memstore.Answer {
		renew, ok := op.(memstore.Renew)
		if !ok {
			return m.Step(now, op)
		}
		l := lookup(m, now, renew.Request.Namespace, renew.Request.LeaseID)
		if l == nil || l.State != contract.StateActive {
			return m.Step(now, op)
		}
		asked := renew.Request.TTL
		if asked == 0 {
			asked = l.TTL
		}
		renew.Request.TTL = asked + l.ExpiresIn
		a := m.Step(now, renew)
		if a.Result.Outcome == contract.OutcomeRenewed {
			a.Result.Lease.TTL = asked
		}
		return a
	}
}

// renewalsUncounted renews without saying so in the lease.
func renewalsUncounted() step {
	return func(m *memstore.Model, now time.Time, op memstore.Op) memstore.Answer {
		a := m.Step(now, op)
		eachLease(&a, func(l *contract.Lease) { l.Renewals = 0 })
		return a
	}
}

// renewYieldsToWaiters refuses to renew a lease that others wait for.
func renewYieldsToWaiters() step {
	return func(m *memstore.Model, now time.Time, op memstore.Op) memstore.Answer {
		if renew, ok := op.(memstore.Renew); ok {
			r := renew.Request
			key := m.Step(now, memstore.GetKey{Request: contract.GetKeyRequest{Namespace: r.Namespace, KeyID: r.LeaseID.KeyID()}}).Key
			if key.Lease != nil && key.Lease.ID == r.LeaseID && key.Queue.Length > 0 {
				return memstore.Answer{Result: contract.Result{Outcome: contract.OutcomeConflict, Lease: key.Lease}}
			}
		}
		return m.Step(now, op)
	}
}

// revokedForgotten tells the holder of a revoked lease that there never was one.
func revokedForgotten() step {
	return func(m *memstore.Model, now time.Time, op memstore.Op) memstore.Answer {
		a := m.Step(now, op)
		if _, ok := op.(memstore.Get); !ok && a.Result.Outcome == contract.OutcomeEndedRevoked {
			a.Result = contract.Result{Outcome: contract.OutcomeNotFound}
		}
		return a
	}
}

// releaseDoesNothing answers that it released, and lets the lease run out.
func releaseDoesNothing() step {
	return func(m *memstore.Model, now time.Time, op memstore.Op) memstore.Answer {
		if _, ok := op.(memstore.Release); ok {
			return m.Clone().Step(now, op)
		}
		return m.Step(now, op)
	}
}

// releaseOfEndedSucceeds answers any release of a lease that is over with
// success.
func releaseOfEndedSucceeds() step {
	return func(m *memstore.Model, now time.Time, op memstore.Op) memstore.Answer {
		a := m.Step(now, op)
		if _, ok := op.(memstore.Release); ok && a.Result.Lease != nil && a.Result.Outcome == contract.EndedOutcome(a.Result.Lease.State) {
			a.Result.Outcome = contract.OutcomeReleased
		}
		return a
	}
}

// checkUnknownStale takes a key of which it knows nothing for one that was
// leased since.
func checkUnknownStale() step {
	return func(m *memstore.Model, now time.Time, op memstore.Op) memstore.Answer {
		a := m.Step(now, op)
		if _, ok := op.(memstore.Check); ok && a.Result.Outcome == contract.OutcomeNotFound {
			a.Result.Outcome = contract.OutcomeStaleToken
		}
		return a
	}
}

// checkOfFirstGrant compares a token with that of the key's first grant.
func checkOfFirstGrant() step {
	first := map[contract.KeyID]contract.Token{}
	return func(m *memstore.Model, now time.Time, op memstore.Op) memstore.Answer {
		a := m.Step(now, op)
		for _, ev := range a.Events {
			if first[ev.KeyID] == 0 {
				first[ev.KeyID] = ev.Token
			}
		}
		if check, ok := op.(memstore.Check); ok && a.Result.Outcome == contract.OutcomeCurrent && check.Request.Token != first[check.Request.KeyID] {
			a.Result = contract.Result{Outcome: contract.OutcomeStaleToken}
		}
		return a
	}
}
