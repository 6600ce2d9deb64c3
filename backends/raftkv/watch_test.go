package raftkv

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"leased/contract"
	"leased/contract/lifecycle"
)

// showsReleases is a stream of releases that begins now.
func showsReleases(t *testing.T, r rings) *stream {
	t.Helper()
	life, err := lifecycle.New().Stream()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(life.Close)
	kinds := contract.KindsOf(contract.EventReleased)
	return &stream{Stream: life, ring: r.of(kinds), filter: contract.WatchRequest{Kinds: kinds}, at: r.all.end()}
}

// renew has an entry with a renewal.
func (r rings) renew(index uint64) {
	events := ringEvents(index, 1)
	events[0].kind = contract.EventRenewed
	r.append(events, index)
}

// TestStream_Cursor_unshown: where nothing is shown the cursor is not as old as the wait.
func TestStream_Cursor_unshown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRings(4)
		st := showsReleases(t, r)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		over := make(chan error)
		go func() { _, err := st.Next(ctx); over <- err }()
		synctest.Wait()
		for index := range uint64(9) {
			r.renew(index + 1)
		}
		if err := <-over; contract.CodeOf(err) != contract.CodeTimeout {
			t.Fatalf("got %v, want a timeout", err)
		}
		if got, want := st.Cursor(), eventID(r.all.end()); got != want {
			t.Errorf("after a second of renewals the cursor of a stream of releases is %s, want the end, %s", got, want)
		}
	})
}

// atDone is a context that ends as somebody begins to wait for that.
type atDone struct {
	context.Context //nolint:containedctx // it is that one, but for its end
	do              func()
}

func (c atDone) Done() <-chan struct{} {
	c.do()
	return c.Context.Done()
}

// TestStream_Cursor_lost: the cursor does not move over a loss that the stream has not
// told.
func TestStream_Cursor_lost(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for range 20 { // either can come first, the end of the wait or the events
		r := newRings(4)
		st := showsReleases(t, r)
		ev, err := st.Next(atDone{ended, func() {
			for index := range uint64(9) {
				r.append(ringEvents(index+1, 1), index+1)
			}
		}})
		if err != nil {
			ev, err = st.Next(ended)
		}
		if err != nil || ev.Kind != contract.EventGap {
			t.Fatalf("got %v, error %v; want a gap", ev.Kind, err)
		}
	}
}
