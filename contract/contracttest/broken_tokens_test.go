package contracttest_test

import (
	"strconv"
	"time"

	"leased/contract"
	"leased/contract/memstore"
)

// tokens puts other tokens on the leases of a right Model: out of it, each lease
// has the token that assign gave it, and what comes in is translated back, so
// that nothing but the numbers is wrong.
type tokens struct {
	assign func(l contract.Lease) contract.Token
	inner  map[contract.LeaseID]contract.Token
	outer  map[contract.LeaseID]contract.Token
}

func newTokens(assign func(l contract.Lease) contract.Token) *tokens {
	return &tokens{
		assign: assign,
		inner:  map[contract.LeaseID]contract.Token{},
		outer:  map[contract.LeaseID]contract.Token{},
	}
}

func (t *tokens) step(m *memstore.Model, now time.Time, op memstore.Op) memstore.Answer {
	a := m.Step(now, t.inward(op))
	eachLease(&a, t.meet)
	eachLease(&a, func(l *contract.Lease) { l.Token = t.outer[l.ID] })
	eachEvent(&a, func(ev *contract.Event) {
		if token, ok := t.outer[ev.LeaseID]; ok {
			ev.Token = token
		}
	})
	return a
}

// meet assigns a token to a lease that was not seen before. A grant is always
// seen at once: in the answer or in a wake.
func (t *tokens) meet(l *contract.Lease) {
	if _, ok := t.inner[l.ID]; !ok {
		t.inner[l.ID] = l.Token
		t.outer[l.ID] = t.assign(*l)
	}
}

func (t *tokens) inward(op memstore.Op) memstore.Op {
	switch o := op.(type) {
	case memstore.Renew:
		o.Request.Token = t.back(o.Request.LeaseID, o.Request.Token)
		return o
	case memstore.RenewBulk:
		items := make([]contract.RenewItem, len(o.Request.Leases))
		for i, item := range o.Request.Leases {
			items[i] = contract.RenewItem{LeaseID: item.LeaseID, Token: t.back(item.LeaseID, item.Token)}
		}
		o.Request.Leases = items
		return o
	case memstore.Release:
		o.Request.Token = t.back(o.Request.LeaseID, o.Request.Token)
		return o
	case memstore.Check:
		var newest contract.LeaseID
		for id, outer := range t.outer {
			if id.KeyID() == o.Request.KeyID && outer == o.Request.Token && t.inner[id] > t.inner[newest] {
				newest = id
			}
		}
		if newest.IsZero() {
			o.Request.Token = contract.MaxToken
		} else {
			o.Request.Token = t.inner[newest]
		}
		return o
	}
	return op
}

// back returns the inner token for an outer one, and one that matches nothing
// for any other.
func (t *tokens) back(id contract.LeaseID, outer contract.Token) contract.Token {
	if t.outer[id] == outer {
		return t.inner[id]
	}
	return contract.MaxToken
}

// tokenPerKey gives every grant of a key the token of the first.
func tokenPerKey() step {
	first := map[contract.KeyID]contract.Token{}
	return newTokens(func(l contract.Lease) contract.Token {
		if first[l.KeyID] == 0 {
			first[l.KeyID] = l.Token
		}
		return first[l.KeyID]
	}).step
}

// tokenFallsAtRestart counts from 1 again after a restart.
func tokenFallsAtRestart() step {
	var last contract.Token
	t := newTokens(func(contract.Lease) contract.Token {
		last++
		return last
	})
	return func(m *memstore.Model, now time.Time, op memstore.Op) memstore.Answer {
		if _, ok := op.(memstore.Restart); ok {
			last = 0
		}
		return t.step(m, now, op)
	}
}

// tokenRounded writes tokens with the 14 digits that Lua's tostring gives them.
func tokenRounded() step {
	return newTokens(func(l contract.Lease) contract.Token {
		text := strconv.FormatFloat(float64(l.Token), 'g', 14, 64)
		rounded, err := strconv.ParseFloat(text, 64)
		if err != nil {
			panic(err)
		}
		return contract.Token(rounded)
	}).step
}

// tokenComparedAsText takes the higher of two tokens by their texts, for which 9
// is higher than 10.
func tokenComparedAsText() step {
	last := map[contract.KeyID]string{}
	return newTokens(func(l contract.Lease) contract.Token {
		next := strconv.FormatUint(uint64(l.Token), 10)
		next = max(next, last[l.KeyID])
		last[l.KeyID] = next
		token, err := strconv.ParseUint(next, 10, 64)
		if err != nil {
			panic(err)
		}
		return contract.Token(token)
	}).step
}

// floorLowered takes a floor for the place to count on from, also when it is
// lower than what was granted.
func floorLowered() step {
	var last contract.Token
	t := newTokens(func(contract.Lease) contract.Token {
		last++
		return last
	})
	return func(m *memstore.Model, now time.Time, op memstore.Op) memstore.Answer {
		if raise, ok := op.(memstore.RaiseFloor); ok {
			last = raise.Request.Above
		}
		return t.step(m, now, op)
	}
}

// floorForgotten raises the floor until the next restart.
func floorForgotten() step {
	var last, floor contract.Token
	t := newTokens(func(contract.Lease) contract.Token {
		last++
		return last + floor
	})
	return func(m *memstore.Model, now time.Time, op memstore.Op) memstore.Answer {
		switch o := op.(type) {
		case memstore.RaiseFloor:
			floor = max(floor, o.Request.Above)
		case memstore.Restart:
			floor = 0
		}
		return t.step(m, now, op)
	}
}

// tokenWraps starts again at 1 when no token is left.
func tokenWraps() step {
	return func(m *memstore.Model, now time.Time, op memstore.Op) memstore.Answer {
		if raise, ok := op.(memstore.RaiseFloor); ok && raise.Request.Above == contract.MaxToken {
			return memstore.Answer{}
		}
		before := m.Clone()
		a := m.Step(now, op)
		if acquire, ok := op.(memstore.Acquire); ok && contract.CodeOf(a.Err) == contract.CodeInternal {
			*m = *before
			elsewhere := acquire
			elsewhere.Request.Namespace += "~" // which has tokens left
			a = m.Step(now, elsewhere)
			if a.Result.Lease != nil {
				a.Result.Lease.Namespace = acquire.Request.Namespace
			}
		}
		return a
	}
}

// renewChangesToken gives a renewed lease another token.
func renewChangesToken() step {
	t := newTokens(func(l contract.Lease) contract.Token { return l.Token * 1000 })
	return func(m *memstore.Model, now time.Time, op memstore.Op) memstore.Answer {
		a := t.step(m, now, op)
		eachResult(&a, func(res *contract.Result) {
			if res.Outcome == contract.OutcomeRenewed && !res.Replayed {
				t.outer[res.Lease.ID]++
				res.Lease.Token++
			}
		})
		return a
	}
}

// tokenOfOwner gives an owner that comes back the token it had.
func tokenOfOwner() step {
	had := map[contract.KeyID]map[string]contract.Token{}
	return newTokens(func(l contract.Lease) contract.Token {
		if had[l.KeyID] == nil {
			had[l.KeyID] = map[string]contract.Token{}
		}
		if had[l.KeyID][l.Owner] == 0 {
			had[l.KeyID][l.Owner] = l.Token
		}
		return had[l.KeyID][l.Owner]
	}).step
}

// tokenOfInstant takes the clock for a counter: grants of one second share a
// token.
func tokenOfInstant() step {
	return newTokens(func(l contract.Lease) contract.Token { return contract.Token(l.AcquiredAt.Unix()) }).step
}

// tokenForgotten counts on from what the key's record says, and from 1 where
// there is none.
func tokenForgotten() step {
	last := map[contract.KeyID]contract.Token{}
	t := newTokens(func(l contract.Lease) contract.Token {
		last[l.KeyID]++
		return last[l.KeyID]
	})
	return func(m *memstore.Model, now time.Time, op memstore.Op) memstore.Answer {
		if acquire, ok := op.(memstore.Acquire); ok {
			r := acquire.Request
			known := m.Step(now, memstore.GetKey{Request: contract.GetKeyRequest{Namespace: r.Namespace, KeyID: r.Key.ID()}}).Key
			if known.Outcome == contract.OutcomeNotFound {
				delete(last, r.Key.ID())
			}
		}
		return t.step(m, now, op)
	}
}

// floorIgnored raises nothing.
func floorIgnored() step {
	return func(m *memstore.Model, now time.Time, op memstore.Op) memstore.Answer {
		if _, ok := op.(memstore.RaiseFloor); ok {
			return memstore.Answer{}
		}
		return m.Step(now, op)
	}
}

// floorForAll has one counter for all namespaces.
func floorForAll() step {
	var floor contract.Token
	return func(m *memstore.Model, now time.Time, op memstore.Op) memstore.Answer {
		if raise, ok := op.(memstore.RaiseFloor); ok {
			floor = max(floor, raise.Request.Above)
		}
		if acquire, ok := op.(memstore.Acquire); ok && floor > 0 {
			m.Step(now, memstore.RaiseFloor{Request: contract.RaiseFloorRequest{Namespace: acquire.Request.Namespace, Above: floor}})
		}
		return m.Step(now, op)
	}
}
