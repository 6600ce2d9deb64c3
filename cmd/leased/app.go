package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"leased/contract"
	"leased/gateway"
)

// Bounds of an orderly end.
const (
	// stopTimeout bounds all of it: less than the patience of whoever sends a
	// KILL after the TERM, which is seldom under 30 s and 10 s with Docker.
	stopTimeout = 9 * time.Second
	// drainTimeout bounds the HTTP server's share of it. A client that is slow to
	// send its body must not use up the time that the stores need.
	drainTimeout = 4 * time.Second
	// handOverTimeout bounds the handing over of leadership, which takes a round
	// trip or two where it works.
	handOverTimeout = time.Second
)

// app is a running node.
//
// # The order of the end
//
// It is the reverse of the order of the start, and each step waits only for
// what the steps after it still keep running:
//
//  1. Leadership, if this node has it and others can take it: it is handed over
//     while everything still works, so that nobody has to notice that a leader is
//     gone. Calls that run meanwhile are forwarded.
//  2. HTTP server. First it drains the gateway: calls parked in a queue are
//     answered at once. It would otherwise wait for them, and they for a grant,
//     for minutes. Then it takes no new connections and waits for the requests
//     that run. They need the stores, which is why these are still open.
//  3. Gateway: waits for the looks at the stores' health that still run.
//  4. Stores: refuse, and take their waiters out of the queues, which is a log
//     entry. With the engine or the node closed first, that entry could never be
//     answered and Close would hang to its bound.
//  5. Engine: waits for the commands that it sent on its own account, so the
//     node must still answer them. It reads the node's leadership until then.
//  6. Raft node: nobody proposes any more, so nothing is left that it would owe
//     an answer; it frees the data directory.
//  7. Audit log: last, because each step above still writes to it.
type app struct {
	settings *settings
	log      *slog.Logger
	observer *lateObserver
	cleanups cleanups
	address  string        // of the HTTP server, as bound
	cluster  *clusterAdmin // nil without a raftkv backend
	ended    chan struct{} // closed when the HTTP server has ended
	serveErr error         // why; set before ended is closed
}

// openApp starts everything, or nothing.
func openApp(ctx context.Context, e *env, s *settings) (*app, error) {
	a := &app{settings: s, log: newLogger(e, s.Log), observer: &lateObserver{}, ended: make(chan struct{})}
	for _, name := range s.strange {
		a.log.Warn("this variable begins with LEASED_ and names no setting", "variable", name)
	}
	if err := a.open(ctx, e); err != nil {
		return nil, errors.Join(err, a.close(ctx))
	}
	return a, nil
}

// wait returns when ctx ends, or with the error of a server that ended before.
func (a *app) wait(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-a.ended:
		return a.serveErr
	}
}

// close ends everything, whether or not ctx has ended already.
func (a *app) close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	return a.cleanups.run(ctx, a.log)
}

func (a *app) open(ctx context.Context, e *env) error {
	audit, err := gateway.OpenAudit(a.settings.Audit.File)
	if err != nil {
		return fmt.Errorf("audit.file: %w", err)
	}
	if audit != nil {
		a.cleanups.push("audit log", audit.Close)
	}
	namespaces, err := a.openNamespaces(ctx)
	if err != nil {
		return err
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	options := gateway.Options{
		Namespaces: namespaces, Auth: gateway.AuthNone(), Registry: registry, Audit: audit, Logger: a.log, Version: e.version,
	}
	if a.cluster != nil {
		options.Cluster = a.cluster
	}
	g, err := gateway.New(options)
	if err != nil {
		return err
	}
	a.cleanups.push("gateway", g.Close)
	a.observer.attach(g.ExpiryObserver())
	if err := a.serve(ctx, g); err != nil {
		return err
	}
	if a.cluster != nil && a.settings.Cluster.Listen != "" {
		a.cleanups.push("leadership", a.handOver)
	}
	return nil
}

// handOver has another node lead. That none can is no reason not to stop.
func (a *app) handOver(ctx context.Context) error {
	if term, _ := a.cluster.node.Leadership(); term == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, handOverTimeout)
	defer cancel()
	if err := a.cluster.node.Transfer(ctx, ""); err != nil {
		a.log.Info("leadership stays until this node has stopped", "error", err)
	}
	return nil
}

// serve starts the HTTP server. The port comes last, so that whoever gets a
// connection is served, and so that a second process on the same data is told of
// the data and not of the port.
func (a *app) serve(ctx context.Context, g *gateway.Gateway) error {
	tlsConfig, err := a.settings.HTTP.TLS.load()
	if err != nil {
		return err
	}
	server, err := g.Listen(ctx, gateway.ServerOptions{
		Address: a.settings.HTTP.Listen, TLS: tlsConfig, ShutdownTimeout: drainTimeout, Logger: a.log,
	})
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return fmt.Errorf("http.listen: %w; stop what listens there, or choose another address with --http.listen", err)
	case err != nil:
		return fmt.Errorf("http.listen: %w", err)
	}
	a.address = server.Address().String()
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	go func() {
		defer close(a.ended)
		a.serveErr = server.Run(running)
	}()
	a.cleanups.push("HTTP server", func(ctx context.Context) error {
		stop()
		select {
		case <-a.ended:
			return a.serveErr
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	})
	return nil
}

// load returns what to serve TLS with, nil when nothing is configured.
func (c httpTLSConfig) load() (*tls.Config, error) {
	if c.Cert == "" {
		return nil, nil //nolint:nilnil // no TLS is a valid configuration
	}
	cert, err := tls.LoadX509KeyPair(c.Cert, c.Key)
	if err != nil {
		return nil, fmt.Errorf("http.tls: %w", err)
	}
	return &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12}, nil
}

// openNamespaces opens each backend that a namespace names, once.
func (a *app) openNamespaces(ctx context.Context) ([]gateway.Namespace, error) {
	stores := map[string]contract.Store{}
	for _, name := range a.settings.usedBackends() {
		store, err := openBackend(ctx, a, name)
		if err != nil {
			return nil, err
		}
		stores[name] = store
	}
	var all []gateway.Namespace
	for _, name := range slices.Sorted(maps.Keys(a.settings.Namespaces)) {
		ns := a.settings.Namespaces[name]
		all = append(all, gateway.Namespace{Name: name, Backend: ns.Backend, Store: stores[ns.Backend], Policy: ns.policy()})
	}
	return all, nil
}

// lateObserver takes expiries before the gateway is there to hear of them: the
// engine sweeps as soon as it leads, and the gateway needs the engine's store.
type lateObserver struct {
	mu      sync.Mutex
	to      contract.ExpiryObserver
	waiting []contract.Event
}

func (o *lateObserver) observe(e contract.Event) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.to == nil {
		o.waiting = append(o.waiting, e)
		return
	}
	o.to(e)
}

// attach makes to the one that hears, of what is waiting too.
func (o *lateObserver) attach(to contract.ExpiryObserver) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, e := range o.waiting {
		to(e)
	}
	o.to, o.waiting = to, nil
}

func newLogger(e *env, c logConfig) *slog.Logger {
	var level slog.Level
	// The configuration has only names that this reads.
	_ = level.UnmarshalText([]byte(c.Level))
	options := &slog.HandlerOptions{Level: level}
	if c.Format == "json" {
		return slog.New(slog.NewJSONHandler(e.stderr, options))
	}
	return slog.New(slog.NewTextHandler(e.stderr, options))
}
