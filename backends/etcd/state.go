package etcd

import (
	"context"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"leased/contract"
)

// keyRef names a key of a namespace.
type keyRef struct {
	ns string
	id contract.KeyID
}

// want says what else to read beside the key itself.
type want struct {
	queue   bool           // who waits, and the floor: for whoever grants or shows them
	scope   contract.Scope // whose answer; zero for none
	ordinal uint64         // which archived lease; 0 for none
	owner   string         // whose leases are counted; empty for none
}

// state is what etcd held of a key at one revision.
type state struct {
	ref  keyRef
	want want
	rev  int64

	head     *record
	headMod  int64
	aliveMod int64 // 0 when the holder's etcd lease is over
	lifeMod  int64
	queue    *queue // never nil
	sessions map[string]bool
	floor    int64
	floorMod int64
	answer   *answer
	archived *record
	guess    bool  // not read, see hints
	told     int64 // up to when the queue is known for sure
	owned    int64
	countMod int64
}

// ops reads a state.
func (s *Store) ops(ref keyRef, w want) []clientv3.Op {
	ops := []clientv3.Op{clientv3.OpGet(s.names.key(ref.ns, ref.id), clientv3.WithPrefix())}
	if w.queue {
		ops = append(ops,
			clientv3.OpGet(s.names.queue(ref), clientv3.WithPrefix()),
			clientv3.OpGet(s.names.floor(ref.ns)),
			clientv3.OpGet(s.names.sessions(), clientv3.WithPrefix(), clientv3.WithKeysOnly()))
	}
	if w.scope != (contract.Scope{}) {
		ops = append(ops, clientv3.OpGet(s.names.answer(w.scope)))
	}
	if w.ordinal != 0 {
		ops = append(ops, clientv3.OpGet(s.names.archive(ref.ns, ref.id, w.ordinal)))
	}
	if w.owner != "" {
		ops = append(ops,
			clientv3.OpGet(s.names.ownedBy(ref.ns, w.owner), clientv3.WithPrefix(), clientv3.WithCountOnly()),
			clientv3.OpGet(s.names.count(ref.ns, w.owner)))
	}
	return ops
}

// first returns a guess at the state of a key, or reads it.
func (s *Store) first(ctx context.Context, ref keyRef, w want) (*state, error) {
	if st := s.hints.state(ref, w); st != nil {
		return st, nil
	}
	return s.load(ctx, ref, w)
}

// load reads the state of a key.
func (s *Store) load(ctx context.Context, ref keyRef, w want) (*state, error) {
	resp, fail := s.pool.read(ctx, s.ops(ref, w)...)
	if fail != nil {
		return nil, fail
	}
	return s.parse(ref, w, resp, 0)
}

// parse takes the answers to ops out of a transaction's, from the given one on.
func (s *Store) parse(ref keyRef, w want, resp *clientv3.TxnResponse, from int) (*state, error) {
	st := &state{ref: ref, want: w, rev: resp.Header.Revision, told: resp.Header.Revision, queue: &queue{}, sessions: map[string]bool{}}
	next := func() []*mvccpb.KeyValue {
		kvs := resp.Responses[from].GetResponseRange().GetKvs()
		from++
		return kvs
	}
	if err := st.takeKey(s.names.key(ref.ns, ref.id), next()); err != nil {
		return nil, err
	}
	defer s.hints.read(st)
	if w.queue {
		if err := st.takeQueue(s.names, next(), next(), next()); err != nil {
			return nil, err
		}
	}
	var err error
	if w.scope != (contract.Scope{}) {
		for _, kv := range next() {
			if st.answer, err = decodeAnswer(kv); err != nil {
				return nil, err
			}
		}
	}
	if w.ordinal != 0 {
		for _, kv := range next() {
			if st.archived, err = decodeRecord(kv.Value, kv.ModRevision, ref.id); err != nil {
				return nil, err
			}
		}
	}
	if w.owner != "" {
		st.owned = resp.Responses[from].GetResponseRange().GetCount()
		from++
		for _, kv := range next() {
			st.countMod = kv.ModRevision
		}
	}
	if st.head != nil {
		s.tokens.see(st.head.token())
	}
	return st, nil
}

// takeQueue reads the queue, the floor and the sessions.
func (st *state) takeQueue(n names, places, floors, sessions []*mvccpb.KeyValue) (err error) {
	if st.queue, err = decodeQueue(n.queue(st.ref), places); err != nil {
		return err
	}
	for _, kv := range floors {
		if st.floor, err = decodeFloor(kv.Value); err != nil {
			return err
		}
		st.floorMod = kv.ModRevision
	}
	for _, kv := range sessions {
		st.sessions[strings.TrimPrefix(string(kv.Key), n.sessions())] = true
	}
	return nil
}

// takeKey reads what lies under the key's own prefix.
func (st *state) takeKey(prefix string, kvs []*mvccpb.KeyValue) error {
	for _, kv := range kvs {
		var err error
		switch strings.TrimPrefix(string(kv.Key), prefix) {
		case partAlive:
			st.aliveMod = kv.ModRevision
		case partLife:
			st.lifeMod = kv.ModRevision
		case partHead:
			st.headMod = kv.ModRevision
			st.head, err = decodeRecord(kv.Value, kv.ModRevision, st.ref.id)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// alive tells that the etcd leases which the holder's lease hangs on are there.
func (st *state) alive() bool {
	return st.aliveMod != 0 && (st.head.Life == 0 || st.lifeMod != 0)
}

// active returns the lease that holds the key, or nil.
func (st *state) active() *record {
	if st.head != nil && st.head.State == contract.StateActive && st.alive() {
		return st.head
	}
	return nil
}

// due tells that the newest lease is over on etcd's clock and nobody has written
// it down.
func (st *state) due() bool {
	return st.head != nil && st.head.State == contract.StateActive && !st.alive()
}

// lease returns the lease with the id, remembered or not, or nil. The archived
// one must have been asked for.
func (st *state) lease(id contract.LeaseID) *record {
	for _, r := range [...]*record{st.head, st.archived} {
		if r != nil && r.id == id {
			return r
		}
	}
	return nil
}

// find is lease for those who name one: only what is remembered.
func (st *state) find(id contract.LeaseID, now int64) *record {
	if r := st.lease(id); r != nil && st.remembers(r, now) {
		return r
	}
	return nil
}

// numbered returns the lease with the ordinal, or nil.
func (st *state) numbered(ordinal uint64) *record {
	for _, r := range [...]*record{st.head, st.archived} {
		if r != nil && r.Ordinal == ordinal {
			return r
		}
	}
	return nil
}

// remembers reports whether an event of the lease is in the key's history.
func (st *state) remembers(r *record, now int64) bool {
	if r.State == contract.StateActive {
		return true
	}
	return st.newer(r) < st.keepEvents() && !tooOld(r.Recorded, now, st.head)
}

// newer counts the events that happened to the key after the end of r. Each
// lease has two, the newest one if it is active.
func (st *state) newer(r *record) int {
	n := int(st.head.Ordinal-r.Ordinal) * 2
	if st.head.State == contract.StateActive && n > 0 {
		n--
	}
	return n
}

func (st *state) keepEvents() int { return st.head.KeepEvents }

func tooOld(at, now int64, head *record) bool {
	return time.Duration(now-at)*time.Microsecond >= head.KeepHistory
}

// latest returns the newest lease if it is remembered.
func (st *state) latest(now int64) *record {
	if st.head == nil || !st.remembers(st.head, now) {
		return nil
	}
	return st.head
}

// shown returns the lease as an answer.
func (st *state) shown(r *record, now int64) *contract.Lease { return r.lease(st.ref.ns, now) }

// now is this gateway's wall clock in microseconds.
func now() int64 { return time.Now().UnixMicro() }
