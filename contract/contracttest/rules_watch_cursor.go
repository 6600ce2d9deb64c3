package contracttest

import (
	"fmt"
	"time"

	"leased/contract"
)

func watchCursor(e *Env) {
	a, b := e.pair()
	stream := e.watch(a, contract.WatchRequest{})
	cursors := []string{stream.Cursor()} // of a namespace in which nothing has happened yet
	told := e.tale(a, b)
	if again := stream.Cursor(); again != cursors[0] {
		e.Errorf("the cursor moved from %q to %q, though nothing was read", cursors[0], again)
	}
	for i := range told {
		e.owed(fmt.Sprint("event ", i), []contract.Event{e.next(stream)}, told[i:i+1])
		cursors = append(cursors, stream.Cursor())
	}
	stream.Close()
	if got, want := stream.Cursor(), cursors[len(cursors)-1]; got != want {
		e.Errorf("the cursor of a closed stream is %q, want %q as before", got, want)
	}
	l := e.grant(b, e.key("three"), carol)
	told = append(told, transition(l))
	for i, cursor := range cursors {
		resumed := e.watch(pick(i, b, a), contract.WatchRequest{After: cursor})
		if got := resumed.Cursor(); got != cursor {
			e.Errorf("a stream resumed after %q is at %q", cursor, got)
		}
		e.owed(fmt.Sprint("resumed at cursor ", i), e.nextN(resumed, len(told)-i), told[i:])
		resumed.Close()
	}
	e.passesOver(a, b, l)
}

// passesOver wants the cursor of a stream that waits for events of l to move on
// with those of others, and then to lose none of l's.
func (e *Env) passesOver(a, b contract.Store, l contract.Lease) {
	e.Helper()
	mine := contract.WatchRequest{KeyID: l.KeyID}
	stream := e.watch(b, mine)
	began := stream.Cursor()
	other := e.grant(a, e.key("other"), alice)
	deadline := time.Now().Add(watchdog)
	for stream.Cursor() == began {
		if time.Now().After(deadline) {
			e.Fatalf("the cursor is still at %q %v after an event of another key", began, watchdog)
		}
		ctx, cancel := e.cancellable(10 * time.Millisecond)
		ev, err := stream.Next(ctx)
		cancel()
		if err == nil {
			e.Fatalf("got %s, which the filter does not select", describeEvent(ev))
		}
		if contract.CodeOf(err) != contract.CodeTimeout {
			e.Fatalf("next while others' events come: got error %v, want %s", err, contract.CodeTimeout)
		}
	}
	mine.After = stream.Cursor()
	renew := e.newRenew(l)
	renewed := *e.renew(a, renew, contract.OutcomeRenewed).Lease
	e.renew(a, e.newRenew(other), contract.OutcomeRenewed)
	want := []contract.Event{renewal(renewed, renew)}
	e.owed("after passing over others' events", []contract.Event{e.next(stream)}, want)
	e.owed("resumed after passing over others' events", []contract.Event{e.next(e.watch(a, mine))}, want)
}
