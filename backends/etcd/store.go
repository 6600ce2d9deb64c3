package etcd

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"leased/contract"
)

const (
	// ownTimeout bounds what the store asks of etcd for itself.
	ownTimeout = 5 * time.Second
	// closeTimeout bounds the goodbye to etcd.
	closeTimeout = time.Second
)

// Store is a gateway's handle on an etcd. It implements contract.Store.
type Store struct {
	config   Config
	names    names
	pool     *pool
	buckets  *buckets
	presence *presence
	ender    *ender
	trimmer  *trimmer
	ownEnds  *revisions
	hints    *hints
	spares   *spares

	// life ends what runs in the background.
	life    context.Context //nolint:containedctx // the store's own, for what runs beside calls
	endLife context.CancelFunc
	// closing is closed by Close: waiting calls leave.
	closing chan struct{}
	dead    atomic.Bool
	tokens  tokens

	linesMu sync.Mutex
	lines   map[keyRef]*line

	mu         sync.Mutex
	closed     bool
	streams    map[*stream]struct{}
	running    sync.WaitGroup // calls; added to only under mu and while not closed
	background sync.WaitGroup // likewise
	idle       chan struct{}  // closed when the last call has ended after Close
	ended      chan struct{}  // closed when the first Close has answered
	err        error          // its answer; read after ended
}

var _ contract.Store = (*Store)(nil)

// Open returns a store on the etcd that the configuration names. It fails only
// if that is not one: an etcd that is down answers every call with an error
// until it is back. ctx bounds nothing but the first attempt to authenticate.
func Open(_ context.Context, c Config) (*Store, error) {
	if err := c.validate(); err != nil {
		return nil, err
	}
	c = c.withDefaults()
	s := &Store{
		config: c, names: names{c.Prefix},
		closing: make(chan struct{}), idle: make(chan struct{}), ended: make(chan struct{}),
		lines: map[keyRef]*line{}, streams: map[*stream]struct{}{},
	}
	s.life, s.endLife = context.WithCancel(context.Background())
	s.pool = newPool(c, s.wentBack)
	s.buckets = newBuckets(s.pool, func(f func()) { s.start(f) })
	s.presence = &presence{s: s}
	s.ender = newEnder(s)
	s.trimmer = &trimmer{s: s}
	s.ownEnds = newRevisions(4096)
	s.hints = newHints()
	s.spares = &spares{s: s, of: map[int64][]spare{}}
	s.start(s.sweep)
	s.start((&others{s: s, seen: map[string]sighting{}}).run)
	s.start(s.trimmer.run)
	return s, nil
}

// begin starts a call: it validates, sets the deadline and refuses after Close.
// The returned function ends the call.
func (s *Store) begin(ctx context.Context, validate func() error) (context.Context, func(), error) {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil, nil, errClosed()
	}
	s.running.Add(1)
	s.mu.Unlock()
	if err := validate(); err != nil {
		s.running.Done()
		return nil, nil, err
	}
	if ctx.Err() != nil {
		s.running.Done()
		return nil, nil, contract.NotSubmitted(ctx)
	}
	ctx, cancel := contract.WithDeadline(ctx)
	return hope(ctx), func() { cancel(); s.running.Done() }, nil
}

func errClosed() error {
	return contract.Errorf(contract.CodeClosed, nil, "the store is closed")
}

// start runs f in the background, unless the store has ended.
func (s *Store) start(f func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.life.Err() != nil {
		return false
	}
	s.background.Go(f)
	return true
}

// killed tells that the store died without a goodbye.
func (s *Store) killed() bool { return s.dead.Load() }

// Close implements contract.Store. The order: no new calls; waiters leave and
// running calls end; then what runs in the background, whose last act is to take
// the session away; then the connections that all of them used.
func (s *Store) Close(ctx context.Context) error {
	s.mu.Lock()
	first := !s.closed
	if first {
		s.closed = true
		close(s.closing)
		for st := range s.streams {
			st.end()
		}
		go func() { s.running.Wait(); close(s.idle) }()
	}
	s.mu.Unlock()
	if !first {
		<-s.ended // bounded by the first one's context
		return s.err
	}
	defer close(s.ended)
	select {
	case <-s.idle:
	case <-ctx.Done():
		s.err = contract.Errorf(contract.CodeTimeout, ctx.Err(), "calls were still running when the store was closed")
	}
	s.spares.expire(true)
	s.ender.drain(ctx)
	s.stop()
	s.background.Wait()
	if err := s.pool.close(); err != nil && s.err == nil {
		s.err = contract.Errorf(contract.CodeInternal, err, "a connection to etcd did not close")
	}
	return s.err
}

// stop ends what runs in the background. After it nothing more is started.
func (s *Store) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.endLife()
}
