package gateway

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"
)

const (
	readHeaderTimeout = 10 * time.Second
	idleTimeout       = 2 * time.Minute
	maxHeaderBytes    = 32 << 10
	// DefaultShutdownTimeout bounds Server.Run's shutdown when ServerOptions say
	// nothing.
	DefaultShutdownTimeout = 10 * time.Second
)

// ServerOptions configure a Server.
type ServerOptions struct {
	// Address is what to listen on, host:port.
	Address string
	// TLS, when set, is served in place of cleartext.
	TLS *tls.Config
	// ShutdownTimeout bounds the end of Run; 0 means DefaultShutdownTimeout.
	ShutdownTimeout time.Duration
	// Logger gets what goes wrong on connections; nil discards.
	Logger *slog.Logger
}

// Server serves a Gateway on an address.
type Server struct {
	gateway  *Gateway
	http     *http.Server
	listener net.Listener
	shutdown time.Duration
}

// Listen binds the address, so that a port in use is told before anything is
// served. Run serves; a Server that is never run is closed with Close.
func (g *Gateway) Listen(ctx context.Context, o ServerOptions) (*Server, error) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.ShutdownTimeout <= 0 {
		o.ShutdownTimeout = DefaultShutdownTimeout
	}
	var config net.ListenConfig
	l, err := config.Listen(ctx, "tcp", o.Address)
	if err != nil {
		return nil, fmt.Errorf("gateway: %w", err)
	}
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(o.TLS != nil)
	// HTTP/2 without TLS is for the machine itself: across a network nothing
	// would protect the bearer tokens in it.
	protocols.SetUnencryptedHTTP2(o.TLS == nil && isLoopback(l.Addr()))
	return &Server{
		gateway: g, listener: l, shutdown: o.ShutdownTimeout,
		http: &http.Server{
			Handler:           g.Handler(),
			TLSConfig:         o.TLS,
			ReadHeaderTimeout: readHeaderTimeout,
			IdleTimeout:       idleTimeout,
			MaxHeaderBytes:    maxHeaderBytes,
			Protocols:         protocols,
			ConnContext: func(ctx context.Context, c net.Conn) context.Context {
				return context.WithValue(ctx, connectionKey{}, &connection{conn: c})
			},
			ErrorLog: slog.NewLogLogger(o.Logger.Handler(), slog.LevelDebug),
		},
	}, nil
}

func isLoopback(a net.Addr) bool {
	tcp, ok := a.(*net.TCPAddr)
	return ok && tcp.IP.IsLoopback()
}

// Address returns what the server listens on, with the port that was chosen.
func (s *Server) Address() net.Addr { return s.listener.Addr() }

// Run serves until ctx ends or serving fails, and then shuts down within the
// shutdown timeout. It returns nil after an orderly shutdown. At the start it logs
// what was found in each namespace.
func (s *Server) Run(ctx context.Context) error {
	served := make(chan error, 1)
	go func() { served <- s.serve() }()
	starting, stop := context.WithCancel(ctx)
	var recovering sync.WaitGroup
	recovering.Go(func() { s.gateway.service.recover(starting) })
	defer func() { stop(); recovering.Wait() }()
	select {
	case err := <-served:
		return fmt.Errorf("gateway: serve: %w", err)
	case <-ctx.Done():
	}
	bound, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.shutdown)
	defer cancel()
	err := s.Shutdown(bound)
	if serveErr := <-served; !errors.Is(serveErr, http.ErrServerClosed) {
		err = errors.Join(err, serveErr)
	}
	return err
}

func (s *Server) serve() error {
	if s.http.TLSConfig != nil {
		return s.http.ServeTLS(s.listener, "", "")
	}
	return s.http.Serve(s.listener)
}

// Shutdown drains the gateway, then closes the listener and waits for the
// requests at work. In the other order it would wait for everyone who waits for
// a key. When ctx ends first, it cuts the connections that are left and says so.
func (s *Server) Shutdown(ctx context.Context) error {
	s.gateway.Drain()
	if err := s.http.Shutdown(ctx); err != nil {
		return errors.Join(fmt.Errorf("gateway: requests were cut at the end of the shutdown: %w", err), s.http.Close())
	}
	return nil
}

// Close closes the listener and cuts every connection.
func (s *Server) Close() error {
	return errors.Join(s.http.Close(), ignoreClosed(s.listener.Close()))
}

func ignoreClosed(err error) error {
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}
