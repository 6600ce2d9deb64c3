package valkey

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"log/slog"
	"maps"
	"slices"
	"sync"

	"leased/contract"
)

// Store is a handle on the server. It implements contract.Store. Each handle is
// a gateway of its own to the others.
type Store struct {
	cfg     Config
	link    *link
	scripts *scripts
	log     *slog.Logger
	gateway string        // who this handle is in queues, 11 characters
	closing chan struct{} // closed by Close: waiting calls leave
	dead    chan struct{} // closed at the end: what runs in the background stops

	mu      sync.Mutex
	closed  bool
	running sync.WaitGroup // calls; added to only under mu and while not closed
	idle    chan struct{}  // closed when the last call has ended after Close
	ended   chan struct{}  // closed when the first Close has answered
	err     error          // its answer; read after ended
	rooms   map[string]*room
	streams map[*stream]struct{}
	behind  sync.WaitGroup // goroutines; added to only under mu and while not over
	over    bool
	lastN   uint64 // the newest attachment
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
		closing: make(chan struct{}), dead: make(chan struct{}), idle: make(chan struct{}), ended: make(chan struct{}),
		rooms: map[string]*room{}, streams: map[*stream]struct{}{},
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

// begin starts a call: it validates, sets the deadline and refuses after Close.
// The returned function ends the call.
func (s *Store) begin(ctx context.Context, namespace string, validate func() error) (context.Context, *room, func(), error) {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil, nil, nil, errClosed()
	}
	s.running.Add(1)
	s.mu.Unlock()
	if err := validate(); err != nil {
		s.running.Done()
		return nil, nil, nil, err
	}
	if ctx.Err() != nil {
		s.running.Done()
		return nil, nil, nil, contract.NotSubmitted(ctx)
	}
	ctx, cancel := contract.WithDeadline(ctx)
	return ctx, s.room(namespace), func() { cancel(); s.running.Done() }, nil
}

// Close implements contract.Store.
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
	if err := s.farewell(ctx); err != nil && s.err == nil {
		s.err = err
	}
	return s.err
}

// farewell stops what runs in the background and hangs up.
func (s *Store) farewell(ctx context.Context) error {
	s.mu.Lock()
	s.over = true
	s.mu.Unlock()
	close(s.dead)
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
