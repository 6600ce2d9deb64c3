package clustertest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"time"
)

// link is one direction between two nodes.
type link struct{ from, to string }

// Network is what lies between the nodes.
type Network struct {
	mu      sync.Mutex
	where   map[string]string // logical address → where its node listens now
	owner   map[string]string // logical address → node
	cut     map[link]bool
	delay   time.Duration
	loss    float64
	random  *rand.Rand
	sends   func(from, to string, p []byte)
	changed chan struct{} // closed at the next change of the above
}

func newNetwork(seed uint64) *Network {
	return &Network{
		where: make(map[string]string), owner: make(map[string]string), cut: make(map[link]bool),
		random:  rand.New(rand.NewPCG(seed, seed)), // a test must be repeatable
		changed: make(chan struct{}),
	}
}

// edit makes a change and wakes whoever waits for one.
func (n *Network) edit(change func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	change()
	close(n.changed)
	n.changed = make(chan struct{})
}

// Isolate cuts a node from all others, both ways.
func (n *Network) Isolate(node string) {
	n.edit(func() {
		for _, other := range n.owner {
			if other != node {
				n.cut[link{node, other}], n.cut[link{other, node}] = true, true
			}
		}
	})
}

// Cut silences one direction.
func (n *Network) Cut(from, to string) {
	n.edit(func() { n.cut[link{from, to}] = true })
}

// Heal ends all cuts.
func (n *Network) Heal() { n.edit(func() { clear(n.cut) }) }

// Delay holds up what is sent, each way, by d.
func (n *Network) Delay(d time.Duration) { n.edit(func() { n.delay = d }) }

// Lose breaks the connection at a part p of all writes.
func (n *Network) Lose(p float64) { n.edit(func() { n.loss = p }) }

// OnSend has f called before what a node that dialled sends goes on its way, so that
// a test can do something just then; nil has nothing called. Without TLS f sees what
// is sent.
func (n *Network) OnSend(f func(from, to string, p []byte)) { n.edit(func() { n.sends = f }) }

func (n *Network) place(node, logical, actual string) {
	n.edit(func() { n.owner[logical], n.where[logical] = node, actual })
}

// dialer returns how node reaches others.
func (n *Network) dialer(node string) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		for {
			n.mu.Lock()
			to, actual, changed := n.owner[address], n.where[address], n.changed
			silent := n.cut[link{node, to}] || n.cut[link{to, node}]
			n.mu.Unlock()
			if to == "" || actual == "" {
				return nil, fmt.Errorf("dial %s: no node is there", address)
			}
			if silent {
				select {
				case <-changed:
					continue
				case <-ctx.Done():
					return nil, context.Cause(ctx)
				}
			}
			inner, err := new(net.Dialer).DialContext(ctx, network, actual)
			if err != nil {
				return nil, err
			}
			return &conn{Conn: inner, net: n, out: link{node, to}, in: link{to, node}, closed: make(chan struct{}), moved: make(chan struct{})}, nil
		}
	}
}

// conn is the dialer's end of a connection, at which both directions are held up.
type conn struct {
	net.Conn

	net     *Network
	out, in link

	once   sync.Once
	closed chan struct{}

	mu          sync.Mutex
	readBy      time.Time
	writeBy     time.Time
	moved       chan struct{} // closed at the next change of a deadline
	undelivered []byte        // read while the direction was cut; of the reader
}

// pass waits until what goes along l may go, up to the deadline.
func (c *conn) pass(l link, deadline func() time.Time) error {
	for {
		c.net.mu.Lock()
		silent, delay, changed := c.net.cut[l], c.net.delay, c.net.changed
		c.net.mu.Unlock()
		c.mu.Lock()
		by, moved := deadline(), c.moved
		c.mu.Unlock()
		if !silent && delay == 0 {
			return nil
		}
		wait := make(<-chan time.Time)
		if !by.IsZero() {
			wait = time.After(time.Until(by))
		}
		if !silent {
			if !by.IsZero() && time.Until(by) < delay {
				delay = time.Until(by)
			}
			select {
			case <-time.After(delay):
				return nil
			case <-c.closed:
				return net.ErrClosed
			}
		}
		select {
		case <-changed:
		case <-moved:
		case <-wait:
			return os.ErrDeadlineExceeded
		case <-c.closed:
			return net.ErrClosed
		}
	}
}

// Read implements net.Conn.
func (c *conn) Read(p []byte) (int, error) {
	for len(c.undelivered) == 0 {
		n, err := c.Conn.Read(p)
		if err != nil && n == 0 {
			return 0, err
		}
		c.undelivered = append(c.undelivered, p[:n]...)
	}
	if err := c.pass(c.in, func() time.Time { return c.readBy }); err != nil {
		return 0, err
	}
	n := copy(p, c.undelivered)
	c.undelivered = c.undelivered[n:]
	return n, nil
}

// Write implements net.Conn.
func (c *conn) Write(p []byte) (int, error) {
	c.net.mu.Lock()
	sends := c.net.sends
	c.net.mu.Unlock()
	if sends != nil {
		sends(c.out.from, c.out.to, p)
	}
	if err := c.pass(c.out, func() time.Time { return c.writeBy }); err != nil {
		return 0, err
	}
	c.net.mu.Lock()
	lost := c.net.loss > 0 && c.net.random.Float64() < c.net.loss
	c.net.mu.Unlock()
	if lost {
		return 0, errors.Join(errors.New("connection lost"), c.Close())
	}
	return c.Conn.Write(p)
}

// Close implements net.Conn.
func (c *conn) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

func (c *conn) move(change func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change()
	close(c.moved)
	c.moved = make(chan struct{})
}

// SetDeadline implements net.Conn.
func (c *conn) SetDeadline(t time.Time) error {
	c.move(func() { c.readBy, c.writeBy = t, t })
	return c.Conn.SetDeadline(t)
}

// SetReadDeadline implements net.Conn.
func (c *conn) SetReadDeadline(t time.Time) error {
	c.move(func() { c.readBy = t })
	return c.Conn.SetReadDeadline(t)
}

// SetWriteDeadline implements net.Conn.
func (c *conn) SetWriteDeadline(t time.Time) error {
	c.move(func() { c.writeBy = t })
	return c.Conn.SetWriteDeadline(t)
}
