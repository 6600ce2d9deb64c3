package history

import (
	"fmt"
	"slices"
)

// revocations wants each revocation in the server's history to be one that somebody
// asked for, with its reason; whoever was told that he revoked a lease to stand there
// with his request; nobody to be told of one before it was asked for; and nothing to
// be done for the holder of a lease that somebody was told he had revoked, however
// often and under whichever request id it asks.
func (h *History) revocations(leases map[string]*lease, p Promise) []Violation {
	var bad []Violation
	for _, l := range leases {
		say := func(at int64, format string, args ...any) {
			bad = append(bad, Violation{Rule: Revocations, Key: l.key, AtNS: at, Says: fmt.Sprintf("token %d of request %s ", l.token, l.request) + fmt.Sprintf(format, args...)})
		}
		for _, e := range l.events {
			if e.Event == "revoked" && !l.mayBeRevoked(e) {
				say(0, "was revoked by request %s because %q, which nobody asked for", e.Request, e.Reason)
			}
		}
		if p.Loses {
			continue // what was revoked may have been lost, and come back
		}
		asked, over := int64(never), int64(never)
		for _, o := range l.revokes {
			if !o.certainlyNot() {
				asked = min(asked, o.CalledNS)
			}
			if o.Answer.Outcome != Revoked {
				continue
			}
			over = min(over, o.ReturnedNS)
			if !l.standsRevokedBy(o) {
				say(o.CalledNS, "was revoked, as %s was told, and the server's history does not say that it was by request %s because %q", o.ID, o.Request, o.Reason)
			}
		}
		for _, o := range l.seen() {
			switch {
			case o.Answer.Outcome == EndedRevoked && o.ReturnedNS != 0 && o.ReturnedNS < asked:
				say(o.CalledNS, "had been revoked, as %s was told, before anybody asked for it", o.ID)
			case o.CalledNS > over && (o.Answer.Outcome == Acquired || o.Answer.Outcome == Renewed || o.Answer.Outcome == Current):
				say(o.CalledNS, "had been revoked, and %s was answered %s", o.ID, o.Answer.Outcome)
			}
		}
	}
	return bad
}

// mayBeRevoked tells that a client asked for what the event says.
func (l *lease) mayBeRevoked(e Event) bool {
	return slices.ContainsFunc(l.revokes, func(o *Op) bool {
		return o.Request == e.Request && o.Reason == e.Reason && !o.certainlyNot()
	})
}

// standsRevokedBy tells that the server's history says that the call's request did it.
func (l *lease) standsRevokedBy(o *Op) bool {
	return slices.ContainsFunc(l.events, func(e Event) bool {
		return e.Event == "revoked" && e.Request == o.Request && e.Reason == o.Reason
	})
}

// seen returns the calls that were told of the lease, or presented it.
func (l *lease) seen() []*Op {
	all := slices.Concat(l.uses, l.revokes, l.checks)
	for _, o := range l.acquires {
		if o.Answer.Lease == l.id {
			all = append(all, o)
		}
	}
	return all
}
