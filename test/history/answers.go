package history

import (
	"fmt"
	"slices"
	"time"
)

// grantedOnce wants each grant that a client was told of in the server's history,
// once and with its token, and no lease to have ended twice.
func (h *History) grantedOnce(leases map[string]*lease) []Violation {
	var bad []Violation
	for _, l := range leases {
		say := func(format string, args ...any) {
			bad = append(bad, Violation{Rule: GrantedOnce, Key: l.key, Says: fmt.Sprintf("token %d of request %s ", l.token, l.request) + fmt.Sprintf(format, args...)})
		}
		if n := l.has("acquired"); n != 1 {
			say("stands in the server's history %d times", n)
		}
		for _, e := range l.events {
			if e.Token != l.token || e.Key != l.key {
				say("stands in the server's history with token %d of key %s", e.Token, e.Key)
			}
		}
		if n := l.has("released") + l.has("expired") + l.has("revoked"); n > 1 {
			say("ended %d times", n)
		}
		if l.has("released") > 0 && !l.mayBeReleased() {
			say("was released, which nobody asked for")
		}
		told := 0
		for _, o := range l.uses {
			if o.Verb == Release && o.Answer.Outcome == Released {
				told++
			}
		}
		if told > 0 && l.has("released") == 0 {
			say("was released, as a client was told, and the server's history does not say so")
		}
	}
	return bad
}

// mayBeReleased tells that a client asked for it, or that its grant can have been
// undone because it crossed the end of its wait.
func (l *lease) mayBeReleased() bool {
	for _, o := range l.uses {
		if o.Verb == Release && o.Token == l.token && !o.certainlyNot() {
			return true
		}
	}
	for _, o := range l.acquires {
		if o.granted() && o.Answer.Lease == l.id {
			return false
		}
	}
	return true
}

// notApplied wants a request that was certainly not applied, whenever it was sent,
// not to have been granted anything, and nobody to be told again what nobody can have
// been told before. A conflict is an answer as well: if it was no, no lease of the
// request is left. A grant that crosses the end of a wait is taken back. A node of a
// cluster that loses the leader asks again for who waits, and is told again itself.
func (h *History) notApplied(leases map[string]*lease) []Violation {
	var bad []Violation
	for _, l := range leases {
		last, may, unheard := "nobody", false, l.unheard()
		for _, o := range l.acquires {
			told := o.Answer.Lease == l.id
			may = may || o.unknown() || told && (!o.Answer.Replayed || o.WaitMS > 0 || l.copied(o)) || unheard && o.mayCross(l)
			if !told {
				last = o.ID + ", who was told " + o.Answer.Outcome
			}
		}
		if !may {
			bad = append(bad, Violation{Rule: NotApplied, Key: l.key, Says: fmt.Sprintf("token %d was granted to request %s of %s", l.token, l.request, last)})
		}
	}
	return bad
}

// copied tells that another call of the same request was under way at the same time and
// was told of the lease as well: one of the two did the work.
func (l *lease) copied(o *Op) bool {
	return slices.ContainsFunc(l.acquires, func(c *Op) bool {
		return c != o && c.Answer.Lease == l.id && c.CalledNS < o.ReturnedNS && o.CalledNS < c.ReturnedNS
	})
}

// compared wants a call that presents another token than its lease's to be refused,
// and one that presents the right one not to be refused for that.
func (h *History) compared(leases map[string]*lease, p Promise) []Violation {
	var bad []Violation
	for _, l := range leases {
		for _, o := range l.uses {
			right := slices.Contains(l.tokens, o.Token)
			refused := o.Answer.Outcome == StaleToken || o.Answer.Outcome == NotOwner
			if p.Loses {
				refused = false // the request may have been granted again, under the same lease id
			}
			if right && !refused || !right && !o.done() {
				continue
			}
			bad = append(bad, Violation{Rule: Compared, Key: l.key, AtNS: o.CalledNS, Says: fmt.Sprintf(
				"%s was answered %s for token %d of the lease with token %d", o.Verb, o.Answer.Outcome, o.Token, l.token)})
		}
	}
	return bad
}

// requestIDs wants a request id to stand for what was granted to it first: with
// another job it is refused, and with the same one there is no second lease.
func (h *History) requestIDs() []Violation {
	var bad []Violation
	first := map[string]*Op{}
	for i := range h.Ops {
		o := &h.Ops[i]
		if o.granted() && (first[o.Request] == nil || o.ReturnedNS < first[o.Request].ReturnedNS) {
			first[o.Request] = o
		}
	}
	for i := range h.Ops {
		o := &h.Ops[i]
		f := first[o.Request]
		if o.Verb != Acquire || f == nil {
			continue
		}
		say := func(what string) {
			bad = append(bad, Violation{Rule: RequestIDs, Key: o.Key, AtNS: o.CalledNS, Says: fmt.Sprintf(
				"%s repeated request %s, which was granted token %d, and was answered %s: %s", o.ID, o.Request, f.Answer.Token, o.Answer.Outcome, what)})
		}
		same := o.Job == f.Job
		after := o.CalledNS > f.ReturnedNS
		switch {
		case o.unknown() || o.certainlyNot():
		case o.granted() && o.Answer.Lease != f.Answer.Lease:
			say("a second lease")
		case !same && o.granted():
			say("it asked for something else")
		case !same && after && o.Answer.Outcome != Reused:
			say("it asked for something else, and was not told so")
		case same && o.Answer.Outcome == Reused:
			say("it asked for the same")
		case same && after && (o.Answer.Outcome == Conflict || o.granted() && !o.Answer.Replayed):
			say("the answer was not the first one again")
		}
	}
	return bad
}

func (h *History) noDefect() []Violation {
	var bad []Violation
	for i := range h.Ops {
		if o := &h.Ops[i]; o.Answer.Outcome == Internal || o.Answer.Outcome == Invalid {
			bad = append(bad, Violation{Rule: NoDefect, Key: o.Key, AtNS: o.CalledNS, Says: fmt.Sprintf("%s was answered %s: %s", o.ID, o.Answer.Outcome, o.Answer.Detail)})
		}
	}
	return bad
}

// onTime wants nobody to be told that a lease is held after the latest instant at
// which it can have begun, its TTL and what is allowed on top. Of a renewal without
// an answer nobody knows when it happened: such leases are left out.
func (h *History) onTime(leases map[string]*lease, p Promise) []Violation {
	byInstance := map[string]*lease{}
	latest := map[*lease]int64{}
	for _, l := range leases {
		if end, ok := l.latestEnd(); ok {
			latest[l], byInstance[l.instance] = end, l
		}
	}
	var bad []Violation
	for i := range h.Ops {
		o := &h.Ops[i]
		var l *lease
		switch o.Answer.Outcome {
		case Conflict:
			l = byInstance[o.Answer.Holder]
		case Renewed:
			l = leases[o.Lease]
		case Current:
			l = leases[o.Answer.Lease]
		}
		end, known := latest[l]
		if l == nil || !known || l.key != o.Key {
			continue
		}
		called := o.CalledNS
		if o.WaitMS > 0 {
			continue // the holder was one of any moment of the wait
		}
		if late := called - end; late > int64(p.Slack)+h.allowed(l, called, p) {
			bad = append(bad, Violation{Rule: OnTime, Key: l.key, AtNS: called, Says: fmt.Sprintf(
				"%s was answered %s for token %d %v after it should have ended, %v are declared", o.ID, o.Answer.Outcome, l.token, time.Duration(late), p.Slack)})
		}
	}
	return bad
}

// latestEnd returns the latest instant at which the lease's TTL can have passed, not
// ok if that cannot be told.
func (l *lease) latestEnd() (end int64, ok bool) {
	latest := func(o *Op) { end, ok = max(end, o.ReturnedNS+o.Answer.TTLMS*millisecond), true }
	for _, replays := range []bool{false, true} { // those only where the first answer was lost
		for _, o := range l.acquires {
			if o.granted() && o.Answer.Lease == l.id && o.Answer.Replayed == replays && (!replays || !ok) {
				latest(o)
			}
		}
	}
	for _, o := range l.uses {
		switch {
		case o.Verb == Renew && o.unknown():
			return 0, false
		case o.Answer.Outcome == Renewed:
			latest(o)
		}
	}
	return end, ok
}

// allowed is how much later a lease may end because of the faults between its grant
// and an instant.
func (h *History) allowed(l *lease, until int64, p Promise) int64 {
	var more int64
	from := int64(never)
	for _, o := range l.acquires {
		from = min(from, o.CalledNS)
	}
	for _, f := range h.Faults {
		if !f.Harmless && f.FromNS < until && f.ToNS > from {
			more += f.ToNS - f.FromNS + int64(p.FaultSlack)
		}
	}
	return more
}
