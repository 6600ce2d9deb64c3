package cluster

import (
	"fmt"
	"net"
	"strings"
	"testing"
)

// TestReasonOf: connections that are reset one after the other have one reason, though
// each comes from a port of its own.
func TestReasonOf(t *testing.T) {
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	reset := func() error {
		dialed, err := new(net.Dialer).DialContext(t.Context(), "tcp", listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		accepted, err := listener.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer accepted.Close()
		if err := dialed.(*net.TCPConn).SetLinger(0); err != nil { //nolint:forcetypeassert // it was dialed as such
			t.Fatal(err)
		}
		if err := dialed.Close(); err != nil {
			t.Fatal(err)
		}
		_, err = accepted.Read(make([]byte, 1))
		return fmt.Errorf("handshake: %w", err)
	}
	one, two := reset(), reset()
	if one.Error() == two.Error() {
		t.Fatalf("both are %q: nothing is tested", one)
	}
	if reasonOf(one) != reasonOf(two) || !strings.Contains(reasonOf(one), "connection reset by peer") {
		t.Errorf("reasons are %q and %q, want the same one", reasonOf(one), reasonOf(two))
	}
}
