package supervise

import (
	"syscall"
	"time"
)

// Deadline is when a command has to have ended.
type Deadline struct {
	// Term is when it is told to end, and Kill when it is ended.
	Term, Kill Instant
}

// Instant is a point of time on a clock that all processes of the machine share,
// that nobody sets, and that goes on while the machine is suspended.
type Instant int64 // nanoseconds

// In returns the instant that lies d from now.
func In(d time.Duration) Instant { return now() + Instant(d) }

func (i Instant) left() time.Duration { return time.Duration(i - now()) }

// order is what the parent tells the supervisor. They go over the socket in gob,
// which keeps arguments and variables that are not UTF-8.
type order struct {
	Start    *start
	Deadline *Deadline
	Signal   syscall.Signal // 0: none
	Group    bool           // the signal is for the whole group
	Stop     bool           // end everything, with the grace
}

type start struct {
	Path      string
	Args, Env []string
	Deadline  Deadline
	Grace     time.Duration
}

// Kind is what an Event tells.
type Kind int

// The kinds of events.
const (
	// Started: the command runs, as process PID.
	Started Kind = iota + 1
	// Refused: the command could not be started; Error says why.
	Refused
	// Stopped: Signal has stopped the command, as Ctrl-Z does.
	Stopped
	// Terminating: everything was told to end.
	Terminating
	// Killing: what had not ended was killed.
	Killing
	// Exited: the command has ended, with Code or by Signal. What it started may
	// not have.
	Exited
	// Broken: the supervisor is gone; what it had started was killed.
	Broken
	// Ended: no process is left. It is the last event.
	Ended

	// ready: signals that are meant for others do not end the supervisor any more. It
	// is the first event, and only Start hears of it.
	ready
)

// Event is what the supervisor tells the parent.
type Event struct {
	Kind   Kind
	PID    int
	Signal syscall.Signal
	Code   int
	Error  string
}
