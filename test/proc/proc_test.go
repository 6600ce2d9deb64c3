package proc_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"leased/test/proc"
)

// TestValkey holds that a server comes back on its port with its data, and that
// a paused one is silent and no more than that.
func TestValkey(t *testing.T) {
	v := proc.StartValkey(t, "appendonly", "yes", "appendfsync", "always")
	v.Do(t, "SET", "a", "1")
	v.Kill()
	v.Start(t)
	if got := v.Do(t, "GET", "a"); got != "1" {
		t.Errorf("after a kill the key is %q, want 1", got)
	}
	r := proc.StartReplica(t, v)
	if got := r.Do(t, "GET", "a"); got != "1" {
		t.Errorf("the replica has %q, want 1", got)
	}
	v.Pause(t)
	conn := dial(t, v.Addr)
	send(t, conn, "PING\r\n")
	if got, err := receive(conn, 50*time.Millisecond); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a paused server answers %q, %v", got, err)
	}
	v.Resume()
	if got, err := receive(conn, 5*time.Second); got != "+PONG\r\n" {
		t.Errorf("a resumed server answers %q, %v, want +PONG", got, err)
	}
}

func TestEtcd(t *testing.T) {
	e := proc.StartEtcd(t, proc.EtcdOptions{Members: 3})
	e.Kill(0)
	e.StartAll(t)
	for _, url := range e.Endpoints() {
		_ = dial(t, strings.TrimPrefix(url, "http://"))
	}
}

func TestProxy(t *testing.T) {
	v := proc.StartValkey(t, "appendonly", "yes", "appendfsync", "always")
	p := proc.StartProxy(t, v.Addr)
	conn := dial(t, p.Address)
	send(t, conn, "SET a 1\r\n")
	if got, err := receive(conn, 5*time.Second); got != "+OK\r\n" {
		t.Fatalf("through the proxy: %q, %v, want +OK", got, err)
	}
	p.Set(t, proc.SwallowReplies)
	send(t, conn, "SET a 2\r\n")
	if got, err := receive(conn, 100*time.Millisecond); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the reply is %q, %v, want none", got, err)
	}
	proc.Until(t, "the request has reached the server", proc.Patience, func() bool { return v.Do(t, "GET", "a") == "2" })
	p.Set(t, proc.Pass)
	if _, err := receive(conn, 5*time.Second); !errors.Is(err, io.EOF) {
		t.Errorf("the connection ends with %v, want EOF", err)
	}
	conn = dial(t, p.Address)
	send(t, conn, "GET a\r\n")
	if got, err := receive(conn, 5*time.Second); got != "$1\r\n2\r\n" {
		t.Fatalf("through the healed proxy: %q, %v, want 2", got, err)
	}
	p.Set(t, proc.SwallowRequests)
	send(t, conn, "SET a 3\r\n")
	if got, err := receive(conn, 100*time.Millisecond); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the reply is %q, %v, want none", got, err)
	}
	if got := v.Do(t, "GET", "a"); got != "2" {
		t.Errorf("the key is %q, want that nothing reached the server", got)
	}
	p.Set(t, proc.Refuse)
	if got, err := receive(conn, 5*time.Second); err == nil {
		t.Errorf("the connection still answers %q", got)
	}
	p.Set(t, proc.Ignore)
	if c, err := net.DialTimeout("tcp", p.Address, 100*time.Millisecond); err == nil {
		_ = c.Close()
		t.Error("a connection to who should ignore it")
	} else if e, ok := errors.AsType[net.Error](err); !ok || !e.Timeout() {
		t.Errorf("a dial that is ignored ends with %v, want a time-out", err)
	}
	p.Set(t, proc.Pass)
	seen := p.Expect("marked")
	conn = dial(t, p.Address)
	send(t, conn, "SET marked 1\r\n")
	if got, err := receive(conn, 5*time.Second); got != "+OK\r\n" {
		t.Fatalf("through the proxy that ignored: %q, %v, want +OK", got, err)
	}
	<-seen
}

// TestProxy_SetFrom holds that only what concerns who said the words is swallowed.
func TestProxy_SetFrom(t *testing.T) {
	v := proc.StartValkey(t)
	p := proc.StartProxy(t, v.Addr)
	one, two := dial(t, p.Address), dial(t, p.Address)
	for conn, text := range map[net.Conn]string{one: "ECHO one\r\n", two: "ECHO two\r\n"} {
		send(t, conn, text)
		if got, err := receive(conn, 5*time.Second); err != nil {
			t.Fatalf("got %q, %v", got, err)
		}
	}
	for _, traffic := range []proc.Traffic{proc.SwallowReplies, proc.SwallowRequests} {
		p.SetFrom(t, traffic, "one")
		send(t, two, "PING\r\n")
		if got, err := receive(two, 5*time.Second); got != "+PONG\r\n" {
			t.Fatalf("%v: the other client has %q, %v, want +PONG", traffic, got, err)
		}
		if n := p.Dropped(); n != 0 {
			t.Errorf("%v: %d bytes are swallowed, want none yet", traffic, n)
		}
		send(t, one, "PING\r\n")
		if got, err := receive(one, 100*time.Millisecond); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%v: the reply is %q, %v, want none", traffic, got, err)
		}
		proc.Until(t, fmt.Sprint(traffic, ": something is swallowed"), proc.Patience, func() bool { return p.Dropped() > 0 })
	}
	p.Set(t, proc.Pass)
	if n := p.Dropped(); n != 0 {
		t.Errorf("%d bytes are swallowed by a proxy that passes all", n)
	}
}

func dial(t *testing.T, address string) net.Conn {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func send(t *testing.T, conn net.Conn, text string) {
	t.Helper()
	if _, err := io.WriteString(conn, text); err != nil {
		t.Fatal(err)
	}
}

// receive returns what comes within d.
func receive(conn net.Conn, d time.Duration) (string, error) {
	if err := conn.SetReadDeadline(time.Now().Add(d)); err != nil {
		return "", err
	}
	buf := make([]byte, 1024)
	n, err := conn.Read(buf)
	return string(buf[:n]), err
}

// TestFreePort holds that a port stays the test's while nobody listens on it.
func TestFreePort(t *testing.T) {
	var mine int
	t.Run("held", func(t *testing.T) {
		mine = proc.FreePort(t)
		sign, err := net.ListenPacket("udp", net.JoinHostPort("127.0.0.1", strconv.Itoa(mine)))
		if err == nil {
			_ = sign.Close()
			t.Error("the port that was handed out can be handed out again")
		}
		seen := map[int]bool{mine: true}
		for range 500 {
			port := proc.FreePort(t)
			if seen[port] {
				t.Fatalf("port %d was handed out twice", port)
			}
			seen[port] = true
			if port < 10_000 || port >= 20_000 {
				t.Fatalf("port %d may be a connection's", port)
			}
		}
	})
	sign, err := net.ListenPacket("udp", net.JoinHostPort("127.0.0.1", strconv.Itoa(mine)))
	if err != nil {
		t.Fatalf("the port is held after the test: %v", err)
	}
	_ = sign.Close()
}
