package etcd

import (
	"slices"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// passed reports whether the turn of all places has come while nobody was there: the
// key is free, and nobody waits. They are lost, and deleted with the next grant.
func (st *state) passed() bool { return st.active() == nil && st.queue.first(st.sessions) < 0 }

// rest returns the queue as it is once the attempt was granted a key that is to be had
// without waiting, and what that must compare.
func (s *Store) rest(st *state, a *attempt) (*queue, []clientv3.Cmp) {
	if !st.passed() || st.queue.place(a.scope) == nil {
		return st.queue.without(a.scope, skipStep), nil
	}
	// Its own place is lost too, so that whoever has come since is before it.
	q := st.queue.clone()
	q.places = slices.DeleteFunc(q.places, func(p place) bool { return p.scope == a.scope })
	return q.without(a.scope, skipStep), []clientv3.Cmp{s.nobodyCame(st)}
}
