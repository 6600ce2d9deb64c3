package raftkv

import (
	"cmp"
	"container/heap"
	"slices"
	"strings"

	"leased/contract"
)

// mostTogether is how many renewals with one request id keep their answers together.
// Each is looked through when the id comes again.
const mostTogether = 8

// bulkID names a renewal. A request id can be that of several, of other leases each.
type bulkID struct {
	ns, owner, requestID string
	index                uint64 // of its entry
}

func (a *bulkID) compare(b *bulkID) int {
	if c := compareOwner(a.ns, a.owner, b.ns, b.owner); c != 0 {
		return c
	}
	if c := strings.Compare(a.requestID, b.requestID); c != 0 {
		return c
	}
	return cmp.Compare(a.index, b.index)
}

// bulk is what the request id of a bulk renewal replays for each of its leases: an
// answer to each by itself, in the tree of them all, costs more than the renewal.
//
// That is how this node keeps them and nothing that can be seen: a snapshot has them as
// answers, in one order with the others, and a node that read one keeps them as such.
// Immutable.
type bulk struct {
	bulkID
	when  int64 // on the state's clock
	wall  int64
	drop  int64
	items []bulkItem // by scope, none empty
}

type bulkItem struct {
	scope    contract.Scope
	print    contract.Fingerprint
	g        *grant
	ttl      int64
	renewals uint64
}

// answer returns the answer to an item.
func (b *bulk) answer(i *bulkItem) answer {
	return answer{
		scope: i.scope, print: i.print, verb: contract.VerbRenew, g: i.g, drop: b.drop,
		first: &life{renewed: b.wall, expires: b.when + i.ttl, nominal: b.wall + i.ttl, ttl: i.ttl, renewals: i.renewals},
	}
}

// due returns when the first of the answers is to be forgotten.
func (b *bulk) due() due[contract.Scope] {
	return due[contract.Scope]{at: b.drop, what: b.items[0].scope}
}

func compareDue(a, b due[contract.Scope]) int {
	if c := cmp.Compare(a.at, b.at); c != 0 {
		return c
	}
	return compareScope(a.what, b.what)
}

// bulksOf returns the renewals that c may be a repetition of.
func (s *state) bulksOf(c *renewCmd) (all []*bulk) {
	id := bulkID{ns: c.Namespace, owner: c.Owner, requestID: c.RequestID}
	s.bulks.Ascend(&bulk{bulkID: id}, func(b *bulk) bool {
		if b.ns != id.ns || b.owner != id.owner || b.requestID != id.requestID {
			return false
		}
		all = append(all, b)
		return true
	})
	return all
}

// renewed returns the answer to a renewal, of which the scope is that of c's request id.
func (s *state) renewed(bulks []*bulk, scope contract.Scope) (answer, bool) {
	for _, b := range bulks {
		i, ok := slices.BinarySearchFunc(b.items, scope, func(i bulkItem, scope contract.Scope) int { return compareScope(i.scope, scope) })
		if ok {
			return b.answer(&b.items[i]), true
		}
	}
	return s.answers.Get(answer{scope: scope})
}

// newBulk returns where to gather the answers to c, or nil if each is to be kept by
// itself. Those to a lease that c names twice are: its second renewal replays the first.
// And those of which the scope is not that of the request id are, for nobody would find
// them among the answers to it.
func (st *step) newBulk(c *renewCmd, before int) *bulk {
	if len(c.Items) < 2 || before >= mostTogether {
		return nil
	}
	scopes := make([]contract.Scope, len(c.Items))
	attempt := contract.RenewRequest{Namespace: c.Namespace, Owner: c.Owner, RequestID: c.RequestID}
	for i := range c.Items {
		attempt.LeaseID = c.Items[i].LeaseID
		if scopes[i] = c.Items[i].Scope; scopes[i] != attempt.Scope() {
			return nil
		}
	}
	slices.SortFunc(scopes, compareScope)
	if len(slices.Compact(scopes)) < len(c.Items) {
		return nil
	}
	return &bulk{
		bulkID: bulkID{ns: c.Namespace, owner: c.Owner, requestID: c.RequestID, index: st.index},
		when:   st.now, wall: st.wall(), drop: st.now + c.Keep.Idempotency, items: make([]bulkItem, 0, len(c.Items)),
	}
}

// keepBulk keeps the answers that were gathered.
func (s *state) keepBulk(b *bulk) {
	if len(b.items) == 0 {
		return
	}
	// Most may have been refused, and room for theirs would be kept as long as the rest.
	b.items = append(make([]bulkItem, 0, len(b.items)), b.items...)
	slices.SortFunc(b.items, func(a, b bulkItem) int { return compareScope(a.scope, b.scope) })
	s.bulks.Set(b)
	s.bulkDrops.Set(b)
	s.bulked += len(b.items)
}

// nextAnswerDrop returns when an answer is to be forgotten next.
func (s *state) nextAnswerDrop() (next due[contract.Scope], ok bool) {
	next, ok = s.answerDrops.Min()
	if b, is := s.bulkDrops.Min(); is && (!ok || compareDue(b.due(), next) < 0) {
		return b.due(), true
	}
	return next, ok
}

// dropAnswers forgets up to limit answers that are due. Which ones is the same on every
// node, however it keeps them: in the order of their instants and scopes.
func (s *state) dropAnswers(limit int) {
	for limit > 0 {
		next, ok := s.nextAnswerDrop()
		if !ok || next.at > s.now {
			return
		}
		b, ok := s.bulkDrops.Min()
		if !ok || b.due() != next {
			s.answerDrops.Delete(next)
			s.answers.Delete(answer{scope: next.what})
			limit--
			continue
		}
		s.bulkDrops.Delete(b)
		n := min(limit, len(b.items))
		if other, ok := s.nextAnswerDrop(); ok && other.at == b.drop {
			n = 1
		}
		limit -= n
		s.bulked -= n
		if n == len(b.items) {
			s.bulks.Delete(b)
			continue
		}
		rest := *b
		rest.items = b.items[n:]
		s.bulks.Set(&rest)
		s.bulkDrops.Set(&rest)
	}
}

// eachAnswer calls f for every answer, by scope, until f fails.
func (s *state) eachAnswer(f func(answer) error) error {
	left := make(bulkHeap, 0, s.bulks.Len())
	s.bulks.Scan(func(b *bulk) bool { left = append(left, &bulkHead{scope: b.items[0].scope, of: b}); return true })
	heap.Init(&left)
	bulked := func(before func(contract.Scope) bool) error {
		for len(left) > 0 && before(left[0].scope) {
			h := left[0]
			if err := f(h.of.answer(&h.of.items[h.at])); err != nil {
				return err
			}
			if h.at++; h.at == len(h.of.items) {
				heap.Pop(&left)
				continue
			}
			h.scope = h.of.items[h.at].scope
			heap.Fix(&left, 0)
		}
		return nil
	}
	if err := each(s.answers, func(a answer) error {
		if err := bulked(func(scope contract.Scope) bool { return compareScope(scope, a.scope) < 0 }); err != nil {
			return err
		}
		return f(a)
	}); err != nil {
		return err
	}
	return bulked(func(contract.Scope) bool { return true })
}

// bulkHead is the next answer of a bulk. The scope is here too: a comparison that went
// to the items for it would wait for the memory of each.
type bulkHead struct {
	scope contract.Scope
	of    *bulk
	at    int
}

// bulkHeap has the head with the lowest scope first, for container/heap.
type bulkHeap []*bulkHead

func (h bulkHeap) Len() int           { return len(h) }
func (h bulkHeap) Less(i, j int) bool { return compareScope(h[i].scope, h[j].scope) < 0 }
func (h bulkHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *bulkHeap) Push(x any)        { *h = append(*h, x.(*bulkHead)) } //nolint:errcheck,forcetypeassert // ours
func (h *bulkHeap) Pop() any {
	last := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return last
}
