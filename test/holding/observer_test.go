package holding

import (
	"bufio"
	"fmt"
	"net"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"leased/test/proc"
)

// observer is the guarded resource: it sees side effects in the order in which
// they arrive, and accepts one unless it saw a higher token before.
type observer struct {
	t       *testing.T
	address string

	mu      sync.Mutex
	high    uint64
	holder  string    // of the latest that was accepted
	last    time.Time // when it was
	tokens  int       // how many were accepted
	late    []string  // side effects after those of a later holder: an overlap, had they been accepted
	gap     time.Duration
	conns   map[net.Conn]struct{}
	serving sync.WaitGroup
}

func newObserver(t *testing.T) *observer {
	t.Helper()
	o := &observer{t: t, address: filepath.Join(t.TempDir(), "o"), conns: map[net.Conn]struct{}{}}
	l, err := net.Listen("unix", o.address)
	if err != nil {
		t.Fatal(err)
	}
	o.serving.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			o.mu.Lock()
			o.conns[conn] = struct{}{}
			o.mu.Unlock()
			o.serving.Go(func() { o.serve(conn) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		o.mu.Lock()
		for conn := range o.conns {
			_ = conn.Close()
		}
		o.mu.Unlock()
		o.serving.Wait()
	})
	return o
}

func (o *observer) serve(conn net.Conn) {
	for in := bufio.NewScanner(conn); in.Scan(); {
		var (
			token uint64
			name  string
		)
		if _, err := fmt.Sscan(in.Text(), &token, &name); err != nil {
			o.t.Errorf("a holder wrote %q", in.Text())
			return
		}
		if _, err := fmt.Fprintln(conn, o.see(token, name)); err != nil {
			return
		}
	}
}

// see takes a side effect and reports whether it was accepted.
func (o *observer) see(token uint64, name string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	now := time.Now()
	if token < o.high {
		o.late = append(o.late, fmt.Sprintf("%s with token %d, %v after the first of token %d", name, token, now.Sub(o.last), o.high))
		return false
	}
	if token > o.high {
		if o.tokens++; o.tokens > 1 {
			o.gap = max(o.gap, now.Sub(o.last))
		}
	}
	o.high, o.holder, o.last = token, name, now
	return true
}

// now returns who holds the resource, and how many have held it.
func (o *observer) now() (holder string, tokens int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.holder, o.tokens
}

// waitFor waits until so many have held the resource.
func (o *observer) waitFor(tokens int, what string) {
	o.t.Helper()
	proc.Until(o.t, what, proc.Patience, func() bool {
		_, n := o.now()
		return n >= tokens
	})
}
