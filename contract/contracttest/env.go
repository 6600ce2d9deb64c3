package contracttest

import (
	"context"
	"crypto/rand"
	"fmt"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"leased/contract"
)

const (
	// watchdog bounds everything a rule waits for that has no promised bound.
	watchdog = 30 * time.Second
	// precision is that of the instants and durations in answers, see
	// contract.Lease.
	precision = time.Millisecond
	// besideSlack is contract.AnswerSlack where other rules run at the same time: long
	// enough for a machine that they fill, short enough to tell an answer at once from
	// one at the end of the wait.
	besideSlack = 2 * time.Second
)

// Env is what one run of one rule has: the store, a namespace that is its own,
// and bookkeeping of what it opened and started.
type Env struct {
	TB
	harness *Harness
	ns      string
	// answerSlack is how late an answer may be that has contract.AnswerSlack.
	answerSlack time.Duration
	pulse       *pulse
	ids         atomic.Int64
	calls       sync.WaitGroup

	mu       sync.Mutex
	over     bool // finish has begun
	handles  []contract.Store
	cancels  []context.CancelFunc
	advanced time.Duration // asked of Advance so far
	skipped  time.Duration // of that, what did not pass here as well
}

func newEnv(t TB, h *Harness, r *Rule) *Env {
	e := &Env{TB: t, harness: h, pulse: startPulse(), ns: "rule-" + r.ID + "-" + rand.Text(), answerSlack: besideSlack}
	if r.Timed {
		e.answerSlack = contract.AnswerSlack
	}
	return e
}

// finish ends what the rule left running. It uses Errorf only: it also runs
// while FailNow unwinds the rule.
func (e *Env) finish() {
	e.Helper()
	e.mu.Lock()
	cancels, handles := e.cancels, e.handles
	e.cancels, e.handles, e.over = nil, nil, true
	e.mu.Unlock()
	defer e.pulse.end()
	for _, cancel := range cancels {
		cancel()
	}
	if !e.bounded(watchdog, e.calls.Wait) {
		e.Errorf("calls still run %v after their contexts ended", watchdog)
		return
	}
	for _, s := range handles {
		var err error
		closed := e.bounded(watchdog, func() {
			ctx, cancel := context.WithTimeout(context.Background(), watchdog/2)
			defer cancel()
			err = s.Close(ctx)
		})
		if !closed {
			e.Errorf("close still runs %v after it was called, whatever its context says", watchdog)
			return
		}
		if err != nil {
			e.Errorf("close: %v", err)
		}
	}
}

// bounded runs f and reports whether it was over in time. What is not goes on:
// there is no means to end it, and a store that hangs must not hang the suite.
func (e *Env) bounded(limit time.Duration, f func()) bool {
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer e.catch()
		f()
	}()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-done:
		return true
	case <-timer.C:
		return false
	}
}

// open returns another handle on the store, closed when the rule is over.
func (e *Env) open() contract.Store {
	e.Helper()
	s := e.harness.Open(e.TB)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.handles = append(e.handles, s)
	return s
}

// pair returns two handles, as two gateways have them.
func (e *Env) pair() (a, b contract.Store) {
	e.Helper()
	return e.open(), e.open()
}

// forget keeps finish from closing s.
func (e *Env) forget(s contract.Store) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.handles = slices.DeleteFunc(e.handles, func(other contract.Store) bool { return other == s })
}

// kill ends a handle without goodbye.
func (e *Env) kill(s contract.Store) {
	e.Helper()
	e.forget(s)
	e.harness.Kill(e.TB, s)
}

// reopen restarts the backing store and returns a handle on what is there then.
func (e *Env) reopen() contract.Store {
	e.Helper()
	e.mu.Lock()
	e.handles = nil
	e.mu.Unlock()
	e.harness.Reopen(e.TB)
	s := e.open()
	// The clock of a store that is not there yet may stand still: time is let
	// pass only once it serves.
	e.eventually("the restarted store is ready", func() bool { return e.health(s).Ready })
	return s
}

// ctx returns the context of one call.
func (e *Env) ctx() context.Context { return e.within(watchdog) }

// within returns a context that ends after d, or with the rule.
func (e *Env) within(d time.Duration) context.Context {
	ctx, _ := e.cancellable(d)
	return ctx
}

// cancellable is within, with the means to end it before. Once the rule is over
// it has ended already, so that what still runs comes to its end.
func (e *Env) cancellable(d time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(e.Context(), d)
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.over {
		cancel()
	}
	e.cancels = append(e.cancels, cancel)
	return ctx, cancel
}

// id returns text that no other call of this rule got.
func (e *Env) id(prefix string) string { return fmt.Sprintf("%s-%d", prefix, e.ids.Add(1)) }

// ttl returns the shortest TTL from d on that the backend grants as it is asked.
func (e *Env) ttl(d time.Duration) time.Duration {
	g := e.harness.Guarantees
	return roundUp(max(d, g.MinTTL), g.Granularity)
}

// roundUp returns the lowest multiple of step, other than 0, that is at least d.
func roundUp(d, step time.Duration) time.Duration {
	if rest := d % step; rest != 0 || d == 0 {
		d += step - rest
	}
	return d
}

// short is a TTL that a rule can afford to wait for, and long enough for a few
// calls on a busy machine.
func (e *Env) short() time.Duration { return e.ttl(2 * time.Second) }

// long is a TTL that no rule sees the end of.
func (e *Env) long() time.Duration { return e.ttl(time.Hour) }

// advance lets d pass on the backend's clock.
func (e *Env) advance(d time.Duration) {
	e.Helper()
	if d <= 0 {
		return
	}
	began := time.Now()
	e.harness.Advance(e.TB, d)
	here := time.Since(began)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.advanced += d
	e.skipped += max(0, d-here)
}

// mark is a moment, to measure from.
type mark struct {
	here              time.Time
	advanced, skipped time.Duration
}

func (e *Env) mark() mark {
	e.mu.Lock()
	defer e.mu.Unlock()
	return mark{here: time.Now(), advanced: e.advanced, skipped: e.skipped}
}

// atLeast returns how much has certainly passed on the backend's clock since m.
func (e *Env) atLeast(m mark) time.Duration {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.advanced - m.advanced
}

// atMost returns a bound on what can have passed on the backend's clock since
// m, whether that clock is set by Advance, runs by itself, or both.
func (e *Env) atMost(m mark) time.Duration {
	e.mu.Lock()
	defer e.mu.Unlock()
	return time.Since(m.here) + e.skipped - m.skipped
}

// expire lets the leases end: everything that is left of the longest one, and
// the slack.
func (e *Env) expire(leases ...contract.Lease) {
	e.Helper()
	var left time.Duration
	for _, l := range leases {
		left = max(left, l.ExpiresIn)
	}
	e.advance(left + e.harness.Guarantees.Slack)
}

// pause lets a moment pass here: between two looks, or to make races land
// differently. No rule relies on its length.
func (e *Env) pause(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-e.Context().Done():
	}
}

// eventually waits until done says so.
func (e *Env) eventually(what string, done func() bool) {
	e.Helper()
	began := time.Now()
	for !done() {
		if time.Since(began) > watchdog {
			e.Fatalf("after %v still not: %s", watchdog, what)
		}
		e.pause(2 * time.Millisecond)
	}
}

// spawn runs f on a goroutine that the rule waits for at the end.
func (e *Env) spawn(f func()) {
	e.calls.Go(func() {
		defer e.catch()
		f()
	})
}

// catch is deferred on goroutines beside the rule's own: a panic fails the rule
// as it would there, and not the whole program.
func (e *Env) catch() {
	if p := recover(); p != nil {
		e.Errorf("panic: %v\n%s", p, debug.Stack())
	}
}

// race runs f(0) … f(n-1) at the same time and waits for all.
func (e *Env) race(n int, f func(i int)) {
	e.Helper()
	var all sync.WaitGroup
	start := make(chan struct{})
	for i := range n {
		all.Add(1)
		e.spawn(func() {
			defer all.Done()
			<-start
			f(i)
		})
	}
	close(start)
	if !e.bounded(2*watchdog, all.Wait) { // the calls have deadlines of their own, which say more
		e.Fatalf("%d calls at the same time are not all answered after %v", n, 2*watchdog)
	}
}

// waitFor waits for a signal.
func (e *Env) waitFor(done <-chan struct{}, what string) {
	e.Helper()
	timer := time.NewTimer(2 * watchdog) // the calls have deadlines of their own, which say more
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
		e.Fatalf("waited %v for %s", 2*watchdog, what)
	}
}
