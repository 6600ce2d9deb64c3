package etcd

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"leased/contract"
	"leased/contract/lifecycle"
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
	follower *follower

	// life ends what runs in the background.
	life    context.Context //nolint:containedctx // the store's own, for what runs beside calls
	endLife context.CancelFunc
	handle  *lifecycle.Handle
	dead    atomic.Bool
	tokens  tokens

	linesMu sync.Mutex
	lines   map[keyRef]*line
	trying  map[keyRef]int // how many calls are at a key without waiting

	mu         sync.Mutex
	background sync.WaitGroup // added to only under mu and while life has not ended
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
		config: c, names: names{c.Prefix}, handle: lifecycle.New(), lines: map[keyRef]*line{}, trying: map[keyRef]int{},
	}
	s.life, s.endLife = context.WithCancel(context.Background())
	s.pool = newPool(c, s.wentBack)
	s.buckets = newBuckets(s.pool, func(f func()) { s.start(f) })
	s.presence = &presence{s: s}
	s.ender = newEnder(s)
	s.trimmer = &trimmer{s: s}
	s.ownEnds = newRevisions(4096)
	s.hints = newHints()
	s.follower = &follower{s: s}
	s.spares = &spares{s: s, of: map[int64][]spare{}}
	s.start(s.sweep)
	s.start((&others{s: s, seen: map[string]sighting{}}).run)
	s.start(s.trimmer.run)
	return s, nil
}

// begin starts a call. The returned function ends it.
func (s *Store) begin(ctx context.Context, validate func() error) (context.Context, func(), error) {
	ctx, end, err := s.handle.Begin(ctx, validate)
	if err != nil {
		return nil, nil, err
	}
	return hope(ctx), end, nil
}

func errClosed() error { return lifecycle.Closed() }

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
func (s *Store) Close(ctx context.Context) error { return s.handle.Close(ctx, s.farewell) }

func (s *Store) farewell(ctx context.Context) error {
	s.spares.expire(true)
	s.ender.drain(ctx)
	s.stop()
	s.background.Wait()
	if err := s.pool.close(); err != nil {
		return contract.Errorf(contract.CodeInternal, err, "a connection to etcd did not close")
	}
	return nil
}

// stop ends what runs in the background. After it nothing more is started.
func (s *Store) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.endLife()
}
