package main

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"leased/contract"
)

// silent is a store whose server does not answer the goodbye.
type silent struct{ contract.Store }

func (silent) Close(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

// Servers that do not answer leave the stores that were opened before them their
// time.
func TestApp_pushRemote_silent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := new(app)
		var left time.Duration
		a.cleanups.push("first", func(ctx context.Context) error {
			end, _ := ctx.Deadline()
			left = time.Until(end)
			return nil
		})
		a.pushRemote("one", silent{})
		a.pushRemote("two", silent{})
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		err := a.cleanups.run(ctx, slog.New(slog.DiscardHandler))
		if want := 6 * time.Second; left != want {
			t.Errorf("after two silent servers the others have %v of 10 s, want %v", left, want)
		}
		const want = "close store of backend two: context deadline exceeded\nclose store of backend one: context deadline exceeded"
		if err == nil || err.Error() != want {
			t.Errorf("got error %v, want %s", err, want)
		}
	})
}
