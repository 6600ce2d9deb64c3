package etcd

import (
	"context"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

const (
	// bucketKeys is how many keys share an etcd lease at most. All of them go in
	// one step, which holds up etcd for as long.
	bucketKeys = 1000
	// bucketWidth is the longest that a bucket is filled.
	bucketWidth = 30 * time.Second
)

// buckets has the etcd leases that remove what was kept long enough: answers,
// ended leases, queues. Each is shared by what is written about the same time
// with the same retention. They have nothing to do with holders' leases.
type buckets struct {
	pool  *pool
	start func(func()) // runs in the background

	mu   sync.Mutex
	open map[int64]*bucket // by seconds of retention
}

type bucket struct {
	ready chan struct{} // closed when id or fail is set
	id    clientv3.LeaseID
	fail  *failure
	until time.Time
	keys  int
}

func newBuckets(p *pool, start func(func())) *buckets {
	return &buckets{pool: p, start: start, open: map[int64]*bucket{}}
}

// lease returns an etcd lease that lives for at least keep from now on.
func (b *buckets) lease(ctx context.Context, keep time.Duration) (clientv3.LeaseID, *failure) {
	width := min(bucketWidth, max(time.Second, keep/16))
	seconds := ceilSeconds(keep)
	now := time.Now()
	b.mu.Lock()
	current := b.open[seconds]
	fresh := current == nil || current.keys >= bucketKeys || now.After(current.until)
	if fresh {
		current = &bucket{ready: make(chan struct{}), until: now.Add(width)}
		b.open[seconds] = current
	}
	current.keys++
	b.mu.Unlock()
	if fresh {
		// Not under the context of the call that happened to be first.
		b.start(func() { b.fill(current, seconds+ceilSeconds(width)+1) })
	}
	select {
	case <-current.ready:
		return current.id, current.fail
	case <-ctx.Done():
		return 0, newFailure(ctx.Err(), true) // etcd has the grant of the bucket
	}
}

// fill grants the bucket's etcd lease. It lives beyond the width, so that the
// last key in has its full time.
func (b *buckets) fill(current *bucket, seconds int64) {
	defer close(current.ready)
	ctx, cancel := context.WithTimeout(b.pool.life, ownTimeout)
	defer cancel()
	current.id, _, current.fail = b.pool.grant(ctx, seconds)
	if current.fail != nil {
		b.drop(current)
	}
}

// drop forgets a bucket that is of no use.
func (b *buckets) drop(bad *bucket) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for seconds, have := range b.open {
		if have == bad {
			delete(b.open, seconds)
		}
	}
}

// forget drops all buckets: etcd no longer knows one of them, as after it was
// restored from a backup.
func (b *buckets) forget() {
	b.mu.Lock()
	defer b.mu.Unlock()
	clear(b.open)
}

func ceilSeconds(d time.Duration) int64 { return int64((d + time.Second - 1) / time.Second) }
