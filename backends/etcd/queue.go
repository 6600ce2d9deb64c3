package etcd

import (
	"bytes"
	"cmp"
	"context"
	"encoding/hex"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fxamacker/cbor/v2"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"leased/contract"
)

// How many places change in one transaction, so that it stays below the 128
// comparisons and operations that etcd takes: stepBudget in all. A place that is
// made takes joinCost, with the one that it may take the room of.
const (
	stepBudget = 95
	joinCost   = 4
	joinStep   = 20 // are made
	leaveStep  = 90 // are left, and then at most mixStep if others are made or served
	mixStep    = 20
	skipStep   = 80 // are dropped because their turn has passed; those left over are later
	settleStep = 12 // are dropped or marked because nobody is there
	// farFromFull is how many more places a queue must have room for if those that
	// come meanwhile are not to matter: what a line knows is half a second old at
	// most, in which etcd does not store as many.
	farFromFull = 5000
)

// queue has the places of a key, first come first: in the order of the revisions
// that made them. Each is an etcd key of its own, so that those who come, go and
// are served do not get in each other's way.
type queue struct{ places []place }

// place is a request id's place in the queue. What the waiter asked for stays with
// the gateways at which it waits; a place is no more than its right to a turn.
type place struct {
	Version     int    `cbor:"1,keyasint"`
	Fingerprint []byte `cbor:"2,keyasint"`
	// At has the sessions of the gateways at which calls wait here. One that has
	// ended does not count, so that a gateway that died leaves all its places at
	// once. A place with none is away: it is skipped when its turn comes.
	At []string `cbor:"3,keyasint,omitempty"`
	// Left is when it was last seen to be away, in microseconds; Keep how long it
	// is kept then.
	Left int64         `cbor:"4,keyasint,omitempty"`
	Keep time.Duration `cbor:"5,keyasint"`
	// N orders places that were made in one transaction.
	N int `cbor:"6,keyasint,omitempty"`
	// Scope is whose place it is. Its etcd key is named by the scope's first byte and
	// the lowest number that is free: etcd looks at every name that there ever was
	// under a prefix until it is compacted, so names are used again.
	Scope []byte `cbor:"7,keyasint"`

	name        string // what its etcd key ends with
	scope       contract.Scope
	create, mod int64 // revisions; 0 for a place that is not stored yet
}

// decodePlace reads a place; name is what its etcd key ends with.
func decodePlace(name string, kv *mvccpb.KeyValue) (place, error) {
	var p place
	if err := cbor.Unmarshal(kv.Value, &p); err != nil || p.Version != recordVersion {
		return p, corrupt(err, "a stored place of a queue cannot be read")
	}
	if len(p.Scope) != len(p.scope) || !strings.HasPrefix(name, placeBucket(contract.Scope(p.Scope))) {
		return p, corrupt(nil, "a stored place of a queue is of no attempt")
	}
	p.name, p.scope, p.create, p.mod = name, contract.Scope(p.Scope), kv.CreateRevision, kv.ModRevision
	return p, nil
}

// newPlace makes a place for an attempt, at which nobody waits yet.
func newPlace(a *attempt, queues ...*queue) place {
	return place{
		Version: recordVersion, Fingerprint: a.print[:], Keep: a.req.Retention.Idempotency,
		Scope: a.scope[:], scope: a.scope, name: freeName(a.scope, queues...),
	}
}

// newcomer compares that the scope has neither a place nor an answer.
func (s *Store) newcomer(st *state, scope contract.Scope) []clientv3.Cmp {
	return []clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(s.names.answer(scope)), "=", 0), s.placeless(st, scope)}
}

// placeBucket is how the names of the places begin among which a scope's is.
func placeBucket(scope contract.Scope) string { return hex.EncodeToString(scope[:1]) + "-" }

// freeName returns a name for a scope's place that none in the queues has.
func freeName(scope contract.Scope, queues ...*queue) string {
	bucket, used := placeBucket(scope), map[string]bool{}
	for _, q := range queues {
		for i := range q.places {
			if q.places[i].scope[0] == scope[0] {
				used[q.places[i].name] = true
			}
		}
	}
	for n := 0; ; n++ {
		if name := bucket + strconv.Itoa(n); !used[name] {
			return name
		}
	}
}

// placeless compares that the scope, which has no place as far as is known, has
// none: its place would be of another name if others were there when it was made.
func (s *Store) placeless(st *state, scope contract.Scope) clientv3.Cmp {
	return clientv3.Compare(clientv3.CreateRevision(s.names.placesLike(st.ref, scope)).WithPrefix(), "<", st.told+1)
}

// toldOf tells whether all places that a scope's may be among are such as
// placeless takes for known.
func (st *state) toldOf(scope contract.Scope) bool {
	return !slices.ContainsFunc(st.queue.places, func(p place) bool { return p.scope[0] == scope[0] && p.create > st.told })
}

// decodeQueue reads the places under a prefix.
func decodeQueue(prefix string, kvs []*mvccpb.KeyValue) (*queue, error) {
	q := &queue{}
	for _, kv := range kvs {
		p, err := decodePlace(strings.TrimPrefix(string(kv.Key), prefix), kv)
		if err != nil {
			return nil, err
		}
		q.places = append(q.places, p)
	}
	q.sort()
	return q, nil
}

func (q *queue) sort() {
	slices.SortStableFunc(q.places, func(a, b place) int {
		return cmp.Or(cmp.Compare(a.create, b.create), cmp.Compare(a.N, b.N))
	})
}

// clone returns a copy to be changed.
func (q *queue) clone() *queue {
	c := &queue{places: slices.Clone(q.places)}
	for i := range c.places {
		c.places[i].At = slices.Clone(c.places[i].At)
	}
	return c
}

// present reports whether somebody waits at the place.
func (p *place) present(sessions map[string]bool) bool {
	return slices.ContainsFunc(p.At, func(id string) bool { return sessions[id] })
}

func (p *place) same(o *place) bool { return p.Left == o.Left && slices.Equal(p.At, o.At) }

// place returns the scope's place, or nil.
func (q *queue) place(scope contract.Scope) *place {
	for i := range q.places {
		if q.places[i].scope == scope {
			return &q.places[i]
		}
	}
	return nil
}

// named returns the place of a name, or nil.
func (q *queue) named(name string) *place {
	for i := range q.places {
		if q.places[i].name == name {
			return &q.places[i]
		}
	}
	return nil
}

// isOf tells that nobody waits at the place but calls of the session's gateway.
func (p *place) isOf(session string) bool { return len(p.At) == 1 && p.At[0] == session }

// first returns the index of the first place where somebody waits, or -1.
func (q *queue) first(sessions map[string]bool) int {
	return slices.IndexFunc(q.places, func(p place) bool { return p.present(sessions) })
}

// certain tells whether those before the first one present are away for sure: a
// session that is not known may have begun since the sessions were read.
func (q *queue) certain(sessions map[string]bool) bool {
	for i := range q.places {
		p := &q.places[i]
		if p.present(sessions) {
			return true
		}
		if len(p.At) > 0 {
			return false
		}
	}
	return true
}

// seenBy counts those who would be served, and those of them who come before the
// scope's own place, if it has one.
func (q *queue) seenBy(scope contract.Scope, sessions map[string]bool) contract.Queue {
	var seen contract.Queue
	for i := range q.places {
		p := &q.places[i]
		if p.scope == scope {
			seen.Position = seen.Length + 1
		}
		if p.present(sessions) {
			seen.Length++
		}
	}
	return seen
}

// settle drops places that were kept long enough and notes when others were found
// away, a step of them at a time. It returns how many it changed.
func (q *queue) settle(sessions map[string]bool, now int64) int {
	n := 0
	q.places = slices.DeleteFunc(q.places, func(p place) bool {
		old := p.Left != 0 && !p.present(sessions) && time.Duration(now-p.Left)*time.Microsecond > p.Keep && n < settleStep
		if old {
			n++
		}
		return old
	})
	for i := range q.places {
		p := &q.places[i]
		if len(p.At) == 0 || n >= settleStep {
			continue
		}
		was := len(p.At)
		if p.At = slices.DeleteFunc(p.At, func(id string) bool { return !sessions[id] }); len(p.At) < was {
			n++
		}
		if len(p.At) == 0 {
			p.Left = now
		}
	}
	return n
}

// index returns where the places are.
func (q *queue) index() map[contract.Scope]int {
	at := make(map[contract.Scope]int, len(q.places))
	for i := range q.places {
		at[q.places[i].scope] = i
	}
	return at
}

// room makes room for one more place and reports whether there may be one. Only
// those present count against the limit, but the places of a key are no more than
// it: the first that are away are lost to a newcomer, and at most so many at a
// time. It returns how many it dropped.
func (q *queue) room(limit, most int, sessions map[string]bool) (ok bool, dropped int) {
	if limit == 0 || len(q.places) < limit {
		return true, 0
	}
	over, present := len(q.places)-limit+1, 0
	for i := range q.places {
		if q.places[i].present(sessions) {
			present++
		}
	}
	if present >= limit {
		return false, 0
	}
	q.places = slices.DeleteFunc(q.places, func(p place) bool {
		lost := dropped < min(over, most) && !p.present(sessions)
		if lost {
			dropped++
		}
		return lost
	})
	return true, dropped
}

// detach takes a session away from a place.
func (p *place) detach(session string) {
	p.At = slices.DeleteFunc(p.At, func(id string) bool { return id == session })
	if len(p.At) == 0 && p.Left == 0 {
		p.Left = now()
	}
}

// without returns the queue as it is once the scope was served: those before it,
// who were away, have lost their places, or the first so many of them. When it had
// none it is served because nobody is there.
func (q *queue) without(scope contract.Scope, limit int) *queue {
	c := q.clone()
	i := slices.IndexFunc(c.places, func(p place) bool { return p.scope == scope })
	before := i
	if i < 0 {
		before = len(c.places)
	} else {
		c.places = slices.Delete(c.places, i, i+1)
	}
	c.places = c.places[min(before, max(limit, 0)):]
	return c
}

// queueChange is what a transaction does to a place.
type queueChange struct {
	place place
	drop  bool
}

// changes tells how to make q of the queue that was read.
func (q *queue) changes(was *queue) []queueChange {
	var out []queueChange
	before, after := was.index(), q.index()
	for i := range q.places {
		at, had := before[q.places[i].scope]
		if !had || !was.places[at].same(&q.places[i]) {
			p := q.places[i]
			if !had {
				p.N = len(out)
			}
			out = append(out, queueChange{place: p})
		}
	}
	for i := range was.places {
		if _, kept := after[was.places[i].scope]; !kept {
			out = append(out, queueChange{place: was.places[i], drop: true})
		}
	}
	return out
}

// putPlaces returns the operations of changes, and compares that nobody else has
// changed those places.
func (s *Store) putPlaces(ctx context.Context, ref keyRef, changes []queueChange) ([]clientv3.Cmp, []clientv3.Op, *failure) {
	if len(changes) == 0 {
		return nil, nil, nil
	}
	lease, fail := s.buckets.lease(ctx, queueLife)
	if fail != nil {
		return nil, nil, fail
	}
	var cmps []clientv3.Cmp
	var ops []clientv3.Op
	for i := range changes {
		p := &changes[i].place
		name := s.names.place(ref, p.name)
		cmps = append(cmps, clientv3.Compare(clientv3.ModRevision(name), "=", p.mod))
		if changes[i].drop {
			ops = append(ops, clientv3.OpDelete(name))
		} else {
			ops = append(ops, clientv3.OpPut(name, encode(p), clientv3.WithLease(lease)))
		}
	}
	return cmps, ops, nil
}

// firstOfAll compares that no place came before p: one that this store was not
// told of yet, say. Mostly that is known; etcd would look at the whole queue.
func (s *Store) firstOfAll(st *state, p *place) []clientv3.Cmp {
	if p.create <= st.told {
		return nil
	}
	return []clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(s.names.queue(st.ref)).WithPrefix(), ">", p.create-1)}
}

// apply notes changes that were written at a revision.
func (q *queue) apply(changes []queueChange, rev int64) {
	for i := range changes {
		p := changes[i].place
		if p.create == 0 {
			p.create = rev
		}
		p.mod = rev
		q.put(p, changes[i].drop)
	}
}

// put notes a place as it was written, unless it is known as it was later.
func (q *queue) put(p place, drop bool) {
	at := slices.IndexFunc(q.places, func(o place) bool { return o.scope == p.scope })
	switch {
	case at >= 0 && q.places[at].mod > p.mod:
	case at >= 0 && drop:
		q.places = slices.Delete(slices.Clone(q.places), at, at+1)
	case at >= 0:
		q.places = slices.Clone(q.places)
		q.places[at] = p
	case !drop:
		q.places = append(slices.Clone(q.places), p)
		q.sort()
	}
}

// equalPrint reports whether the place was made by the same request.
func (p *place) equalPrint(f contract.Fingerprint) bool { return bytes.Equal(p.Fingerprint, f[:]) }
