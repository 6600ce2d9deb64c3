package contracttest

import (
	"time"

	"leased/contract"
)

// Harness is how the suite handles one backing store: it opens gateways on it,
// kills them, restarts the store and lets time pass. No field may be left out.
type Harness struct {
	// Name is the backend's, for messages.
	Name string
	// Open returns a handle on the backing store. Every call opens another one
	// on the same store, as another gateway would have. The rule closes it;
	// Open registers no clean-up for it.
	Open func(t TB) contract.Store
	// Kill ends a handle as kill -9 ends a gateway: nothing is told to the
	// backing store, and calls that wait on the handle vanish. They must return,
	// with any error. The handle is not used afterwards, not even closed.
	Kill func(t TB, s contract.Store)
	// Reopen restarts the backing store as after a crash: what was acknowledged
	// is there for handles opened afterwards. All older handles are dead as
	// after Kill.
	Reopen func(t TB)
	// Advance returns when at least d has passed on the backend's clock: at once
	// where the clock can be set, see AdvanceRealTime where it cannot. Calls
	// that wait meanwhile stay present, as those of a living gateway do.
	Advance func(t TB, d time.Duration)
	// Guarantees is what the backend declares. Granularity is at least 1 ns.
	Guarantees contract.Guarantees
}

// AdvanceRealTime is the Advance of a backend whose clock nobody can set: it
// waits.
func AdvanceRealTime(t TB, d time.Duration) {
	t.Helper()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-t.Context().Done():
		t.Fatalf("interrupted while %v should pass", d)
	}
}

// check refuses a harness with a part missing: the rules that need the part
// would otherwise be the only ones to fail, and far from the reason.
func (h *Harness) check(t TB) {
	t.Helper()
	switch {
	case h == nil:
		t.Fatalf("there is no harness")
	case h.Name == "" || h.Open == nil || h.Kill == nil || h.Reopen == nil || h.Advance == nil:
		t.Fatalf("harness %q: Name, Open, Kill, Reopen and Advance are all needed", h.Name)
	case h.Guarantees.Granularity < 1:
		t.Fatalf("harness %q declares a granularity of %v; it is at least 1 ns", h.Name, h.Guarantees.Granularity)
	case h.Guarantees.MinTTL < 0 || h.Guarantees.Slack < 0:
		t.Fatalf("harness %q declares a negative duration: %+v", h.Name, h.Guarantees)
	}
}
