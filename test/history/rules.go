package history

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"
)

// Violation is what no service that keeps the law does.
type Violation struct {
	Rule string
	Key  string
	Says string
	// AtNS is when it was seen, 0 if that cannot be said.
	AtNS int64
	// Linearisation is what porcupine found, where it found that there is none.
	Linearisation *porcupine.LinearizationInfo
}

// String names rule and key.
func (v Violation) String() string { return fmt.Sprintf("%s: key %s: %s", v.Rule, v.Key, v.Says) }

// Draw writes what porcupine can show of the search for an order.
func (v Violation) Draw(path string) error {
	return porcupine.VisualizePath(model(), *v.Linearisation, path)
}

// The rules.
const (
	Linearisable = "linearisable" // one order of all calls explains all answers
	Exclusive    = "exclusive"    // no two hold a key at the same time
	TokensRise   = "tokens-rise"  // each grant has a higher token than all before it
	GrantedOnce  = "granted-once" // each grant stands in the server's history, once
	NotApplied   = "not-applied"  // what was certainly not applied never shows
	OnTime       = "on-time"      // a lease ends late by no more than is declared
	Revocations  = "revocations"  // what was revoked is over, and was revoked as asked
	Compared     = "compared"     // nothing is done for who presents another token
	RequestIDs   = "request-ids"  // a request id stands for one request and one lease
	Fenced       = "fenced"       // the register never takes an older token
	NoDefect     = "no-defect"    // nothing is answered with an internal error
)

// checkTime bounds the search for an order of one key's calls.
const checkTime = 30 * time.Second

// Check returns every violation.
func (h *History) Check(p Promise) []Violation {
	leases := h.leases()
	var all []Violation
	all = append(all, h.tokensRise(leases, p)...)
	all = append(all, h.notApplied(leases)...)
	all = append(all, h.compared(leases, p)...)
	all = append(all, h.revocations(leases, p)...)
	all = append(all, h.fenced()...)
	all = append(all, h.noDefect()...)
	if p.Loses {
		return all
	}
	all = append(all, h.exclusive(leases)...)
	all = append(all, h.grantedOnce(leases)...)
	all = append(all, h.requestIDs()...)
	all = append(all, h.onTime(leases, p)...)
	return append(all, h.linearisable(leases)...)
}

// Keys returns the keys of the history, in order.
func (h *History) Keys() []string {
	keys := map[string]bool{}
	for i := range h.Ops {
		keys[h.Ops[i].Key] = true
	}
	return slices.Sorted(maps.Keys(keys))
}

func (h *History) linearisable(leases map[string]*lease) []Violation {
	var bad []Violation
	for _, key := range h.Keys() {
		var ops []porcupine.Operation
		steps := h.settle(key, leases)
		tighten(steps, leases)
		for i, s := range steps {
			ops = append(ops, porcupine.Operation{ClientId: i, Input: s, Call: s.called, Return: s.ends})
		}
		result, info := porcupine.CheckOperationsVerbose(model(), ops, checkTime)
		switch result {
		case porcupine.Illegal:
			says, at := explain(info, steps)
			bad = append(bad, Violation{Rule: Linearisable, Key: key, Says: says, AtNS: at, Linearisation: &info})
		case porcupine.Unknown:
			bad = append(bad, Violation{Rule: Linearisable, Key: key, Says: fmt.Sprintf("no order of %d steps was found in %v, nor that there is none", len(ops), checkTime)})
		case porcupine.Ok:
		}
	}
	return bad
}

// explain names the first step that the longest order which was found does not have.
func explain(info porcupine.LinearizationInfo, steps []*step) (says string, at int64) {
	var longest []porcupine.Operation
	for _, partition := range info.PartialLinearizationsOperations() {
		for _, order := range partition {
			if len(order) > len(longest) {
				longest = order
			}
		}
	}
	in := map[any]bool{}
	var state any = keyState{}
	for _, o := range longest {
		in[o.Input] = true
		_, state = model().Step(state, o.Input, nil)
	}
	var missing *step
	for _, s := range steps {
		if !in[s] && (missing == nil || s.ends < missing.ends) {
			missing = s
		}
	}
	return fmt.Sprintf("no order of the calls explains %q of %d to %d: the longest has %d of %d, after which the key is %+v",
		missing, missing.called, missing.ends, len(longest), len(steps), state), missing.called
}

// exclusive compares the times in which holders could rely on what they were told:
// from the answer of the grant to what is left of it counted from before it was asked
// for, or to the release, or to when somebody else had it ended. Nor may it be told to be
// over within that time: next to nobody may be there to be granted it then.
func (h *History) exclusive(leases map[string]*lease) []Violation {
	type span struct {
		l        *lease
		from, to int64
	}
	var bad []Violation
	spans := map[string][]span{}
	for _, l := range leases {
		s := span{l: l, from: never}
		told := func(o *Op) {
			s.to = max(s.to, o.CalledNS+o.Answer.ExpiresInMS*millisecond-resolution)
		}
		for _, o := range l.acquires {
			if o.granted() && o.Answer.Lease == l.id {
				s.from = min(s.from, o.ReturnedNS)
				told(o)
			}
		}
		for _, o := range l.uses {
			if o.Answer.Outcome == Renewed {
				told(o)
			}
		}
		for _, o := range l.uses {
			if o.Verb == Release && !o.certainlyNot() && o.Token == l.token {
				s.to = min(s.to, o.CalledNS)
			}
		}
		for _, o := range l.revokes {
			if !o.certainlyNot() && o.Answer.Outcome != NotFound {
				s.to = min(s.to, o.CalledNS)
			}
		}
		if s.from < s.to {
			spans[l.key] = append(spans[l.key], s)
		}
		for _, o := range slices.Concat(l.acquires, l.uses, l.checks) {
			if o.Answer.Outcome == EndedExpired && s.from < o.CalledNS && o.ReturnedNS < s.to {
				bad = append(bad, Violation{Rule: Exclusive, Key: l.key, AtNS: o.CalledNS, Says: fmt.Sprintf(
					"token %d was told to be over (by %d, to %s) while it could be relied on (from %d to %d)", l.token, o.ReturnedNS, o.ID, s.from, s.to)})
			}
		}
	}
	for key, held := range spans {
		slices.SortFunc(held, func(a, b span) int { return cmp.Compare(a.from, b.from) })
		for i := 1; i < len(held); i++ {
			if a, b := held[i-1], held[i]; b.from < a.to {
				bad = append(bad, Violation{Rule: Exclusive, Key: key, AtNS: b.from, Says: fmt.Sprintf(
					"token %d was granted (by %d) while token %d could be relied on (from %d to %d)", b.l.token, b.from, a.l.token, a.from, a.to)})
			}
		}
	}
	return bad
}

// tokensRise compares each grant with those that were answered before it was asked
// for, and wants each token to be one lease's. It takes nothing from the server's
// history, and holds when that was lost. A lease has one token, too, unless a grant was
// lost: then its request may be granted anew under the same lease id.
func (h *History) tokensRise(leases map[string]*lease, p Promise) []Violation {
	var bad []Violation
	for _, key := range h.Keys() {
		var grants []*Op
		owner := map[uint64]string{}
		for i := range h.Ops {
			o := &h.Ops[i]
			if o.Key != key || !o.granted() {
				continue
			}
			if had := owner[o.Answer.Token]; had != "" && had != o.Answer.Lease {
				bad = append(bad, Violation{Rule: TokensRise, Key: key, AtNS: o.CalledNS, Says: fmt.Sprintf("token %d is that of two leases", o.Answer.Token)})
			}
			owner[o.Answer.Token] = o.Answer.Lease
			if l := leases[o.Answer.Lease]; l.token != o.Answer.Token && !p.Loses {
				bad = append(bad, Violation{Rule: TokensRise, Key: key, AtNS: o.CalledNS, Says: fmt.Sprintf("lease %s has tokens %d and %d", l.id, l.token, o.Answer.Token)})
			}
			if !o.Answer.Replayed {
				grants = append(grants, o)
			}
		}
		bad = append(bad, rising(key, grants)...)
	}
	return bad
}

// rising goes by the answers: of a grant that was answered before another was asked
// for, the token is lower.
func rising(key string, grants []*Op) []Violation {
	byReturn := slices.SortedFunc(slices.Values(grants), func(a, b *Op) int { return cmp.Compare(a.ReturnedNS, b.ReturnedNS) })
	slices.SortFunc(grants, func(a, b *Op) int { return cmp.Compare(a.CalledNS, b.CalledNS) })
	var bad []Violation
	var high *Op
	for _, o := range grants {
		for len(byReturn) > 0 && byReturn[0].ReturnedNS < o.CalledNS {
			if high == nil || byReturn[0].Answer.Token > high.Answer.Token {
				high = byReturn[0]
			}
			byReturn = byReturn[1:]
		}
		if high != nil && o.Answer.Token <= high.Answer.Token && o.Answer.Lease != high.Answer.Lease {
			bad = append(bad, Violation{Rule: TokensRise, Key: key, AtNS: o.CalledNS, Says: fmt.Sprintf(
				"%s was granted token %d after %s was granted token %d", o.ID, o.Answer.Token, high.ID, high.Answer.Token)})
		}
	}
	return bad
}
