package etcd

import (
	"context"
	"time"
)

const (
	// hopeFor is how long a call tries again what certainly was not applied
	// because no member serves: a server that restarts, or elects, is back by
	// then, and one that came back is connected to.
	hopeFor = time.Second
	// hopePause is the first pause between two tries.
	hopePause = 10 * time.Millisecond
)

type hopeKey struct{}

// hope lets a call hope until a second from now has passed, all that it asks of
// etcd together, or half of its time: the rest is for the answer.
func hope(ctx context.Context) context.Context {
	until := time.Now().Add(hopeFor)
	if deadline, ok := ctx.Deadline(); ok {
		if half := time.Now().Add(time.Until(deadline) / 2); half.Before(until) {
			until = half
		}
	}
	return context.WithValue(ctx, hopeKey{}, until)
}

// hopeless lets a call say at once how things stand.
func hopeless(ctx context.Context) context.Context { return context.WithValue(ctx, hopeKey{}, nil) }

// hopes pauses, and reports whether the call still hopes then. What runs beside
// calls does not: it has its own rhythm.
func hopes(ctx context.Context, pause time.Duration) bool {
	until, ok := ctx.Value(hopeKey{}).(time.Time)
	if !ok || time.Now().Add(pause).After(until) {
		return false
	}
	sleep(ctx, pause)
	return ctx.Err() == nil
}
