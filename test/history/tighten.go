package history

import (
	"cmp"
	"slices"
)

// tighten narrows the time in which each step can have happened to what tokens leave of
// it. It takes no order away: tokens rise, so what needs a lease to be active lies behind
// its grant, and before the grant of every higher token. A grant that nobody was told of,
// or whatever else was never answered, could otherwise have happened as late as the
// history ends, and tens of those are more orders than can be tried.
//
// It is left undone where a step has no time left. Then there is no order, and the search
// says so better.
func tighten(steps []*step, leases map[string]*lease) {
	narrowed := make([]step, len(steps))
	within := make([]*step, 0, len(steps)) // those that need their lease to be active
	grants := map[uint64]*step{}
	over := map[uint64]*step{}
	// A request that was undone and repeated has two leases of one instance: which of
	// them a conflict was with is not known.
	byInstance := map[string][]uint64{}
	for _, l := range leases {
		byInstance[l.instance] = append(byInstance[l.instance], l.token)
	}
	for i, s := range steps {
		narrowed[i] = *s
		n := &narrowed[i]
		switch n.what {
		case conflict:
			if tokens := byInstance[n.holder]; len(tokens) == 1 {
				n.token = tokens[0]
				within = append(within, n)
			}
		case grant:
			grants[n.token] = n
			within = append(within, n)
		case release, revocation:
			over[n.token] = n
			within = append(within, n)
		case renewal, active:
			within = append(within, n)
		case expired, released, revoked, stale, untouched:
		}
	}
	slices.SortFunc(within, func(a, b *step) int { return cmp.Compare(a.token, b.token) })
	narrow(within, grants)
	for i := range narrowed {
		// Who was told that a lease is released was told so after it was.
		n := &narrowed[i]
		if end := over[n.token]; end != nil && (n.what == released || n.what == revoked) {
			end.ends = min(end.ends, n.ends)
		}
	}
	for i := range narrowed {
		if narrowed[i].called > narrowed[i].ends {
			return
		}
	}
	for i, s := range steps {
		s.called, s.ends = narrowed[i].called, narrowed[i].ends
	}
}

// narrow is tighten for steps that are sorted by their tokens.
func narrow(within []*step, grants map[uint64]*step) {
	for _, s := range within {
		if g := grants[s.token]; g != nil {
			g.ends = min(g.ends, s.ends)
		}
	}
	// Not before any step of a lower token was called.
	lower, same := int64(0), int64(0)
	for i, s := range within {
		if i > 0 && within[i-1].token != s.token {
			lower = max(lower, same)
		}
		same = max(same, s.called)
		s.called = max(s.called, lower)
	}
	for _, s := range within {
		if g := grants[s.token]; g != nil {
			s.called = max(s.called, g.called)
		}
	}
	// And before every grant of a higher one has been.
	higher, own := int64(never), int64(never)
	for i, s := range slices.Backward(within) {
		if i < len(within)-1 && within[i+1].token != s.token {
			higher, own = min(higher, own), never
		}
		if s.what == grant {
			own = min(own, s.ends)
		}
		s.ends = min(s.ends, higher)
	}
}
