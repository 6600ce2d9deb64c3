package etcd

import (
	"context"
	"crypto/rand"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

const (
	// beatEvery is how often a gateway with waiters shows that it is there.
	beatEvery = 250 * time.Millisecond
	// deadAfter is how long another gateway may be silent before its waiters are
	// taken for gone: with it, the next waiter present is served within 2 s.
	deadAfter = 1400 * time.Millisecond
	// beatStall is the longest pause between own beats in which others can be
	// judged: what holds up this gateway, or etcd, holds up theirs.
	beatStall = 600 * time.Millisecond
	// sessionTTL removes the session of a gateway that nobody outlived, in
	// seconds.
	sessionTTL = 6
	// lingerBeats is for how many beats a session is kept without waiters.
	lingerBeats = 40
)

// presence says for this store that its waiters are present, and notices which
// other gateways are gone. It keeps no holder's lease alive.
//
// A session is a key that is rewritten with each beat. Who has seen it unchanged
// for too long, on its own monotonic clock, removes it, provided that it has not
// changed: from then on the places that name the session are away. A gateway
// that was wrongly taken for gone notices with its next beat and comes back
// under another name.
type presence struct {
	s *Store

	mu      sync.Mutex
	id      string // empty while there is no session
	lease   clientv3.LeaseID
	running bool
	heard   atomic.Bool // etcd took the last beat
	users   int
	making  chan struct{} // not nil while a session is being made; closed then
}

// ensure returns the store's session, and makes one if it has none.
func (p *presence) ensure(ctx context.Context) (string, error) {
	for {
		p.mu.Lock()
		switch {
		case p.id != "":
			id := p.id
			p.mu.Unlock()
			return id, nil
		case p.making == nil:
			p.making = make(chan struct{})
			p.mu.Unlock()
			return p.make(ctx)
		}
		making := p.making
		p.mu.Unlock()
		select {
		case <-making:
		case <-ctx.Done():
			return "", newFailure(ctx.Err(), false)
		}
	}
}

func (p *presence) make(ctx context.Context) (string, error) {
	id := rand.Text()[:12]
	lease, _, fail := p.s.pool.grant(ctx, sessionTTL)
	if fail == nil {
		_, fail = p.s.pool.txn(ctx, nil, []clientv3.Op{clientv3.OpPut(p.s.names.session(id), "0", clientv3.WithLease(lease))})
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	close(p.making)
	p.making = nil
	if fail != nil {
		return "", fail
	}
	p.id, p.lease = id, lease
	p.heard.Store(true)
	if !p.running && p.s.start(p.run) {
		p.running = true
	}
	return id, nil
}

// use counts the lines that need the session.
func (p *presence) use(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.users += n
}

func (p *presence) current() (string, clientv3.LeaseID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.id, p.lease
}

// lost forgets a session that others have ended.
func (p *presence) lost(id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.id == id {
		p.id = ""
	}
}

// run beats until the store ends or has had no waiters for a while.
func (p *presence) run() {
	beat := time.NewTicker(beatEvery)
	defer beat.Stop()
	idle := 0
	for n := 1; ; n++ {
		select {
		case <-p.s.life.Done():
			p.end(p.take())
			return
		case <-beat.C:
		}
		if id, lease, over := p.idle(&idle); over {
			p.end(id, lease)
			return
		}
		p.heard.Store(p.beat(p.s.life, n))
	}
}

// idle reports whether the session is of no use any more, and which it was: whoever
// comes from then on makes another one.
func (p *presence) idle(beats *int) (id string, lease clientv3.LeaseID, over bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	*beats++
	if p.users > 0 {
		*beats = 0
	}
	if *beats < lingerBeats || p.making != nil {
		return "", 0, false
	}
	id, lease = p.forget()
	return id, lease, true
}

// take takes the session from the store.
func (p *presence) take() (string, clientv3.LeaseID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.forget()
}

// forget returns the session, which the store has no longer and nobody beats for. The
// caller holds the lock.
func (p *presence) forget() (id string, lease clientv3.LeaseID) {
	id, lease = p.id, p.lease
	p.id, p.running = "", false
	return id, lease
}

// beat shows that this store is there, and reports whether etcd took it.
func (p *presence) beat(ctx context.Context, n int) bool {
	id, lease := p.current()
	if id == "" {
		if p.hasUsers() {
			p.s.wakeLines() // they make another one
		}
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, beatStall)
	defer cancel()
	if n%8 == 0 {
		if fail := p.s.pool.keepAlive(ctx, lease); fail != nil && !fail.refused {
			return false
		}
	}
	name := p.s.names.session(id)
	resp, fail := p.s.pool.txn(ctx, []clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(name), ">", 0)},
		[]clientv3.Op{clientv3.OpPut(name, strconv.Itoa(n), clientv3.WithLease(lease))})
	if fail != nil {
		if fail.refused && !fail.elsewhere() {
			p.lost(id) // its etcd lease is over
		}
		return false
	}
	if !resp.Succeeded {
		p.lost(id)
		p.s.wakeLines()
	}
	return true
}

// served tells that etcd takes this store's beats, if it has any.
func (p *presence) served() bool {
	id, _ := p.current()
	return id == "" || p.heard.Load()
}

func (p *presence) hasUsers() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.users > 0
}

// end ends a session, so that what still names it is away at once.
func (p *presence) end(id string, lease clientv3.LeaseID) {
	if id == "" || p.s.killed() {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(p.s.life), closeTimeout)
	defer cancel()
	if fail := p.s.pool.revoke(ctx, lease); fail != nil {
		p.s.config.Logger.Debug("a session was left to its end", "error", fail)
	}
}
