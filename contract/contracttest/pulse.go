package contracttest

import (
	"sync"
	"time"
)

// beat is how often a pulse looks at the clock.
const beat = 5 * time.Millisecond

// pulse notices when this machine does not run the process. The bounds on
// answers are promises of a store and are held to the millisecond, but on a
// machine with more work than processors a goroutine that is due may not run for
// longer than the whole bound: a right store failed by that, and a bound widened
// until it did not would let wrong ones pass. So what a plain timer was late by
// at that moment is taken off, and nothing else.
type pulse struct {
	stop, stopped chan struct{}

	mu     sync.Mutex
	stalls []stall
}

// stall is a time in which a timer was due and did not run.
type stall struct{ from, to time.Time }

func startPulse() *pulse {
	p := &pulse{stop: make(chan struct{}), stopped: make(chan struct{})}
	go p.run()
	return p
}

func (p *pulse) run() {
	defer close(p.stopped)
	timer := time.NewTimer(beat)
	defer timer.Stop()
	for {
		due := time.Now().Add(beat)
		timer.Reset(beat)
		select {
		case <-p.stop:
			return
		case <-timer.C:
		}
		if now := time.Now(); now.Sub(due) > precision {
			p.mu.Lock()
			p.stalls = append(p.stalls, stall{due, now})
			p.mu.Unlock()
		}
	}
}

// end stops the pulse and returns when it has stopped.
func (p *pulse) end() {
	close(p.stop)
	<-p.stopped
}

// between returns how much of the time between two instants was stalled.
func (p *pulse) between(from, to time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	var sum time.Duration
	for _, s := range p.stalls {
		begin, end := s.from, s.to
		if begin.Before(from) {
			begin = from
		}
		if end.After(to) {
			end = to
		}
		if end.After(begin) {
			sum += end.Sub(begin)
		}
	}
	return sum
}

// since returns how long after from something happened that the store did, less
// what the machine was stalled meanwhile.
func (e *Env) since(from, happened time.Time) time.Duration {
	return happened.Sub(from) - e.pulse.between(from, happened)
}
