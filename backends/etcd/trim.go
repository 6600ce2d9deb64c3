package etcd

import (
	"context"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

const (
	// trimEvery is how many grants of a key go by before its archive is trimmed.
	trimEvery = 32
	// trimPoll is how often it is looked whether a trimming is due.
	trimPoll = time.Second
	// trimBacklog is how many trimmings may wait. What is lost of them is made up
	// for by the key's next ones, or by the age of what they would have removed.
	trimBacklog = 1 << 16
)

// trimmer removes ended leases that the history of their key no longer shows, a
// while after: their answers may still be asked for.
type trimmer struct {
	s     *Store
	mu    sync.Mutex
	queue []trimming // by when they are due, which is about the order they come in
}

type trimming struct {
	ref keyRef
	to  uint64 // the first ordinal to be kept
	due time.Time
}

// trimLater plans the removal of what the grant r leaves without a place in the
// history.
func (s *Store) trimLater(ref keyRef, r *record) {
	keep := uint64(r.KeepEvents)/2 + 2
	if r.Ordinal%trimEvery != 0 || r.Ordinal <= keep {
		return
	}
	t := s.trimmer
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.queue) < trimBacklog {
		t.queue = append(t.queue, trimming{ref, r.Ordinal - keep, time.Now().Add(r.KeepAnswer + time.Minute)})
	}
}

func (t *trimmer) run() {
	tick := time.NewTicker(trimPoll)
	defer tick.Stop()
	for {
		select {
		case <-t.s.life.Done():
			return
		case <-tick.C:
		}
		t.s.spares.expire(false)
		for {
			next, ok := t.next()
			if !ok {
				break
			}
			t.trim(next)
		}
	}
}

func (t *trimmer) next() (trimming, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.queue) == 0 || time.Now().Before(t.queue[0].due) {
		return trimming{}, false
	}
	next := t.queue[0]
	t.queue = t.queue[1:]
	return next, true
}

func (t *trimmer) trim(next trimming) {
	ctx, cancel := context.WithTimeout(t.s.life, ownTimeout)
	defer cancel()
	prefix := t.s.names.archivesOf(next.ref.ns, next.ref.id)
	_, fail := t.s.pool.txn(ctx, nil, []clientv3.Op{
		clientv3.OpDelete(prefix, clientv3.WithRange(prefix+ordinalText(next.to))),
	})
	if fail != nil {
		t.s.config.Logger.Debug("an archive was not trimmed", "error", fail)
	}
}
