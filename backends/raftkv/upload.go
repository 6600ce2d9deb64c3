package raftkv

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"leased/contract"
	"leased/contract/lifecycle"
)

// errCut is why an upload that was cut gives no more.
var errCut error = constError("the upload was cut")

// upload is a backup on its way to this node. It remembers whether it came whole,
// which who reads it cannot tell from a backup that is damaged, and it can be cut:
// whoever reads it then, and be it another node, never sees its end, and does
// nothing with it.
type upload struct {
	from io.Reader
	stop context.CancelCauseFunc // ends what is done with it

	mu    sync.Mutex
	whole bool  // somebody saw its end
	err   error // why nobody will
}

// receive returns an upload that is cut when ctx ends or the store closes, and the
// context of what is done with it. A read that hangs is ended if from has a
// SetReadDeadline, as a connection has. done must be called at the end.
func receive(ctx context.Context, from io.Reader, closing <-chan struct{}) (_ context.Context, u *upload, done func()) {
	u = &upload{from: from}
	ctx, u.stop = context.WithCancelCause(ctx)
	over, idle := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(idle)
		select {
		case <-closing:
			_ = u.cut(lifecycle.Closed())
		case <-ctx.Done():
			_ = u.cut(contract.NotSubmitted(ctx))
		case <-over:
		}
	}()
	return ctx, u, func() {
		close(over)
		<-idle
		u.stop(nil)
	}
}

// Read implements io.Reader.
func (u *upload) Read(b []byte) (int, error) {
	n, err := u.from.Read(b)
	u.mu.Lock()
	defer u.mu.Unlock()
	switch {
	case u.err != nil:
		return 0, errCut
	case errors.Is(err, io.EOF):
		u.whole = true
	case err != nil:
		u.err = contract.Errorf(contract.CodeTimeout, err, "the rest of the backup did not come; nothing was restored")
	}
	return n, err
}

// cut returns nil if the upload came whole. Otherwise nobody will read it to its end,
// and cut returns why: the first reason that there was.
func (u *upload) cut(why error) error {
	u.mu.Lock()
	if u.whole {
		u.mu.Unlock()
		return nil
	}
	if u.err == nil {
		u.err = why
	}
	why = u.err
	u.mu.Unlock()
	u.stop(why)
	if from, ok := u.from.(interface{ SetReadDeadline(at time.Time) error }); ok {
		_ = from.SetReadDeadline(time.Unix(1, 0)) // an error says that there is no connection below it
	}
	return why
}

// failed returns why the upload does not come whole, as far as that is known.
func (u *upload) failed() error {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.err
}
