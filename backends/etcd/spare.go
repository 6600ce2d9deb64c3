package etcd

import (
	"context"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

const (
	// spareFor is how long an etcd lease that nothing hangs on is kept for the
	// next grant, and spareLimit how many are.
	spareFor   = time.Second
	spareLimit = 512
)

// spares has etcd leases that hung on leases which ended. The next grant with
// the same TTL takes one and starts its TTL again, which costs etcd less than to
// make one and to end one: neither is written to its log. At any time a lease
// belongs to one holder or to none.
type spares struct {
	s  *Store
	mu sync.Mutex
	of map[int64][]spare // by TTL in seconds
	n  int
}

type spare struct {
	id    clientv3.LeaseID
	since time.Time
}

// put keeps an etcd lease, or ends it if there are enough.
func (p *spares) put(ttl, id int64) {
	if id == 0 {
		return
	}
	p.mu.Lock()
	full := p.n >= spareLimit || p.s.life.Err() != nil
	if !full {
		p.n++
		p.of[ttl] = append(p.of[ttl], spare{clientv3.LeaseID(id), time.Now()})
	}
	p.mu.Unlock()
	if full {
		p.s.endLeases(id)
	}
}

// take returns the spare that was used last, or 0.
func (p *spares) take(ttl int64) clientv3.LeaseID {
	p.mu.Lock()
	defer p.mu.Unlock()
	have := p.of[ttl]
	if len(have) == 0 {
		return 0
	}
	last := have[len(have)-1]
	p.of[ttl] = have[:len(have)-1]
	p.n--
	return last.id
}

// expire ends the spares that were of no use for a while, or all of them.
func (p *spares) expire(all bool) {
	var old []int64
	p.mu.Lock()
	for ttl, have := range p.of {
		keep := have[:0]
		for _, s := range have {
			if all || time.Since(s.since) > spareFor {
				old = append(old, int64(s.id))
				continue
			}
			keep = append(keep, s)
		}
		if len(keep) == 0 {
			delete(p.of, ttl)
		} else {
			p.of[ttl] = keep
		}
	}
	p.n -= len(old)
	p.mu.Unlock()
	p.s.endLeases(old...)
}

// holderLease returns an etcd lease with its full TTL before it, and the TTL that
// etcd granted, in seconds. at is from when on it certainly counts.
func (s *Store) holderLease(ctx context.Context, seconds int64) (id clientv3.LeaseID, ttl, at int64, fail *failure) {
	for {
		at = now()
		if id = s.spares.take(seconds); id == 0 {
			break
		}
		if fail = s.pool.keepAlive(ctx, id); fail == nil {
			return id, seconds, at, nil
		}
		if !fail.refused || fail.elsewhere() {
			return 0, 0, 0, fail
		}
	}
	id, ttl, fail = s.pool.grant(ctx, seconds)
	return id, ttl, at, fail
}
