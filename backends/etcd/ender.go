package etcd

import (
	"context"
	"sync"

	clientv3 "go.etcd.io/etcd/client/v3"
)

const (
	// enderWorkers is how many etcd leases are ended at once, and enderBacklog
	// how many may wait for it; beyond that they are left to their TTL.
	enderWorkers = 8
	enderBacklog = 4096
)

// ender ends etcd leases that nothing hangs on any more, behind the back of the
// call that ended the lease: its answer does not depend on it.
type ender struct {
	s  *Store
	mu sync.Mutex
	// queue has the leases to be ended, workers how many goroutines work on it.
	queue   []clientv3.LeaseID
	workers int
	quiet   chan struct{} // closed when there is nothing to do; nil when nobody asked
}

func newEnder(s *Store) *ender { return &ender{s: s} }

// endLeases ends etcd leases some time soon. Zero is none.
func (s *Store) endLeases(ids ...int64) {
	e := s.ender
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, id := range ids {
		if id != 0 && len(e.queue) < enderBacklog {
			e.queue = append(e.queue, clientv3.LeaseID(id))
		}
	}
	for e.workers < enderWorkers && e.workers < len(e.queue) {
		e.workers++
		if !s.start(e.work) {
			e.workers--
			return
		}
	}
}

// work ends leases until there are none.
func (e *ender) work() {
	for {
		e.mu.Lock()
		if len(e.queue) == 0 || e.s.life.Err() != nil {
			e.workers--
			if e.workers == 0 && e.quiet != nil {
				close(e.quiet)
				e.quiet = nil
			}
			e.mu.Unlock()
			return
		}
		id := e.queue[0]
		e.queue = e.queue[1:]
		e.mu.Unlock()
		ctx, cancel := context.WithTimeout(e.s.life, ownTimeout)
		if fail := e.s.pool.revoke(ctx, id); fail != nil && fail.elsewhere() {
			e.s.config.Logger.Debug("an etcd lease is left to its TTL", "error", fail)
		}
		cancel()
	}
}

// drain waits until all leases are ended.
func (e *ender) drain(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, closeTimeout)
	defer cancel()
	e.mu.Lock()
	if e.workers == 0 {
		e.mu.Unlock()
		return
	}
	quiet := make(chan struct{})
	e.quiet = quiet
	e.mu.Unlock()
	select {
	case <-quiet:
	case <-ctx.Done():
	}
}
