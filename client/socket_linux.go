package client

import (
	"net"
	"syscall"
	"time"
)

// tcpUserTimeout is TCP_USER_TIMEOUT, which package syscall does not have.
const tcpUserTimeout = 18

// boundUnanswered bounds how long what was sent may not be acknowledged. While
// something is not, a connection is not probed, and the kernel sends it again for a
// quarter of an hour.
func boundUnanswered(conn *net.TCPConn, d time.Duration) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) {
		_ = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, tcpUserTimeout, int(d.Milliseconds()))
	})
}
