package raftkv

import (
	"cmp"

	"leased/contract"
)

// endedLease is a row of the history tree.
type endedLease struct {
	*lease
	// place is what rows are sorted by. It repeats what the lease says, so that
	// a search reads the tree's nodes and not, at each step, three records.
	place endedPlace
	drop  int64 // when the row is looked at: it may go, or stays for the history
}

type endedPlace struct {
	of    *ident
	token uint64
}

func newEnded(l *lease, drop int64) endedLease {
	return endedLease{lease: l, place: endedPlace{of: l.ident, token: l.token}, drop: drop}
}

// endedAt is the row to search for: the key's with the token.
func endedAt(of *ident, token uint64) endedLease {
	return endedLease{place: endedPlace{of: of, token: token}}
}

func compareEnded(a, b endedLease) int {
	if c := a.place.of.compare(b.place.of); c != 0 {
		return c
	}
	return cmp.Compare(a.place.token, b.place.token)
}

// hasEnded tells whether an ended lease of the key is kept, if only for an
// answer that refers to it.
func (s *state) hasEnded(id *ident) bool {
	found := false
	s.ended.Ascend(endedAt(id, 0), func(e endedLease) bool {
		found = e.place.of.compare(id) == 0
		return false
	})
	return found
}

// endedByToken returns the ended lease of the key with the token.
func (s *state) endedByToken(id *ident, token uint64) *lease {
	e, _ := s.ended.Get(endedAt(id, token))
	return e.lease
}

// eachVisible calls f with the ended leases in the key's history, newest first,
// until f returns false.
func (s *state) eachVisible(ks *keyState, f func(*lease) bool) {
	left := ks.visible
	pivot := endedAt(ks.ident, uint64(contract.MaxToken)+1)
	s.ended.Descend(pivot, func(e endedLease) bool {
		if left == 0 || e.place.of.compare(ks.ident) != 0 {
			return false
		}
		left--
		return f(e.lease)
	})
}
