package client

import "time"

const (
	// renewPart of a lease's life passes before it is renewed, and bounds one
	// renewal with all of its attempts: two renewals fit in before the trust ends.
	renewPart = 3
	// marginPart of a lease's life is the margin where none is given.
	marginPart = 6
)

// trust is how long a holder may believe that it holds its lease. The lease ends
// no earlier than sent + life, because the server answered after the request was
// sent; the trust ends a margin before that.
type trust struct {
	sent   time.Time // when the request was sent that was answered
	life   time.Duration
	margin time.Duration
}

// left returns how much of the trust is left; it is over at 0.
func (t trust) left(now time.Time) time.Duration { return t.life - t.margin - elapsed(t.sent, now) }

// end returns the instant at which the trust ends if no clock steps.
func (t trust) end() time.Time { return t.sent.Add(t.life - t.margin) }

// elapsed returns the larger of the monotonic and the wall time between two
// instants. The monotonic clock stands still while the machine is suspended; the
// wall clock may be set back. Each is right where the other is not, and too long
// is the safe side.
func elapsed(from, to time.Time) time.Duration {
	return max(to.Sub(from), to.Round(0).Sub(from.Round(0)))
}
