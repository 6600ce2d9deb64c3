package etcd

import (
	"context"
	"net/url"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"leased/contract"
)

const (
	// sweepPause gathers what ended about the same time, to look at it together.
	sweepPause = 20 * time.Millisecond
	// sweepBatch is how many keys are looked at in one transaction.
	sweepBatch = 100
	// sweepWorkers is how many expiries are written down at once.
	sweepWorkers = 8
	// sweepBacklog is how many keys may wait to be looked at. When it is full,
	// all held keys are looked at instead.
	sweepBacklog = 1 << 14
)

// sweeper writes down expiries that nobody meets. Each store has one, and each
// expiry is written by one of them, since the transaction compares. Nothing but
// the history, the streams and the gauges waits for it.
type sweeper struct {
	s    *Store
	wake chan struct{}

	mu   sync.Mutex
	due  map[keyRef]int64 // the revision that shows it; 0 for none in particular
	scan bool             // look at all held keys
}

// sweep runs until the store ends.
func (s *Store) sweep() {
	w := &sweeper{s: s, wake: make(chan struct{}, 1), due: map[keyRef]int64{}, scan: true}
	working := make(chan struct{})
	go func() { defer close(working); w.work() }()
	defer func() { <-working }()
	for s.life.Err() == nil {
		age := s.pool.present()
		resp, fail := s.pool.read(s.life, clientv3.OpGet(s.names.probe(), clientv3.WithCountOnly()))
		if fail != nil {
			sleep(s.life, retryPause)
			continue
		}
		w.add(nil, 0) // what ended while nobody watched
		w.s.wakeLines()
		s.pool.follow(s.life, age, s.names.prefix+"k/", resp.Header.Revision+1, w.take, clientv3.WithPrefix(), clientv3.WithFilterPut())
	}
}

// take looks at what was deleted. An etcd lease that ran out has taken the key
// with it that hung on it; so has the end of a lease, which was written down.
func (w *sweeper) take(evs []*clientv3.Event) {
	for _, ev := range evs {
		ns, id, part, ok := w.s.names.splitKey(string(ev.Kv.Key))
		if ok && (part == partAlive || part == partLife) {
			w.add(&keyRef{ns, id}, ev.Kv.ModRevision)
			w.s.noteLost(keyRef{ns, id}, ev.Kv.ModRevision)
		}
	}
}

// add notes a key to be looked at; nil stands for all.
func (w *sweeper) add(ref *keyRef, rev int64) {
	w.mu.Lock()
	if ref == nil || len(w.due) >= sweepBacklog {
		w.scan = true
	} else {
		w.due[*ref] = rev
	}
	w.mu.Unlock()
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

func (w *sweeper) work() {
	for {
		select {
		case <-w.s.life.Done():
			return
		case <-w.wake:
		}
		sleep(w.s.life, sweepPause)
		w.mu.Lock()
		due, scan := w.due, w.scan
		w.due, w.scan = map[keyRef]int64{}, false
		w.mu.Unlock()
		var refs []keyRef
		for ref, rev := range due {
			// Which ends are this store's own is known only when they are answered, and
			// etcd's watch may be faster.
			if rev == 0 || !w.s.ownEnds.has(rev) {
				refs = append(refs, ref)
			}
		}
		if !w.lookAt(refs) || scan && !w.lookAtAll() {
			sleep(w.s.life, retryPause)
			w.add(nil, 0)
		}
	}
}

// lookAtAll goes through the index of held keys.
func (w *sweeper) lookAtAll() bool {
	base := w.s.names.prefix + "o/"
	from, end := base, clientv3.GetPrefixRangeEnd(base)
	for w.s.life.Err() == nil {
		ctx, cancel := context.WithTimeout(w.s.life, ownTimeout)
		resp, fail := w.s.pool.read(ctx, clientv3.OpGet(from, clientv3.WithRange(end), clientv3.WithKeysOnly(), clientv3.WithLimit(sweepBatch)))
		cancel()
		if fail != nil {
			return false
		}
		found := resp.Responses[0].GetResponseRange()
		var refs []keyRef
		for _, kv := range found.Kvs {
			name := string(kv.Key)
			ns, _, _ := strings.Cut(strings.TrimPrefix(name, base), "/")
			ns, err := url.PathUnescape(ns)
			id, err2 := contract.ParseKeyID(name[strings.LastIndexByte(name, '/')+1:])
			if err == nil && err2 == nil {
				refs = append(refs, keyRef{ns, id})
			}
			from = name + "\x00"
		}
		if !w.lookAt(refs) {
			return false
		}
		if !found.More {
			return true
		}
	}
	return false
}

// lookAt writes down the expiries among the keys. It reports whether all were
// looked at.
func (w *sweeper) lookAt(refs []keyRef) bool {
	for len(refs) > 0 {
		n := min(len(refs), sweepBatch)
		if !w.lookAtBatch(refs[:n]) {
			return false
		}
		refs = refs[n:]
	}
	return true
}

func (w *sweeper) lookAtBatch(refs []keyRef) bool {
	ctx, cancel := context.WithTimeout(w.s.life, ownTimeout)
	defer cancel()
	ops := make([]clientv3.Op, len(refs))
	for i, ref := range refs {
		ops[i] = clientv3.OpGet(w.s.names.key(ref.ns, ref.id), clientv3.WithPrefix())
	}
	resp, fail := w.s.pool.read(ctx, ops...)
	if fail != nil {
		return false
	}
	var workers sync.WaitGroup
	todo := make(chan *state)
	for range min(sweepWorkers, len(refs)) {
		workers.Go(func() {
			for st := range todo {
				sure, err := w.s.settleSurely(ctx, st)
				if !sure {
					w.add(&st.ref, 0)
				}
				if err != nil {
					w.s.config.Logger.Debug("an expiry is not on record yet", "error", err)
					sleep(w.s.life, retryPause)
				}
			}
		})
	}
	for i, ref := range refs {
		st := &state{ref: ref, queue: &queue{}}
		if err := st.takeKey(w.s.names.key(ref.ns, ref.id), resp.Responses[i].GetResponseRange().GetKvs()); err != nil {
			w.s.config.Logger.Error("a key is corrupt", "key_id", ref.id.String(), "error", err)
			continue
		}
		if st.due() {
			todo <- st
		}
	}
	close(todo)
	workers.Wait()
	return true
}

// revisions remembers the revisions of this store's own latest ends of leases,
// which its sweeper need not look at.
type revisions struct {
	mu   sync.Mutex
	have map[int64]bool
	ring []int64
	next int
}

func newRevisions(n int) *revisions {
	return &revisions{have: make(map[int64]bool, n), ring: make([]int64, n)}
}

func (r *revisions) add(rev int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.have, r.ring[r.next])
	r.ring[r.next] = rev
	r.have[rev] = true
	r.next = (r.next + 1) % len(r.ring)
}

func (r *revisions) has(rev int64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.have[rev]
}
