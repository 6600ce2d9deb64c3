package etcd

import (
	"sync"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// hintLimit is how many keys a store remembers.
const hintLimit = 1 << 14

// hints has what this store last saw of keys: a guess at what they are now. A
// call builds its transaction on the guess, and the transaction compares all of
// it and reads the key if it is wrong. Nobody is refused anything on a guess.
type hints struct {
	mu     sync.Mutex
	keys   map[keyRef]*record // the heads
	floors map[string]floorHint
}

type floorHint struct{ floor, mod, rev int64 }

func newHints() *hints {
	return &hints{keys: map[keyRef]*record{}, floors: map[string]floorHint{}}
}

// wrote notes a head that this store wrote.
func (h *hints) wrote(ref keyRef, r *record) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if old := h.keys[ref]; old != nil && old.rev >= r.rev {
		return
	}
	if len(h.keys) >= hintLimit {
		for other := range h.keys { // any will do
			delete(h.keys, other)
			break
		}
	}
	h.keys[ref] = r
}

// read notes a state that was read.
func (h *hints) read(st *state) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if f := h.floors[st.ref.ns]; st.want.queue && f.rev < st.rev {
		h.floors[st.ref.ns] = floorHint{st.floor, st.floorMod, st.rev}
	}
	if old := h.keys[st.ref]; old != nil && old.rev < st.headMod {
		delete(h.keys, st.ref)
	}
}

// clear forgets everything.
func (h *hints) clear() {
	h.mu.Lock()
	defer h.mu.Unlock()
	clear(h.keys)
	clear(h.floors)
}

// wroteSince tells whether this store wrote the head of a key after a revision, as
// far as it remembers.
func (h *hints) wroteSince(ref keyRef, rev int64) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	head := h.keys[ref]
	return head != nil && head.rev > rev
}

func (h *hints) forget(ref keyRef) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.keys, ref)
}

// state returns a guess at the key's state, or nil.
func (h *hints) state(ref keyRef, w want) *state {
	h.mu.Lock()
	defer h.mu.Unlock()
	head := h.keys[ref]
	f, ok := h.floors[ref.ns]
	if head == nil || w.queue && !ok || w.owner != "" {
		return nil
	}
	st := &state{
		ref: ref, want: w, rev: max(f.rev, head.rev), guess: true,
		head: head, headMod: head.rev, queue: &queue{}, floor: f.floor, floorMod: f.mod,
	}
	if !head.State.Terminal() {
		st.aliveMod = head.aliveRev
		if head.Life != 0 {
			st.lifeMod = head.lifeRev
		}
	}
	return st
}

// guessed compares what a guess cannot know: that the request id was not
// answered.
func (s *Store) guessed(st *state, cmps []clientv3.Cmp) []clientv3.Cmp {
	if !st.guess {
		return cmps
	}
	return append(cmps, clientv3.Compare(clientv3.CreateRevision(s.names.answer(st.want.scope)), "=", 0))
}
