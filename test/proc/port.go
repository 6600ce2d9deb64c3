package proc

import (
	"math/rand/v2"
	"net"
	"strconv"
)

const (
	// lowPort and ports are the range of what FreePort returns. It lies below the
	// ports that systems give to any connection (32,768 and up on Linux, 49,152
	// and up elsewhere), and so does the range of the buses above it.
	lowPort = 10_000
	ports   = 10_000
	// busAbove is how far above its port a node of a Valkey cluster has its bus.
	busAbove = 10_000
)

// FreePort returns a loopback port that is the test's until it ends, also while
// the server that listens on it is down: no connection is given it, and no other
// test is, in whatever process. The port of a cluster's bus is free as well.
func FreePort(t EtcdTB) int {
	t.Helper()
	for range 1000 {
		port := lowPort + rand.IntN(ports)
		// The servers of these tests speak TCP. The UDP port of the same number is
		// the sign that the number is taken; it goes with the process that holds it.
		sign, err := net.ListenPacket("udp", loopback(port))
		if err != nil {
			continue
		}
		if !free(port) || !free(port+busAbove) {
			_ = sign.Close()
			continue
		}
		t.Cleanup(func() { _ = sign.Close() })
		return port
	}
	t.Fatalf("there is no free port from %d to %d", lowPort, lowPort+ports-1)
	return 0
}

func loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

func free(port int) bool {
	l, err := net.Listen("tcp", loopback(port))
	if err != nil {
		return false
	}
	_ = l.Close()
	return true
}
