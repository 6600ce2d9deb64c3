package raftkv

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"leased/contract"
)

// TestBehind: a node that is far behind is not ready, and one that is a little is.
func TestBehind(t *testing.T) {
	for lag, ready := range map[time.Duration]bool{0: true, maxReadyLag: true, maxReadyLag + 1: false, time.Hour: false} {
		h := contract.Health{Ready: true, Lag: lag}
		behind(&h)
		if h.Ready != ready || (h.Detail == "") != ready || !ready && !strings.Contains(h.Detail, "behind") {
			t.Errorf("%v behind: got %+v, want ready %v and a reason if not", lag, h, ready)
		}
	}
}

// TestFSM_lag: after a pause, in which the state's clock stood still, a node that
// gets the first entry a moment later than the leader is not behind by the pause.
// One that does not get it is.
func TestFSM_lag(t *testing.T) {
	const pause = 10 * time.Minute
	for name, c := range map[string]struct {
		late time.Duration // after which the entry comes here
		want time.Duration
	}{
		"has it": {0, 0}, "has it in a moment": {100 * time.Millisecond, 0}, "does not get it": {time.Minute, pause},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				leads, follows := newDriver(t), newDriver(t)
				for _, d := range []*driver{leads, follows} {
					d.do(kindTakeover, &takeoverCmd{Wall: 1e18})
					d.now += int64(pause)
				}
				leads.acquire(request("key", "alice", "a"))
				if c.late == 0 {
					follows.acquire(request("key", "alice", "a"))
				}
				done := make(chan struct{})
				go func() {
					defer close(done)
					if c.late > 0 {
						time.Sleep(c.late)
						follows.acquire(request("key", "alice", "a"))
					}
				}()
				got := follows.fsm.lag(t.Context(), leads.fsm.index(), leads.fsm.Clock())
				if got != c.want {
					t.Errorf("got a lag of %v, want %v", got, c.want)
				}
				<-done
			})
		})
	}
}
