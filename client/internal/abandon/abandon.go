package abandon

import "context"

// Key is where the context of a session has a func() that abandons the session.
type Key struct{}

// Session ends the session of a context and its renewals. A release of it does
// nothing from then on.
func Session(ctx context.Context) {
	if end, ok := ctx.Value(Key{}).(func()); ok {
		end()
	}
}
