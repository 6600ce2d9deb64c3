package etcd

import (
	"context"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

const (
	// spareFor is how long an etcd lease that nothing hangs on is kept for the
	// next grant, and spareLimit how many are. Every end of an etcd lease makes etcd
	// write its database to the disk, and everybody waits for that.
	spareFor   = 10 * time.Second
	spareLimit = 512
	// spareTTL is by how many seconds an etcd lease outlives the TTL that hangs on
	// it, so that one whose TTL was started within freshFor still has enough of it.
	spareTTL = 1
	freshFor = 900 * time.Millisecond
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
	fresh time.Time // when its TTL was last started, at the earliest
}

// put keeps an etcd lease, or ends it if there are enough.
func (p *spares) put(ttl, id int64, fresh time.Time) {
	if id == 0 {
		return
	}
	p.mu.Lock()
	full := p.n >= spareLimit || p.s.life.Err() != nil
	if !full {
		p.n++
		p.of[ttl] = append(p.of[ttl], spare{clientv3.LeaseID(id), time.Now(), fresh})
	}
	p.mu.Unlock()
	if full {
		p.s.endLeases(id)
	}
}

// take returns the spare that was used last, if there is one.
func (p *spares) take(ttl int64) (spare, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	have := p.of[ttl]
	if len(have) == 0 {
		return spare{}, false
	}
	last := have[len(have)-1]
	p.of[ttl] = have[:len(have)-1]
	p.n--
	return last, true
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

// held is an etcd lease for a holder's.
type held struct {
	id    clientv3.LeaseID
	ttl   int64     // that etcd gave it, in seconds
	at    int64     // from when on the holder's TTL certainly counts
	fresh time.Time // when etcd began to count, at the earliest
}

// granted returns the TTL that the holder has of it, in seconds.
func (h held) granted() int64 { return h.ttl - spareTTL }

// holderLease returns an etcd lease with at least the seconds before it.
func (s *Store) holderLease(ctx context.Context, seconds int64) (held, *failure) {
	seconds += spareTTL
	for {
		have, ok := s.spares.take(seconds)
		if !ok {
			break
		}
		if time.Since(have.fresh) < freshFor {
			return held{have.id, seconds, now(), have.fresh}, nil
		}
		h := held{have.id, seconds, now(), time.Now()}
		fail := s.pool.keepAlive(ctx, h.id)
		if fail == nil {
			return h, nil
		}
		if !fail.refused || fail.elsewhere() {
			return held{}, fail
		}
	}
	h := held{at: now(), fresh: time.Now()}
	var fail *failure
	h.id, h.ttl, fail = s.pool.grant(ctx, seconds)
	return h, fail
}
