package valkey

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"sync/atomic"
	"time"

	"github.com/valkey-io/valkey-go"
)

// dials is where a call's context keeps how many connections are being dialled
// for it.
type dials struct{}

// dial connects for a call of the client, or for the client itself. It marks what
// went wrong as having gone wrong before anything was sent, the TLS handshake
// included. While it runs, commands get goroutines of their own: the client has
// calls with other deadlines wait for the same connection.
func (l *link) dial(ctx context.Context, address string, d *net.Dialer, cfg *tls.Config) (net.Conn, error) {
	l.dialing.Add(1)
	defer l.dialing.Add(-1)
	if busy, ok := ctx.Value(dials{}).(*atomic.Int64); ok {
		busy.Add(1)
		defer busy.Add(-1)
	}
	began := time.Now()
	var conn net.Conn
	var err error
	if cfg != nil {
		conn, err = (&tls.Dialer{NetDialer: d, Config: cfg}).DialContext(ctx, "tcp", address)
	} else {
		conn, err = d.DialContext(ctx, "tcp", address)
	}
	if err == nil {
		return conn, nil
	}
	// A connection's timer may fire a moment before the context's. Whoever sees
	// the error has to see that it was the caller whose time was over.
	if deadline, ok := ctx.Deadline(); ok && timedOut(err) && deadline.Before(began.Add(d.Timeout)) {
		<-ctx.Done()
	}
	if ctx.Err() != nil {
		err = &cutError{err}
	}
	if op := (*net.OpError)(nil); !errors.As(err, &op) {
		err = &net.OpError{Op: "dial", Net: "tcp", Err: err}
	}
	return nil, err
}

// cutError is a dial that ended because the call ended for which it was made.
type cutError struct{ error }

func (e *cutError) Unwrap() error { return e.error }

// patiently runs f, which sends a command, again when all that went wrong was
// that another call had dialled for both and was over first: nothing was sent.
func patiently(ctx context.Context, c valkey.Client, f func(context.Context, valkey.Client) valkey.ValkeyResult) valkey.ValkeyResult {
	for {
		res := f(ctx, c)
		if _, cut := errors.AsType[*cutError](res.NonValkeyError()); !cut || ctx.Err() != nil {
			return res
		}
	}
}

func timedOut(err error) bool {
	e, ok := errors.AsType[net.Error](err)
	return ok && e.Timeout()
}
