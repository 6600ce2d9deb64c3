package cluster

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"
)

const (
	// dialTimeout bounds a connection to a peer with its handshake. Peers are near:
	// a packet that is lost twice takes less.
	dialTimeout = time.Second
	// maxGreeting is how many connections may be in their handshake. Whoever can
	// reach the port could otherwise open any number.
	maxGreeting = 256
)

// errNoPeerPort says that the node can neither be reached nor reach others.
var errNoPeerPort = errors.New("this node has no peer port: set cluster.listen")

// peerPort is the one port on which other nodes reach this one, for whatever
// protocol, and from which this node reaches them.
//
// It closes all of its connections with the listener. raft's transport leaves the
// accepted ones open until the peer closes its end, and a goroutine with each,
// and the unused ones that it dialed for ever.
type peerPort struct {
	listener net.Listener
	address  string // what this node tells others, empty if it does not know
	tls      *peerTLS
	dialer   func(ctx context.Context, network, address string) (net.Conn, error)
	book     *addresses
	log      *slog.Logger
	seldom   *seldom
	// self is asked for each connection.
	self func() membership

	raft chan net.Conn // accepted for raft
	http chan net.Conn // and for the HTTP server

	greeting chan struct{}
	done     chan struct{} // closed at the begin of Close
	mu       sync.Mutex
	closed   bool
	conns    map[*peerConn]struct{}
	waited   sync.WaitGroup // goroutines and connections that end by themselves
}

func listenPeers(ctx context.Context, cfg Config, book *addresses, self func() membership) (*peerPort, error) {
	secure, err := newPeerTLS(cfg.TLS, cfg.Logger)
	if err != nil {
		return nil, err
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", cfg.Listen)
	if err != nil {
		return nil, fmt.Errorf("cluster.listen: %w", err)
	}
	addr, ok := listener.Addr().(*net.TCPAddr)
	if secure == nil && (!ok || !addr.IP.IsLoopback()) {
		// Whoever reaches the port can write any command.
		err := fmt.Errorf("cluster.listen: %s is not a loopback address: peers off this machine need mutual TLS, set cluster.tls", cfg.Listen)
		return nil, errors.Join(err, listener.Close())
	}
	p := &peerPort{
		listener: listener,
		address:  cfg.Members[cfg.NodeID],
		tls:      secure,
		dialer:   cfg.Dial,
		book:     book,
		log:      cfg.Logger.With("node", cfg.NodeID),
		seldom:   newSeldom(),
		self:     self,
		raft:     make(chan net.Conn),
		http:     make(chan net.Conn),
		greeting: make(chan struct{}, maxGreeting),
		done:     make(chan struct{}),
		conns:    make(map[*peerConn]struct{}),
	}
	if p.address == "" && ok && !addr.IP.IsUnspecified() {
		p.address = addr.String()
	}
	if p.dialer == nil {
		p.dialer = new(net.Dialer).DialContext
	}
	p.waited.Add(1)
	go p.accept()
	return p, nil
}

// accept hands each connection on once it has introduced itself.
func (p *peerPort) accept() {
	defer p.waited.Done()
	const maxPause = time.Second
	pause := 5 * time.Millisecond
	for {
		conn, err := p.listener.Accept()
		if err != nil {
			select {
			case <-p.done:
				return
			case <-time.After(pause): // mostly too many open files
				p.log.Warn("accept on the peer port", "error", err)
				pause = min(2*pause, maxPause)
				continue
			}
		}
		pause = 5 * time.Millisecond
		c, err := p.track(&peerConn{Conn: conn, raw: conn, port: p, waited: true})
		if err != nil {
			continue // closing
		}
		select {
		case p.greeting <- struct{}{}:
			p.waited.Go(func() { p.welcome(c) })
		default:
			_ = c.Close() // nobody is told; there are too many
		}
	}
}

// welcome does the listener's half of the handshake.
func (p *peerPort) welcome(c *peerConn) {
	to, err := p.introduce(c)
	<-p.greeting
	if err != nil {
		if p.seldom.now(c.peer + reasonOf(err)) {
			p.log.Warn("peer connection refused", "peer", c.peer, "remote", c.RemoteAddr().String(), "reason", err)
		}
		_ = c.Close() // there is nobody to tell
		return
	}
	select {
	case to <- c:
	case <-p.done:
		_ = c.Close() // as above
	}
}

// introduce returns where a connection belongs, or why it is refused.
func (p *peerPort) introduce(c *peerConn) (chan<- net.Conn, error) {
	if err := c.SetDeadline(time.Now().Add(helloTimeout)); err != nil {
		return nil, err
	}
	var secure *tls.Conn
	if p.tls != nil {
		secure = tls.Server(c.raw, p.tls.config())
		c.Conn = secure
		if err := secure.Handshake(); err != nil { //nolint:noctx // the deadline is on the connection
			return nil, fmt.Errorf("tls: %w", err)
		}
	}
	self := p.self()
	h, err := readHello(c)
	c.name(h.From)
	var no *refusal
	switch {
	case errors.As(err, &no):
	case err != nil:
		return nil, fmt.Errorf("handshake: %w", err)
	default:
		no = self.judge(h)
	}
	if no == nil && secure != nil {
		if err := secure.ConnectionState().PeerCertificates[0].VerifyHostname(nodeOf(h.From)); err != nil {
			no = &refusal{codeIdentity, fmt.Sprintf("the certificate is not for node %s: %v", nodeOf(h.From), err)}
		}
	}
	answer := hello{Cluster: self.clusterID, From: self.serverID, Address: p.address}
	if no != nil {
		answer.Code, answer.Refused = no.code, no.reason
	}
	if err := writeHello(c, answer); err != nil {
		return nil, err
	}
	if no != nil {
		return nil, no
	}
	p.book.tell(h.From, h.Address)
	c.protocol = h.Protocol
	if err := c.SetDeadline(time.Time{}); err != nil {
		return nil, err
	}
	if h.Protocol == protoRaft {
		return p.raft, nil
	}
	return p.http, nil
}

// dial connects to a node, a server id for raft and a node id otherwise. It tries
// all addresses that are known for it at the same time.
func (p *peerPort) dial(ctx context.Context, proto protocol, to string) (*peerConn, error) {
	node := nodeOf(to)
	candidates := p.book.of(node)
	if len(candidates) == 0 {
		return nil, fmt.Errorf("no address is known for node %s", node)
	}
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	type attempt struct {
		conn *peerConn
		err  error
	}
	attempts := make(chan attempt, len(candidates))
	for _, address := range candidates {
		go func() {
			conn, err := p.dialAddress(ctx, proto, to, address)
			attempts <- attempt{conn, err}
		}()
	}
	var won *peerConn
	var errs []error
	for range candidates {
		a := <-attempts
		switch {
		case a.err != nil:
			errs = append(errs, a.err)
		case won == nil:
			won = a.conn
			cancel() // the others
		default:
			_ = a.conn.Close() // nothing was sent on it
		}
	}
	if won != nil {
		return won, nil
	}
	err := errors.Join(errs...)
	var no *refusal
	if errors.As(err, &no) && p.seldom.now(to+no.Error()) {
		p.log.Warn("peer refused the connection", "peer", to, "protocol", proto, "error", err)
	}
	return nil, err
}

func (p *peerPort) dialAddress(ctx context.Context, proto protocol, to, address string) (*peerConn, error) {
	conn, err := p.dialer(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	c := &peerConn{Conn: conn, raw: conn, port: p, peer: to, protocol: proto, waited: proto != protoRaft}
	if _, err := p.track(c); err != nil {
		return nil, err
	}
	// Ended by ctx, which can be cancelled as well.
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) }) // it is closed then
	err = p.call(ctx, c, proto, to)
	if !stop() && err == nil {
		err = context.Cause(ctx)
	}
	if err == nil {
		err = c.SetDeadline(time.Time{})
	}
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = errors.Join(cause, err)
		}
		return nil, errors.Join(fmt.Errorf("node %s at %s: %w", to, address, err), c.Close())
	}
	return c, nil
}

// call does the dialer's half of the handshake.
func (p *peerPort) call(ctx context.Context, c *peerConn, proto protocol, to string) error {
	if p.tls != nil {
		secure := tls.Client(c.raw, p.tls.asClient(nodeOf(to)))
		c.Conn = secure
		if err := secure.HandshakeContext(ctx); err != nil {
			return fmt.Errorf("tls: %w", err)
		}
	}
	self := p.self()
	if proto != protoMembers && !self.member {
		return errNotMember
	}
	answer, err := self.greet(c, proto, to, p.address)
	if err != nil {
		return err
	}
	c.name(answer.From)
	p.book.tell(answer.From, answer.Address)
	return nil
}

// errNotMember is why a node that belongs to no cluster yet sends nothing.
var errNotMember = errors.New("this node does not belong to a cluster yet")

// track remembers c until it is closed.
func (p *peerPort) track(c *peerConn) (*peerConn, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, errors.Join(net.ErrClosed, c.raw.Close())
	}
	p.conns[c] = struct{}{}
	if c.waited {
		p.waited.Add(1) // under the lock, so that Close does not wait already
	}
	return c, nil
}

// cut ends the connections to and from a node, so that nobody waits any longer
// for an answer on them.
func (p *peerPort) cut(node string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		if nodeOf(c.peer) == node {
			_ = c.raw.Close() // whoever uses it sees the error
		}
	}
}

// Close ends everything on the port. It returns when those who were handed a
// connection have let go of it.
func (p *peerPort) Close() error {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return nil
	}
	p.closed = true
	close(p.done)
	err := p.listener.Close()
	for c := range p.conns {
		// Only what is below: whoever reads from it sees the error and closes it.
		_ = c.raw.Close() // as above
	}
	p.mu.Unlock()
	p.waited.Wait()
	return err
}

// peerConn is a connection to a peer, whichever side opened it.
type peerConn struct {
	net.Conn // with TLS, if there is any

	raw      net.Conn // what is below TLS
	port     *peerPort
	peer     string // server id, before the handshake what the dialer knows; guarded by port.mu until then
	protocol protocol
	waited   bool
	once     sync.Once
}

// name records who is at the other end.
func (c *peerConn) name(peer string) {
	c.port.mu.Lock()
	defer c.port.mu.Unlock()
	c.peer = peer
}

// Close implements net.Conn.
func (c *peerConn) Close() error {
	err := c.Conn.Close()
	c.once.Do(func() {
		c.port.mu.Lock()
		defer c.port.mu.Unlock()
		delete(c.port.conns, c)
		if c.waited {
			c.port.waited.Done()
		}
	})
	return err
}
