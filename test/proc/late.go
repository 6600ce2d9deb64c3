package proc

import (
	"slices"
	"sync"
	"time"
)

const (
	latePause = 5 * time.Millisecond
	// lateLeast is what a machine that is not busy may take to run what is due.
	lateLeast = 10 * time.Millisecond
)

// Lateness tells for how long the machine let this process wait to be run. What has a
// bound in time takes longer by that on a machine that has too much to do, and is no
// worse for it; on one that has not, there is nothing to take off.
type Lateness struct {
	mu   sync.Mutex
	due  time.Time // when it is to be run next
	late []span
}

type span struct{ from, to time.Time }

// WatchLateness begins to watch, until the test ends.
func WatchLateness(t TB) *Lateness {
	l := &Lateness{due: time.Now().Add(latePause)}
	done := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() {
		tick := time.NewTimer(latePause)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				l.run(time.Now())
				tick.Reset(latePause)
			case <-done:
				return
			}
		}
	})
	t.Cleanup(func() { close(done); watching.Wait() })
	return l
}

// run notes that the process is run now.
func (l *Lateness) run(now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now.Sub(l.due) > lateLeast {
		l.late = append(l.late, span{l.due, now})
	}
	l.due = now.Add(latePause)
}

// Between returns for how long of a time the process waited.
func (l *Lateness) Between(from, to time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	sum := time.Duration(0)
	for _, s := range append(slices.Clip(l.late), span{l.due.Add(lateLeast), to}) { // it may wait now
		if s.from.Before(from) {
			s.from = from
		}
		if s.to.After(to) {
			s.to = to
		}
		sum += max(0, s.to.Sub(s.from))
	}
	return sum
}

// Took returns how long it is since begin, but for the time that the process waited.
func (l *Lateness) Took(begin time.Time) time.Duration {
	now := time.Now()
	return now.Sub(begin) - l.Between(begin, now)
}
