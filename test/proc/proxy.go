package proc

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
	"time"
)

// Traffic is what a Proxy does with what passes through it.
type Traffic int

// The kinds of traffic.
const (
	// Pass hands everything on.
	Pass Traffic = iota
	// SwallowReplies hands requests on and drops what the server answers: the
	// server does what it was asked and nobody learns of it.
	SwallowReplies
	// SwallowRequests drops what the client sends: nothing reaches the server,
	// and the client cannot tell.
	SwallowRequests
	// Refuse cuts every connection, and nobody listens for new ones.
	Refuse
	// Ignore cuts every connection, and who dials gets no answer at all.
	Ignore
)

// silent tells that nothing is accepted.
func (k Traffic) silent() bool { return k == Refuse || k == Ignore }

// Proxy passes TCP connections on to a server and can be told to fail in between.
type Proxy struct {
	Address string
	running sync.WaitGroup

	mu       sync.Mutex
	listener *net.TCPListener // nil while nobody listens
	full     *full            // while who dials is ignored
	marks    map[string]chan struct{}
	delay    time.Duration
	target   string
	traffic  Traffic
	from     string // whose connections the traffic is of; everybody's when it is empty
	dropped  int64  // bytes, since the traffic was set
	closed   bool
	links    map[*link]struct{}
}

// link is one client's connection with the one to the server behind it.
type link struct {
	client, server net.Conn
	first          []byte // what the client said first
}

func (l *link) cut() {
	_ = l.client.Close()
	_ = l.server.Close()
}

// StartProxy starts a proxy on a free port, which ends with the test.
func StartProxy(t *testing.T, target string) *Proxy {
	t.Helper()
	l, err := listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &Proxy{Address: l.Addr().String(), target: target, listener: l, links: make(map[*link]struct{}), marks: make(map[string]chan struct{})}
	p.running.Go(func() { p.accept(l) })
	t.Cleanup(func() {
		p.mu.Lock()
		p.closed = true
		p.hangUp()
		p.mu.Unlock()
		p.cut()
		p.running.Wait()
	})
	return p
}

// hangUp stops listening, and ignoring. mu is held.
func (p *Proxy) hangUp() {
	if p.listener != nil {
		_ = p.listener.Close()
		p.listener = nil
	}
	if p.full != nil {
		_ = p.full.drain() // of a listener that is closed
		p.full = nil
	}
}

// Set changes what happens to the traffic from now on. Connections over which
// something was swallowed are of no use any more: changing back to Pass cuts
// them, as a network that heals makes their ends notice.
func (p *Proxy) Set(t *testing.T, traffic Traffic) {
	t.Helper()
	p.SetFrom(t, traffic, "")
}

// SetFrom is Set for the connections of some clients, traffic being of those that
// swallow: the ones whose first words have the text in them. What others send and are
// sent passes.
func (p *Proxy) SetFrom(t *testing.T, traffic Traffic, says string) {
	t.Helper()
	p.mu.Lock()
	before := p.traffic
	p.traffic, p.from, p.dropped = traffic, says, 0
	err := p.listen(traffic)
	p.mu.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	if traffic.silent() || before != traffic && traffic == Pass {
		p.cut()
	}
}

// listen takes connections, or not, as the traffic wants. mu is held.
func (p *Proxy) listen(traffic Traffic) error {
	if traffic == Refuse {
		p.hangUp()
		return nil
	}
	if p.listener == nil {
		l, err := listen(p.Address)
		if err != nil {
			return err
		}
		p.listener = l
		p.running.Go(func() { p.accept(l) })
	}
	var err error
	switch {
	case traffic == Ignore && p.full == nil:
		// The port is kept: somebody else could have it otherwise.
		_ = p.listener.SetDeadline(time.Unix(1, 0)) // accepts nothing more
		p.full, err = fill(p.listener)
	case traffic != Ignore && p.full != nil:
		err = p.full.drain()
		p.full = nil
		_ = p.listener.SetDeadline(time.Time{})
		l := p.listener
		p.running.Go(func() { p.accept(l) })
	}
	return err
}

func listen(address string) (*net.TCPListener, error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	tcp, ok := l.(*net.TCPListener)
	if !ok {
		return nil, fmt.Errorf("a listener on %s is a %T", address, l)
	}
	return tcp, nil
}

// Expect returns a channel that is closed when a request with the text in it
// was handed on to the server.
func (p *Proxy) Expect(text string) <-chan struct{} {
	ch := make(chan struct{})
	p.mu.Lock()
	defer p.mu.Unlock()
	p.marks[text] = ch
	return ch
}

// passed notes what was handed on. A text that a connection brought in two parts
// is not found; those of a test are short, and its requests go in one write.
func (p *Proxy) passed(data []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for text, ch := range p.marks {
		if bytes.Contains(data, []byte(text)) {
			close(ch)
			delete(p.marks, text)
		}
	}
}

// Dropped tells how many bytes were swallowed since the traffic was set.
func (p *Proxy) Dropped() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.dropped
}

// drops tells that what the link brings in the direction is swallowed, and counts it.
func (p *Proxy) drops(l *link, swallows Traffic, data []byte) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if swallows == SwallowRequests && l.first == nil {
		l.first = bytes.Clone(data)
	}
	if p.traffic != swallows || p.closed || !bytes.Contains(l.first, []byte(p.from)) {
		return false
	}
	p.dropped += int64(len(data))
	return true
}

// Delay holds back what the server answers, from now on.
func (p *Proxy) Delay(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = d
}

// Retarget cuts every connection and leads new ones to another server.
func (p *Proxy) Retarget(target string) {
	p.mu.Lock()
	p.target = target
	p.mu.Unlock()
	p.cut()
}

func (p *Proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		l.cut()
	}
}

// state returns what a connection needs to know now; target is empty once the
// proxy is closed.
func (p *Proxy) state() (traffic Traffic, target string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return Refuse, ""
	}
	return p.traffic, p.target
}

func (p *Proxy) accept(l net.Listener) {
	for {
		client, err := l.Accept()
		if err != nil {
			return // nobody listens any more
		}
		traffic, target := p.state()
		if traffic.silent() {
			_ = client.Close()
			continue
		}
		server, err := net.Dial("tcp", target)
		if err != nil {
			_ = client.Close()
			continue
		}
		p.pass(&link{client: client, server: server})
	}
}

// hold waits as long as answers are to be delayed.
func (p *Proxy) hold() {
	p.mu.Lock()
	d := p.delay
	p.mu.Unlock()
	if d > 0 {
		<-time.After(d)
	}
}

// pass hands on both directions until either end closes.
func (p *Proxy) pass(l *link) {
	p.mu.Lock()
	p.links[l] = struct{}{}
	refuse := p.closed || p.traffic.silent()
	p.mu.Unlock()
	if refuse { // since the connection was taken
		l.cut()
	}
	var both sync.WaitGroup
	both.Go(func() { p.copy(l, l.server, l.client, SwallowRequests); l.cut() })
	both.Go(func() { p.copy(l, l.client, l.server, SwallowReplies); l.cut() })
	p.running.Go(func() {
		both.Wait()
		p.mu.Lock()
		delete(p.links, l)
		p.mu.Unlock()
	})
}

// copy copies until an end closes, dropping what passes while the traffic is
// that which swallows.
func (p *Proxy) copy(l *link, to io.Writer, from io.Reader, swallows Traffic) {
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			if swallows == SwallowReplies {
				p.hold()
			}
			if !p.drops(l, swallows, buf[:n]) {
				if _, err := to.Write(buf[:n]); err != nil {
					return
				}
				if swallows == SwallowRequests {
					p.passed(buf[:n])
				}
			}
		}
		if err != nil {
			return
		}
	}
}
