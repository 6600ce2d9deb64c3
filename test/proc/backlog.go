package proc

import (
	"errors"
	"fmt"
	"net"
	"syscall"
	"time"
)

// ignoredAfter is how long a dial on this machine takes at most that is answered
// at all: the kernel does that by itself.
const ignoredAfter = 200 * time.Millisecond

// full is a listener that nobody accepts from, with as many connections as the
// kernel takes for it. Further ones are not answered, as by a machine that is
// gone.
type full struct {
	listener *net.TCPListener
	held     []net.Conn
}

// fill has a listener that nobody accepts from ignore who dials.
func fill(l *net.TCPListener) (*full, error) {
	b := &full{listener: l}
	err := b.backlog(0)
	// A dial of a process that was not run meanwhile ends as one that is ignored does:
	// it takes several in a row.
	for ignored := 0; err == nil && ignored < 3; {
		c, failed := net.DialTimeout("tcp", l.Addr().String(), ignoredAfter)
		switch e, ok := errors.AsType[net.Error](failed); {
		case failed == nil:
			b.held = append(b.held, c)
			ignored = 0
		case ok && e.Timeout():
			ignored++
		default:
			err = failed
		}
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("ignore who dials: %w", err), b.drain())
	}
	return b, nil
}

// drain ends it. The connections that were held will be accepted, and have
// ended.
func (b *full) drain() error {
	for _, c := range b.held {
		_ = c.Close()
	}
	return b.backlog(syscall.SOMAXCONN)
}

func (b *full) backlog(n int) error {
	raw, err := b.listener.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Control(func(fd uintptr) { failed = syscall.Listen(int(fd), n) })
	return errors.Join(err, failed)
}
