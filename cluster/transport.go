package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

const (
	// rpcTimeout bounds one message between nodes; raft gives a snapshot more, by
	// its size.
	rpcTimeout = 10 * time.Second
	// idleConns is how many unused connections to a peer are kept.
	idleConns = 3
)

// transport is what a node needs of one of raft's.
type transport interface {
	raft.Transport
	raft.WithClose
}

// newTransport returns an in-process transport, which no peer can reach, or
// listens on cfg.Listen.
func newTransport(ctx context.Context, cfg Config, logger *raftLogger) (transport, error) {
	if cfg.Listen == "" {
		_, trans := raft.NewInmemTransport(raft.ServerAddress(cfg.NodeID))
		return trans, nil
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", cfg.Listen)
	if err != nil {
		return nil, fmt.Errorf("cluster.listen: %w", err)
	}
	addr, ok := listener.Addr().(*net.TCPAddr)
	if !ok || !addr.IP.IsLoopback() {
		// Whoever reaches the port can write any command.
		err := fmt.Errorf("cluster.listen: %s is not a loopback address: peers off this machine need mutual TLS, which this release lacks", cfg.Listen)
		return nil, errors.Join(err, listener.Close())
	}
	return raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{
		Stream:  &peerStream{Listener: listener, conns: make(map[*peerConn]struct{})},
		MaxPool: idleConns,
		Timeout: rpcTimeout,
		Logger:  logger,
	}), nil
}

var _ raft.StreamLayer = (*peerStream)(nil)

// peerStream accepts and dials connections between peers.
//
// It closes all of them with the listener. raft's transport leaves the accepted
// ones open until the peer closes its end, and a goroutine with each, and the
// unused ones that it dialed for ever.
type peerStream struct {
	net.Listener

	mu     sync.Mutex
	closed bool
	conns  map[*peerConn]struct{}
	served sync.WaitGroup // accepted connections that are not closed
}

// Dial implements raft.StreamLayer.
func (p *peerStream) Dial(address raft.ServerAddress, timeout time.Duration) (net.Conn, error) {
	d := net.Dialer{Timeout: timeout}
	conn, err := d.DialContext(context.Background(), "tcp", string(address))
	if err != nil {
		return nil, err
	}
	return p.track(&peerConn{Conn: conn, stream: p})
}

// Accept implements net.Listener.
func (p *peerStream) Accept() (net.Conn, error) {
	conn, err := p.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return p.track(&peerConn{Conn: conn, stream: p, accepted: true})
}

// track remembers c until it is closed.
func (p *peerStream) track(c *peerConn) (net.Conn, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, errors.Join(net.ErrClosed, c.Conn.Close())
	}
	p.conns[c] = struct{}{}
	if c.accepted {
		p.served.Add(1) // under the lock, so that Close does not wait already
	}
	return c, nil
}

// Close implements net.Listener. It returns when the goroutines that raft's
// transport started for accepted connections have let go of them.
func (p *peerStream) Close() error {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return nil
	}
	p.closed = true
	err := p.Listener.Close()
	for c := range p.conns {
		// Only what is below: whoever reads from it sees the error and closes it.
		_ = c.Conn.Close()
	}
	p.mu.Unlock()
	p.served.Wait()
	return err
}

type peerConn struct {
	net.Conn

	stream   *peerStream
	accepted bool
	once     sync.Once
}

// Close implements net.Conn.
func (c *peerConn) Close() error {
	err := c.Conn.Close()
	c.once.Do(func() {
		c.stream.mu.Lock()
		defer c.stream.mu.Unlock()
		delete(c.stream.conns, c)
		if c.accepted {
			c.stream.served.Done()
		}
	})
	return err
}
