package raftkv

import "time"

// leaderClock is the clock of one term of leadership: the state's clock when the
// term began plus the leader's own monotonic time since. A wall clock that jumps
// does nothing to it, and a term that begins late makes leases late, never
// early.
type leaderClock struct {
	term  uint64
	base  int64 // the state's clock at take-over
	start time.Duration
	mono  func() time.Duration
}

func (c *leaderClock) now() int64 { return c.base + int64(c.mono()-c.start) }

func (c *leaderClock) stamp(k kind) header { return header{kind: k, term: c.term, now: c.now()} }

// monotonic returns a clock that counts from now. time.Since reads the
// monotonic clock.
func monotonic() func() time.Duration {
	start := time.Now()
	return func() time.Duration { return time.Since(start) }
}
