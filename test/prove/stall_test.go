package prove

import (
	"sync"
	"time"

	"leased/test/history"
)

const (
	stallLook  = 20 * time.Millisecond
	stallLeast = 250 * time.Millisecond
)

// stalls notes when the whole machine stood still, as one with too much to do may for
// seconds: a leader that loses its followers for that is as wrong as one that is cut off,
// and nobody's mistake.
type stalls struct {
	stop func() []history.Fault
}

// watchStalls notes them until stop, which returns them.
func watchStalls() stalls {
	var (
		seen   []history.Fault
		once   sync.Once
		ended  sync.WaitGroup
		ending = make(chan struct{})
	)
	ended.Go(func() {
		tick := time.NewTicker(stallLook)
		defer tick.Stop()
		for last := history.Now(); ; {
			select {
			case <-tick.C:
			case <-ending:
				return
			}
			now := history.Now()
			if now-last > int64(stallLeast) {
				seen = append(seen, history.Fault{Name: "machine: stood still", FromNS: last, ToNS: now})
			}
			last = now
		}
	})
	return stalls{stop: func() []history.Fault {
		once.Do(func() { close(ending) })
		ended.Wait()
		return seen
	}}
}
