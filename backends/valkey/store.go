package valkey

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"leased/contract"
	"leased/contract/lifecycle"
)

// Store is a handle on the server. It implements contract.Store. Each handle is
// a gateway of its own to the others.
type Store struct {
	cfg     Config
	link    *link
	scripts *scripts
	log     *slog.Logger
	gateway string // who this handle is in queues, 11 characters
	handle  *lifecycle.Handle
	dead    chan struct{} // closed at the end: what runs in the background stops

	mu     sync.Mutex
	rooms  map[string]*room
	behind sync.WaitGroup // goroutines; added to only under mu and while not over
	over   bool

	lastN atomic.Uint64 // the newest attachment
}

var _ contract.Store = (*Store)(nil)

// Open returns a store on the configured server. It connects in the background:
// a server that is down makes calls unavailable and does not keep anybody from
// starting. It fails for a configuration that cannot be right.
func Open(_ context.Context, cfg Config) (*Store, error) {
	cfg, err := cfg.check()
	if err != nil {
		return nil, err
	}
	sc, err := newScripts()
	if err != nil {
		return nil, err
	}
	var id [8]byte
	_, _ = rand.Read(id[:]) // never fails, see its documentation
	s := &Store{
		cfg: cfg, scripts: sc, log: cfg.Logger, gateway: base64.RawURLEncoding.EncodeToString(id[:]),
		handle: lifecycle.New(), dead: make(chan struct{}), rooms: map[string]*room{},
	}
	s.link = newLink(cfg, sc.rights, s.changed)
	s.start(s.registry)
	return s, nil
}

// start runs f in the background, unless the store is over. f ends soon after
// its context.
func (s *Store) start(f func(context.Context)) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		return false
	}
	s.behind.Go(func() {
		ctx, cancel := s.life()
		defer cancel()
		f(ctx)
	})
	return true
}

// changed has everything looked at again that a server which went back, or a
// connection that broke, may have made wrong.
func (s *Store) changed() {
	s.mu.Lock()
	rooms := slices.Collect(maps.Values(s.rooms))
	s.mu.Unlock()
	for _, r := range rooms {
		r.reset()
	}
}

// life returns a context that ends when the store is over.
func (s *Store) life() (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		select {
		case <-s.dead:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}

// begin starts a call in its namespace's room. The returned function ends it.
func (s *Store) begin(ctx context.Context, namespace string, validate func() error) (context.Context, *room, func(), error) {
	ctx, end, err := s.handle.Begin(ctx, validate)
	if err != nil {
		return nil, nil, nil, err
	}
	return ctx, s.room(namespace), end, nil
}

// Close implements contract.Store.
func (s *Store) Close(ctx context.Context) error {
	return s.handle.Close(ctx, s.farewell)
}

// stop ends what runs in the background, of which nothing more is started. It
// tells whether it was the first to do so.
func (s *Store) stop() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		return false
	}
	s.over = true
	close(s.dead)
	return true
}

// farewell stops what runs in the background and hangs up.
func (s *Store) farewell(ctx context.Context) error {
	s.stop()
	done := make(chan struct{})
	go func() {
		s.behind.Wait()
		s.link.close()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return contract.Errorf(contract.CodeTimeout, ctx.Err(), "the store's connections were still open when it was closed")
	}
}
