package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"leased/backends/etcd"
	"leased/backends/valkey"
	"leased/contract"
	"leased/contract/contracttest"
)

// cleanTimeout bounds the removal of what the suite wrote.
const cleanTimeout = 15 * time.Second

// mortal is a store that can end as the death of its process would end it.
type mortal interface {
	contract.Store
	Abandon()
}

// remote opens stores on a server of others, below a prefix.
type remote struct {
	open       func(prefix string) (mortal, error)
	clean      func(ctx context.Context, prefix string) error
	guarantees contract.Guarantees
}

// openRemoteSubject prepares the suite on a server of others. Everything is
// written below one prefix that nobody else has; each rule has one of its own
// below that, as each has a deployment of its own in the tests.
func openRemoteSubject(s *subject) (*openSubject, error) {
	r, err := s.remote()
	if err != nil {
		return nil, err
	}
	scratch := "contract-" + strings.ToLower(rand.Text()[:12])
	if s.backend.Prefix != "" {
		scratch = s.backend.Prefix + "-" + scratch // where the server's user may write
	}
	var rules atomic.Int64
	return &openSubject{
		name: s.kind, guarantees: r.guarantees,
		store: func() (contract.Store, error) { return r.open(scratch + "-0") },
		harness: func(contracttest.Rule) func(contracttest.TB) *contracttest.Harness {
			return func(contracttest.TB) *contracttest.Harness {
				h := &remoteHandles{remote: r, prefix: fmt.Sprintf("%s-%d", scratch, rules.Add(1)), alive: make(map[mortal]struct{})}
				return h.harness(s.kind)
			}
		},
		close: func(ctx context.Context) error {
			limit, ran := cleanTimeout, rules.Load() > 0
			if !ran {
				limit = readyTimeout
			}
			ctx, cancel := context.WithTimeout(ctx, limit)
			defer cancel()
			if err := r.clean(ctx, scratch); ran {
				return err
			}
			return nil // a server that was not there has nothing of ours
		},
	}, nil
}

// remote returns how to reach the server.
func (s *subject) remote() (*remote, error) {
	switch s.kind {
	case backendValkey:
		cfg, err := s.backend.valkey()
		return &remote{
			open: func(prefix string) (mortal, error) {
				cfg := cfg
				cfg.Prefix = prefix + ":"
				return valkey.Open(context.Background(), cfg)
			},
			clean:      func(ctx context.Context, prefix string) error { return valkey.Clean(ctx, cfg, prefix) },
			guarantees: valkey.Guarantees(),
		}, err
	case backendEtcd:
		cfg, err := s.backend.etcd()
		return &remote{
			open: func(prefix string) (mortal, error) {
				cfg := cfg
				cfg.Prefix = prefix
				return etcd.Open(context.Background(), cfg)
			},
			clean:      func(ctx context.Context, prefix string) error { return etcd.Clean(ctx, cfg, prefix) },
			guarantees: etcd.Guarantees(),
		}, err
	}
	return nil, fmt.Errorf("no backend has the type %q", s.kind)
}

// remoteHandles are the stores that one rule opened. Each stands for a gateway.
type remoteHandles struct {
	remote *remote
	prefix string

	mu    sync.Mutex
	alive map[mortal]struct{}
}

func (h *remoteHandles) harness(name string) *contracttest.Harness {
	return &contracttest.Harness{
		Name: name, Open: h.open, Kill: h.kill, Reopen: h.reopen,
		Advance: contracttest.AdvanceRealTime, Guarantees: h.remote.guarantees,
	}
}

func (h *remoteHandles) open(t contracttest.TB) contract.Store {
	t.Helper()
	s, err := h.remote.open(h.prefix)
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.alive[s] = struct{}{}
	return s
}

func (h *remoteHandles) kill(t contracttest.TB, s contract.Store) {
	t.Helper()
	m, ok := s.(mortal)
	if !ok {
		t.Fatalf("the suite kills a store that it did not open")
	}
	h.mu.Lock()
	delete(h.alive, m)
	h.mu.Unlock()
	m.Abandon()
}

// reopen drops every connection. Restarting a server of others is not ours.
func (h *remoteHandles) reopen(contracttest.TB) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for s := range h.alive {
		s.Abandon()
	}
	clear(h.alive)
}
