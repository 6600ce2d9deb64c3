//go:build !linux

package client

import (
	"net"
	"time"
)

// boundUnanswered has no portable form.
func boundUnanswered(*net.TCPConn, time.Duration) {}
