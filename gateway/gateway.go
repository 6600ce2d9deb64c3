package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"leased/contract"
)

// DefaultMaxTimeout is the longest ?timeout that a call is given when Options
// say nothing; a longer one is cut to it.
const DefaultMaxTimeout = 10 * time.Minute

// DefaultMaxRestore is how large a backup can be that is restored, in bytes, when
// Options say nothing. It is far above what the memory of a node holds, and there
// so that a file that never ends, which only an administrator can send, does.
const DefaultMaxRestore = 64 << 30

// Options configure a Gateway.
type Options struct {
	// Namespaces are served under their names; at least one.
	Namespaces []Namespace
	// Auth decides who may do what; required, so that nobody serves everything
	// to everybody by forgetting it.
	Auth Authenticator
	// Registry is where the metrics are registered, and what /metrics shows; nil
	// makes one.
	Registry *prometheus.Registry
	// Audit takes the audit events; nil takes none. Closing it is the caller's.
	Audit AuditSink
	// Cluster is behind /v1/cluster; nil where no backend is a cluster of its own.
	Cluster Cluster
	// Logger gets one line a request and the causes of errors; nil discards.
	Logger *slog.Logger
	// Version is what /healthz and the metrics call this build.
	Version string
	// MaxTimeout caps ?timeout; 0 means DefaultMaxTimeout.
	MaxTimeout time.Duration
	// MaxRestore caps the size of a backup that is restored, in bytes; 0 means
	// DefaultMaxRestore.
	MaxRestore int64
	// Now is the clock of audit events and latencies; nil means time.Now. No
	// lease depends on it.
	Now func() time.Time
}

// Gateway serves the HTTP API of its namespaces.
type Gateway struct {
	service *Service
	handler http.Handler
}

// New returns a gateway over stores that are open. It starts nothing.
func New(o Options) (*Gateway, error) {
	if o.Auth == nil {
		return nil, errors.New("gateway: Options.Auth is required; AuthNone gives everybody every right")
	}
	if o.Registry == nil {
		o.Registry = prometheus.NewRegistry()
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.MaxTimeout <= 0 {
		o.MaxTimeout = DefaultMaxTimeout
	}
	if o.MaxRestore <= 0 {
		o.MaxRestore = DefaultMaxRestore
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	dropped := func() float64 { return 0 }
	if o.Audit != nil {
		dropped = func() float64 { return float64(o.Audit.Dropped()) }
	}
	m, err := newMetrics(o.Registry, o.Version, dropped)
	if err != nil {
		return nil, err
	}
	r, err := newRouter(o.Namespaces, m)
	if err != nil {
		return nil, err
	}
	if err := registerStoreGauges(o.Registry, r.sorted); err != nil {
		return nil, err
	}
	s := &Service{
		router: r, auth: o.Auth, audit: o.Audit, cluster: o.Cluster, drainer: newDrainer(),
		logger: o.Logger, maxTimeout: o.MaxTimeout, maxRestore: o.MaxRestore, bodyTimeout: bodyTimeout, streams: defaultStreamTimes(), now: o.Now, started: o.Now(),
	}
	h, err := newHandler(s, m, &o)
	if err != nil {
		return nil, err
	}
	return &Gateway{service: s, handler: h}, nil
}

// Handler returns the HTTP API.
func (g *Gateway) Handler() http.Handler { return g.handler }

// ExpiryObserver returns what the stores of all namespaces are to be given, so
// that expiries are counted, timed and audited. Stores are opened before the
// gateway is made; one that records an expiry in between loses a count and
// nothing else.
func (g *Gateway) ExpiryObserver() contract.ExpiryObserver { return g.service.observe }

// Drain turns operations away: those that wait for a key answer closed at once
// and leave the queue, new ones answer closed, those at work finish. Health,
// metrics and the list of namespaces are served on. It may be called twice.
func (g *Gateway) Drain() { g.service.drainer.drain() }

// Close drains and waits, until ctx ends, for the looks at the stores' health
// that still run. It is called before the stores are closed.
func (g *Gateway) Close(ctx context.Context) error {
	g.Drain()
	for _, ns := range g.service.router.sorted {
		if err := ns.health.wait(ctx); err != nil {
			return fmt.Errorf("gateway: namespace %q: its store's health check does not end: %w", ns.Name, err)
		}
	}
	return nil
}
