package raftkv

import (
	"bytes"
	"cmp"
	"strings"

	"github.com/tidwall/btree"

	"leased/contract"
)

// pos is an event's place in the log: the entry, and which event of that entry.
type pos struct {
	index uint64
	n     uint32
}

func (p pos) compare(q pos) int {
	if c := cmp.Compare(p.index, q.index); c != 0 {
		return c
	}
	return cmp.Compare(p.n, q.n)
}

// ident is a key in a namespace. It is shared by everything that belongs to the
// key, and immutable.
type ident struct {
	ns  string
	key contract.Key
	id  contract.KeyID
}

func (a *ident) compare(b *ident) int {
	if a == b {
		return 0
	}
	if c := strings.Compare(a.ns, b.ns); c != 0 {
		return c
	}
	return bytes.Compare(a.id[:], b.id[:])
}

// grant is what does not change during the life of a lease. Immutable.
type grant struct {
	*ident
	nonce       [16]byte
	token       uint64
	at          pos   // of the acquired event
	wall        int64 // acquired at, wall clock, Unix ns
	cap         int64 // last possible expiry on the state's clock
	maxLifetime int64
	keepAnswer  int64 // how long the acquire's answer is kept once the lease is over
	scope       contract.Scope
	owner       string
	instance    string
	executionID string
	jobID       string
	traceID     string
	requestID   string
	metadata    []string
}

// when returns the instant of the grant on the state's clock.
func (g *grant) when() int64 { return g.cap - g.maxLifetime }

func (g *grant) leaseID() contract.LeaseID { return contract.NewLeaseID(g.id, g.nonce) }

// life is what a renewal changes.
type life struct {
	renewed  int64 // wall clock, Unix ns
	expires  int64 // on the state's clock: what decides
	nominal  int64 // what expires_at was said to be, wall clock, Unix ns
	ttl      int64
	renewals uint64
}

// ending is how a lease ended. Immutable.
type ending struct {
	state     contract.State
	at        pos   // of the ending's event
	when      int64 // recorded at, on the state's clock
	wall      int64 // recorded at, wall clock, Unix ns
	late      int64 // expiry only: ns after the end
	by        string
	reason    string
	requestID string
	traceID   string
}

// lease is a grant at one moment. Immutable: a change makes a new one.
type lease struct {
	*grant
	life
	// answersUntil is the latest instant until which a stored answer refers to
	// this lease; its record is kept at least as long.
	answersUntil int64
	// attach names the place in the queue that was served with this grant, as
	// long as nobody is known to have taken it: only then may it be undone.
	attach uint64
	end    *ending // nil while active
}

func (l *lease) state() contract.State {
	if l.end == nil {
		return contract.StateActive
	}
	return l.end.state
}

// keyState is what is known of a key. Immutable.
type keyState struct {
	*ident
	active *lease // nil when the key is free
	last   *lease // ended last; nil when forgotten
	// The history shows the newest visible ended leases. Older ones that an
	// answer still refers to stay in the tree, hidden. oldest is the token of
	// the oldest visible one.
	visible int32
	oldest  uint64
	perKey  int32 // events kept, by the latest request
	keep    int64 // how long, by the latest request
	// places counts the queue, present those whose caller is there.
	places  int32
	present int32
}

// shows tells whether the key's history shows the ended lease with the token.
func (ks *keyState) shows(token uint64) bool { return ks.visible > 0 && token >= ks.oldest }

// answer is what a request id replays.
type answer struct {
	scope contract.Scope
	print contract.Fingerprint
	g     *grant
	first *life // renew: the first answer
	drop  int64 // 0 for an acquire: kept as long as its lease is active, and keepAnswer longer
	verb  contract.Verb
}

// waiter is a place in a key's queue. Immutable.
type waiter struct {
	*ident
	seq    uint64 // index of the entry that made the place: the order of service
	attach uint64 // index of the entry that last brought the caller; 0 = away
	drop   int64  // away: when the place is forgotten
	cmd    *acquireCmd
}

// due is an entry of an agenda: something to do with a key or a scope at an
// instant.
type due[T any] struct {
	at   int64
	what T
}

// nsState is what is counted per namespace. Immutable.
type nsState struct {
	name    string
	floor   uint64
	active  int64
	waiters int64 // present ones
}

// ownerState counts the active leases of an owner in a namespace. Immutable.
type ownerState struct {
	ns, owner string
	active    int64
}

// state is the whole replicated state. All its trees are copy-on-write, so that
// freeze is O(1).
type state struct {
	now    int64  // the replicated clock, ns
	offset int64  // wall clock minus now, for display
	index  uint64 // of the newest entry, as this state counts
	// base is how much more this state counts than the log: the state of a backup
	// may have come from a longer log, and indices only rise.
	base uint64

	bulked int // answers in bulks

	namespaces *btree.BTreeG[*nsState]
	owners     *btree.BTreeG[*ownerState]
	keys       *btree.BTreeG[*keyState]
	held       *btree.BTreeG[*lease] // active leases by owner and key
	ended      *btree.BTreeG[endedLease]
	answers    *btree.BTreeG[answer] // but those in bulks
	bulks      *btree.BTreeG[*bulk]
	queue      *btree.BTreeG[*waiter] // by key and seq
	places     *btree.BTreeG[*waiter] // by scope
	absent     *btree.BTreeG[*waiter] // those of queue whose callers are away

	expiries    *btree.BTreeG[due[*ident]]
	endedDrops  *btree.BTreeG[due[*grant]]
	answerDrops *btree.BTreeG[due[contract.Scope]]
	bulkDrops   *btree.BTreeG[*bulk] // by the first answer that is due
	placeDrops  *btree.BTreeG[due[contract.Scope]]
}

func newTree[T any](compare func(a, b T) int) *btree.BTreeG[T] {
	return btree.NewBTreeGOptions(func(a, b T) bool { return compare(a, b) < 0 },
		btree.Options{NoLocks: true, Degree: 32})
}

func dueTree[T any](compare func(a, b T) int) *btree.BTreeG[due[T]] {
	return newTree(func(a, b due[T]) int {
		if c := cmp.Compare(a.at, b.at); c != 0 {
			return c
		}
		return compare(a.what, b.what)
	})
}

func compareScope(a, b contract.Scope) int { return bytes.Compare(a[:], b[:]) }

func compareGrant(a, b *grant) int {
	if c := a.compare(b.ident); c != 0 {
		return c
	}
	return cmp.Compare(a.token, b.token)
}

func compareWaiter(a, b *waiter) int {
	if c := a.compare(b.ident); c != 0 {
		return c
	}
	return cmp.Compare(a.seq, b.seq)
}

func compareOwner(aNS, aOwner, bNS, bOwner string) int {
	if c := strings.Compare(aNS, bNS); c != 0 {
		return c
	}
	return strings.Compare(aOwner, bOwner)
}

func newState() *state {
	return &state{
		namespaces: newTree(func(a, b *nsState) int { return strings.Compare(a.name, b.name) }),
		owners:     newTree(func(a, b *ownerState) int { return compareOwner(a.ns, a.owner, b.ns, b.owner) }),
		keys:       newTree(func(a, b *keyState) int { return a.compare(b.ident) }),
		held: newTree(func(a, b *lease) int {
			if c := compareOwner(a.ns, a.owner, b.ns, b.owner); c != 0 {
				return c
			}
			return a.compare(b.ident)
		}),
		ended:       newTree(compareEnded),
		answers:     newTree(func(a, b answer) int { return compareScope(a.scope, b.scope) }),
		queue:       newTree(compareWaiter),
		absent:      newTree(compareWaiter),
		places:      newTree(func(a, b *waiter) int { return compareScope(a.cmd.Scope, b.cmd.Scope) }),
		expiries:    dueTree((*ident).compare),
		endedDrops:  dueTree(compareGrant),
		answerDrops: dueTree(compareScope),
		bulks:       newTree(func(a, b *bulk) int { return a.compare(&b.bulkID) }),
		bulkDrops:   newTree(func(a, b *bulk) int { return compareDue(a.due(), b.due()) }),
		placeDrops:  dueTree(compareScope),
	}
}

// freeze returns a copy that later changes of s do not touch. O(1): the trees
// share their nodes until one side writes.
func (s *state) freeze() *state {
	f := *s
	f.namespaces = s.namespaces.Copy()
	f.owners = s.owners.Copy()
	f.keys = s.keys.Copy()
	f.held = s.held.Copy()
	f.ended = s.ended.Copy()
	f.answers = s.answers.Copy()
	f.queue = s.queue.Copy()
	f.places = s.places.Copy()
	f.absent = s.absent.Copy()
	f.expiries = s.expiries.Copy()
	f.endedDrops = s.endedDrops.Copy()
	f.answerDrops = s.answerDrops.Copy()
	f.bulks = s.bulks.Copy()
	f.bulkDrops = s.bulkDrops.Copy()
	f.placeDrops = s.placeDrops.Copy()
	return &f
}

// keepAway remembers that the caller of the place w is away, and until when.
func (s *state) keepAway(w *waiter) {
	s.absent.Set(w)
	s.placeDrops.Set(due[contract.Scope]{at: w.drop, what: w.cmd.Scope})
}

// forgetAway is its reverse.
func (s *state) forgetAway(w *waiter) {
	s.absent.Delete(w)
	s.placeDrops.Delete(due[contract.Scope]{at: w.drop, what: w.cmd.Scope})
}

// reach moves the state to an entry of the log.
func (s *state) reach(index, term uint64, h header) {
	// A stamp made in an earlier term is a reading of another clock: it may be
	// ahead of this leader's, and would end leases early.
	if h.term == term && h.now > s.now {
		s.now = h.now
	}
	s.index = index + s.base
}

// wall returns the wall clock time that the state's clock shows now.
func (s *state) wall() int64 { return s.now + s.offset }

func (s *state) key(id *ident) *keyState {
	ks, _ := s.keys.Get(&keyState{ident: id})
	return ks
}

func (s *state) namespace(name string) *nsState {
	if n, ok := s.namespaces.Get(&nsState{name: name}); ok {
		return n
	}
	unknown := &nsState{name: name}
	if n, ok := s.namespaces.Get(&nsState{name: anyNamespace}); ok {
		unknown.floor = n.floor
	}
	return unknown
}

func (s *state) owner(ns, owner string) *ownerState {
	if o, ok := s.owners.Get(&ownerState{ns: ns, owner: owner}); ok {
		return o
	}
	return &ownerState{ns: ns, owner: owner}
}

func (s *state) countActive(ns, owner string, by int64) {
	n := *s.namespace(ns)
	n.active += by
	s.namespaces.Set(&n)
	o := *s.owner(ns, owner)
	o.active += by
	if o.active == 0 {
		s.owners.Delete(&o)
		return
	}
	s.owners.Set(&o)
}

func (s *state) countWaiters(ns string, by int64) {
	if by == 0 {
		return
	}
	n := *s.namespace(ns)
	n.waiters += by
	s.namespaces.Set(&n)
}

// putKey stores what is known of a key, and forgets a key of which nothing is.
func (s *state) putKey(ks *keyState) {
	if ks.active == nil && ks.last == nil && ks.places == 0 && !s.hasEnded(ks.ident) {
		s.keys.Delete(ks)
		return
	}
	s.keys.Set(ks)
}

// find returns the key's lease with the id, active or ended and remembered. token is
// a hint that finds an ended one without a search; 0 is none.
func (s *state) find(ks *keyState, leaseID contract.LeaseID, token uint64) *lease {
	if ks == nil {
		return nil
	}
	if ks.active != nil && ks.active.leaseID() == leaseID {
		return ks.active
	}
	if token != 0 {
		if l := s.endedByToken(ks.ident, token); l != nil && l.leaseID() == leaseID {
			return l
		}
	}
	var found *lease
	s.eachVisible(ks, func(l *lease) bool {
		if l.leaseID() == leaseID {
			found = l
		}
		return found == nil
	})
	return found
}
