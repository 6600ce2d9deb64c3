package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptrace"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// maxStreams is how many calls one connection carries at a time. Waiting calls
	// are many, and each waits for its turn at the leader.
	maxStreams = 1 << 16
	// pingAfter and pingTimeout end a connection to a peer that is gone without a
	// word, so that the next call makes a new one.
	pingAfter   = time.Second
	pingTimeout = time.Second
	// callerPingAfter is pingAfter on the side that was called: a call that waits in a
	// queue must have left it 2 s after its node has gone without a word.
	callerPingAfter = 500 * time.Millisecond
	// callsStop bounds how long Close waits for the calls of peers.
	callsStop = time.Second
)

type peerKey struct{}

// PeerOf returns the id of the node that sent a call, inside of the handler that
// was given to Serve; empty elsewhere.
func PeerOf(ctx context.Context) string {
	if c, ok := ctx.Value(peerKey{}).(*peerConn); ok {
		return nodeOf(c.peer)
	}
	return ""
}

// calls is HTTP between nodes, over the peer port.
type calls struct {
	port    *peerPort // nil: no peer port
	server  *http.Server
	handler atomic.Pointer[http.Handler] // the owner's, for protoCalls
	own     http.Handler                 // this package's, for protoMembers
	served  sync.WaitGroup               // running handlers
	stopped chan struct{}

	out     *http.Transport // for the owner
	members *http.Transport // for this package
}

func newCalls(port *peerPort, own http.Handler, log *slog.Logger) *calls {
	c := &calls{port: port, own: own, stopped: make(chan struct{})}
	c.out, c.members = c.transport(protoCalls), c.transport(protoMembers)
	if port == nil {
		close(c.stopped)
		return c
	}
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true) // TLS, if any, is below
	c.server = &http.Server{
		Handler:           http.HandlerFunc(c.serve),
		Protocols:         protocols,
		HTTP2:             &http.HTTP2Config{MaxConcurrentStreams: maxStreams, SendPingTimeout: callerPingAfter, PingTimeout: pingTimeout},
		ReadHeaderTimeout: helloTimeout,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug),
		ConnContext: func(ctx context.Context, conn net.Conn) context.Context {
			return context.WithValue(ctx, peerKey{}, conn)
		},
	}
	go func() {
		defer close(c.stopped)
		// It only ever ends by being closed.
		_ = c.server.Serve(&handed{conns: port.http, port: port, done: make(chan struct{})})
	}()
	return c
}

// serve gives a call to whom its connection is for.
func (c *calls) serve(w http.ResponseWriter, r *http.Request) {
	c.served.Add(1)
	defer c.served.Done()
	conn, ok := r.Context().Value(peerKey{}).(*peerConn)
	if ok && conn.protocol == protoMembers {
		c.own.ServeHTTP(w, r)
		return
	}
	if h := c.handler.Load(); h != nil {
		(*h).ServeHTTP(w, r)
		return
	}
	// As a handler answers that does not lead: the call was certainly not begun.
	http.Error(w, "this node does not take calls yet", http.StatusMisdirectedRequest)
}

func (c *calls) transport(p protocol) *http.Transport {
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	return &http.Transport{
		DialContext: func(ctx context.Context, _, address string) (net.Conn, error) {
			if c.port == nil {
				return nil, errNoPeerPort
			}
			node, _, err := net.SplitHostPort(address)
			if err != nil {
				return nil, err
			}
			return c.port.dial(ctx, p, node)
		},
		Protocols:           protocols,
		HTTP2:               &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingTimeout},
		DisableCompression:  true,
		MaxIdleConnsPerHost: idleConns,
	}
}

// close ends the calls of peers and those to them. Calls of peers get a moment to
// finish: their answers are on the way.
func (c *calls) close() error {
	var err error
	if c.server != nil {
		ctx, cancel := context.WithTimeout(context.Background(), callsStop)
		defer cancel()
		if e := c.server.Shutdown(ctx); e != nil && !errors.Is(e, context.DeadlineExceeded) {
			err = e
		}
		if e := c.server.Close(); e != nil && !errors.Is(e, net.ErrClosed) {
			err = errors.Join(err, e)
		}
	}
	<-c.stopped
	c.served.Wait()
	c.out.CloseIdleConnections()
	c.members.CloseIdleConnections()
	return err
}

// handed is a listener for connections that were accepted elsewhere.
type handed struct {
	conns <-chan net.Conn
	port  *peerPort
	once  sync.Once
	done  chan struct{}
}

// Accept implements net.Listener.
func (h *handed) Accept() (net.Conn, error) {
	select {
	case c := <-h.conns:
		return c, nil
	case <-h.done:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener. The port is closed by its owner.
func (h *handed) Close() error {
	h.once.Do(func() { close(h.done) })
	return nil
}

// Addr implements net.Listener.
func (h *handed) Addr() net.Addr { return h.port.listener.Addr() }

// Transport reaches other nodes: a request to http://NODE-ID/path goes to the
// handler which the owner of that node gave to Serve. A connection is made within a
// second or not at all, kept, and closed with this node; the request's context
// bounds everything.
//
// An error for which NotSent tells true means that the request did not leave
// this node. After any other it may have been handled.
func (n *Node) Transport() http.RoundTripper {
	return roundTripper{n.peers.out}
}

type roundTripper struct{ over *http.Transport }

// RoundTrip implements http.RoundTripper.
func (r roundTripper) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.URL.Scheme != "http" {
		return nil, &notSentError{fmt.Errorf("a peer is reached as http://NODE-ID, not as %s://", req.URL.Scheme)}
	}
	for again := 0; ; again++ {
		sent := false
		trace := &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { sent = true }}
		res, err := r.over.RoundTrip(req.WithContext(httptrace.WithClientTrace(req.Context(), trace)))
		switch {
		case err == nil:
			return res, nil
		case !isStillborn(err):
			if !sent {
				err = &notSentError{err}
			}
			return nil, err
		case again == idleConns:
			return nil, &notSentError{err}
		}
		// The node may be there, as another process.
		if req, err = rewound(req); err != nil {
			return nil, &notSentError{err}
		}
	}
}

// isStillborn tells of a connection that died before its first request: net/http
// keeps it for seconds, fails that request without sending it, and only then forgets
// it. The error has no name outside of net/http; TestNode_Transport_restarted fails
// if its text changes.
func isStillborn(err error) bool {
	return err.Error() == "http2: client conn could not be established"
}

// rewound returns req with its body from the start.
func rewound(req *http.Request) (*http.Request, error) {
	if req.Body == nil || req.Body == http.NoBody {
		return req, nil
	}
	if req.GetBody == nil {
		return nil, errors.New("the connection had died, and the request's body cannot be read again")
	}
	body, err := req.GetBody()
	if err != nil {
		return nil, fmt.Errorf("read the body of a request again: %w", err)
	}
	req = req.Clone(req.Context())
	req.Body = body
	return req, nil
}

// notSentError marks an error from before anything of a request was sent.
type notSentError struct{ err error }

// Error implements error.
func (e *notSentError) Error() string { return e.err.Error() }

// Unwrap returns why.
func (e *notSentError) Unwrap() error { return e.err }

// NotSent tells callers of the round tripper that do not import this package.
func (e *notSentError) NotSent() bool { return true }

// NotSent tells whether err, of the round tripper that Transport returns, is from
// before anything of the request was sent.
func NotSent(err error) bool {
	var e interface{ NotSent() bool }
	return errors.As(err, &e) && e.NotSent()
}

// Serve has h answer the calls of other nodes. Until then they are told 421.
// A call's context ends with its connection, and with this node.
func (n *Node) Serve(h http.Handler) {
	n.peers.handler.Store(&h)
}
