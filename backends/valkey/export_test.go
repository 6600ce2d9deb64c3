package valkey

import (
	"context"
	"net"
	"time"

	"leased/contract"
)

// Kill ends a handle as kill -9 ends its gateway: nothing is said to the server,
// and calls that wait vanish.
func (s *Store) Kill() { s.Abandon() }

// Base returns what the namespace's keys begin with.
func (s *Store) Base(namespace string) string { return base(s.cfg.Prefix, namespace) }

// Drain waits for what runs in the background.
func (s *Store) Drain(context.Context) { s.behind.Wait() }

// Dial dials as the client does and returns what went wrong.
func Dial(ctx context.Context, address string, timeout time.Duration) error {
	conn, err := new(link).dial(ctx, address, &net.Dialer{Timeout: timeout}, nil)
	if err == nil {
		_ = conn.Close()
	}
	return err
}

// Classify returns the code of what a failed command's caller is told.
func Classify(ctx context.Context, err error, reads bool) contract.Code {
	return classifier{refusals()}.of(ctx, err, reads).Code
}

// Leave leaves the place of a request as a call of it does whose attachment was n.
func (s *Store) Leave(ctx context.Context, r *contract.AcquireRequest, n uint64) error {
	_, err := s.leave(ctx, s.attempt(r, s.room(r.Namespace)), n)
	return err
}

// Park makes a place for a request, at which no call stands.
func (s *Store) Park(ctx context.Context, r *contract.AcquireRequest) error {
	a := s.attempt(r, s.room(r.Namespace))
	rep, err := s.try(ctx, a, a.with(modeWait, s.lastN.Add(1)))
	if err == nil && rep.code != "parked" {
		err = unexpected(rep)
	}
	return err
}
