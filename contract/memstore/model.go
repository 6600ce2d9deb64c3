package memstore

import (
	"bytes"
	"cmp"
	"maps"
	"reflect"
	"slices"
	"time"

	"leased/contract"
)

// Model is the state of a store. NewModel makes one.
type Model struct {
	now     time.Time
	ring    int    // events that a namespace keeps for its streams
	seq     uint64 // number of the newest event, over all namespaces
	spaces  map[string]*space
	keys    map[keyRef]*keyState
	answers map[contract.Scope]*answer

	// Of the step that runs, empty in between.
	events []contract.Event
	wakes  []Wake
}

// space is what the keys of a namespace share.
type space struct {
	token  contract.Token   // the highest granted, or the floor when that is higher
	stream []contract.Event // the newest, oldest first, renewals included
	lost   uint64           // number of the newest event that the stream no longer holds
}

type keyRef struct {
	namespace string
	id        contract.KeyID
}

// keyState is what is known of one key.
type keyState struct {
	key  contract.Key
	keep contract.Retention // of the latest request that changed something
	// leases has the grants in order. All but the last have ended. ExpiresIn is
	// zero in them: view computes it.
	leases  []contract.Lease
	history []contract.Event // oldest first
	queue   []place          // first come first
}

// place is a request id's place in the queue of a key.
type place struct {
	scope       contract.Scope
	fingerprint contract.Fingerprint
	request     contract.AcquireRequest
	nonce       [16]byte
	// calls that wait here. A place without any is away: it is skipped when its
	// turn comes.
	calls  []CallID
	leftAt time.Time // when the last call left
}

// answer is what a scope was told when it changed something.
type answer struct {
	verb        contract.Verb
	fingerprint contract.Fingerprint
	ref         keyRef
	leaseID     contract.LeaseID
	first       contract.Result // not used for an acquire, which shows the lease as it is now
	at          time.Time
	keep        time.Duration
}

// NewModel returns an empty store that keeps the newest ring events of each
// namespace for streams.
func NewModel(ring int) *Model {
	return &Model{
		ring:    ring,
		spaces:  map[string]*space{},
		keys:    map[keyRef]*keyState{},
		answers: map[contract.Scope]*answer{},
	}
}

// Clone returns a copy that shares nothing that changes.
func (m *Model) Clone() *Model {
	c := *m
	c.spaces = make(map[string]*space, len(m.spaces))
	for name, s := range m.spaces {
		c.spaces[name] = &space{token: s.token, stream: slices.Clone(s.stream), lost: s.lost}
	}
	c.keys = make(map[keyRef]*keyState, len(m.keys))
	for ref, k := range m.keys {
		kc := *k
		kc.leases = slices.Clone(k.leases)
		kc.history = slices.Clone(k.history)
		kc.queue = slices.Clone(k.queue)
		for i := range kc.queue {
			kc.queue[i].calls = slices.Clone(kc.queue[i].calls)
		}
		c.keys[ref] = &kc
	}
	c.answers = maps.Clone(m.answers)
	return &c
}

// Equal reports whether both hold the same.
func (m *Model) Equal(o *Model) bool {
	same := func(a, b *keyState) bool {
		return a.key == b.key && a.keep == b.keep && slices.Equal(a.history, b.history) &&
			slices.EqualFunc(a.leases, b.leases, func(a, b contract.Lease) bool { return reflect.DeepEqual(a, b) }) &&
			slices.EqualFunc(a.queue, b.queue, func(a, b place) bool { return reflect.DeepEqual(a, b) })
	}
	return m.now.Equal(o.now) && m.ring == o.ring && m.seq == o.seq &&
		maps.EqualFunc(m.keys, o.keys, same) &&
		maps.EqualFunc(m.answers, o.answers, func(a, b *answer) bool { return reflect.DeepEqual(a, b) }) &&
		maps.EqualFunc(m.spaces, o.spaces, func(a, b *space) bool {
			return a.token == b.token && a.lost == b.lost && slices.Equal(a.stream, b.stream)
		})
}

// Step implements Machine.
func (m *Model) Step(now time.Time, op Op) Answer {
	now = now.UTC().Round(0)
	if now.After(m.now) {
		m.now = now
		m.expire()
		m.forget()
	}
	a := op.apply(m)
	a.Events, a.Wakes = m.events, m.wakes
	m.events, m.wakes = nil, nil
	return a
}

// NextExpiry implements Machine.
func (m *Model) NextExpiry() (time.Time, bool) {
	var next time.Time
	for _, k := range m.keys {
		if l := k.active(); l != nil && (next.IsZero() || l.ExpiresAt.Before(next)) {
			next = l.ExpiresAt
		}
	}
	return next, !next.IsZero()
}

// expire ends every lease whose time is over. All of them end before the first
// waiter is served: a lease that is over does not count in a quota.
func (m *Model) expire() {
	var due []*keyState
	for _, k := range m.keys {
		if l := k.active(); l != nil && !l.ExpiresAt.After(m.now) {
			due = append(due, k)
		}
	}
	slices.SortFunc(due, func(a, b *keyState) int {
		la, lb := a.active(), b.active()
		return cmp.Or(la.ExpiresAt.Compare(lb.ExpiresAt),
			cmp.Compare(la.Namespace, lb.Namespace), bytes.Compare(la.KeyID[:], lb.KeyID[:]))
	})
	for _, k := range due {
		m.end(k, contract.StateExpired, k.active().ExpiresAt, cause{})
	}
	for _, k := range due {
		m.serve(k)
	}
}

// forget drops what nobody can ask for any more.
func (m *Model) forget() {
	needed := map[contract.LeaseID]bool{}
	maps.DeleteFunc(m.answers, func(_ contract.Scope, a *answer) bool {
		if m.now.Sub(a.at) > a.keep {
			return true
		}
		needed[a.leaseID] = true
		return false
	})
	maps.DeleteFunc(m.keys, func(_ keyRef, k *keyState) bool {
		k.history = slices.DeleteFunc(k.history, func(ev contract.Event) bool {
			return m.now.Sub(ev.At) >= k.keep.History
		})
		k.queue = slices.DeleteFunc(k.queue, func(p place) bool {
			return p.away() && m.now.Sub(p.leftAt) > p.request.Retention.Idempotency
		})
		k.leases = slices.DeleteFunc(k.leases, func(l contract.Lease) bool {
			return !k.remembers(&l) && !needed[l.ID]
		})
		return len(k.leases) == 0
	})
}

// active returns the lease that holds the key, or nil.
func (k *keyState) active() *contract.Lease {
	if k == nil || len(k.leases) == 0 {
		return nil
	}
	if l := &k.leases[len(k.leases)-1]; l.State == contract.StateActive {
		return l
	}
	return nil
}

// remembers reports whether the lease can still be asked for. Every method that
// takes a lease id goes by this; an answer may remember the lease for longer,
// but only to its own request id.
func (k *keyState) remembers(l *contract.Lease) bool {
	return l.State == contract.StateActive ||
		slices.ContainsFunc(k.history, func(ev contract.Event) bool { return ev.LeaseID == l.ID })
}

// lease returns the lease with the id, remembered or not, or nil.
func (k *keyState) lease(id contract.LeaseID) *contract.Lease {
	if k == nil {
		return nil
	}
	for i := range k.leases {
		if k.leases[i].ID == id {
			return &k.leases[i]
		}
	}
	return nil
}

// find returns the key that the lease id leads to and the lease, nil unless it
// is remembered.
func (m *Model) find(namespace string, id contract.LeaseID) (*keyState, *contract.Lease) {
	k := m.keys[keyRef{namespace, id.KeyID()}]
	if l := k.lease(id); l != nil && k.remembers(l) {
		return k, l
	}
	return k, nil
}

// space returns what the namespace's keys share.
func (m *Model) space(namespace string) *space {
	s := m.spaces[namespace]
	if s == nil {
		s = &space{}
		m.spaces[namespace] = s
	}
	return s
}

// view returns the lease as an answer shows it now.
func (m *Model) view(l *contract.Lease) *contract.Lease {
	c := l.Clone()
	if c.State == contract.StateActive {
		c.ExpiresIn = c.ExpiresAt.Sub(m.now)
	}
	return &c
}

// away reports whether nobody waits at the place.
func (p *place) away() bool { return len(p.calls) == 0 }
