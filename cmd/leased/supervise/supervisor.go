//go:build unix

package supervise

import (
	"encoding/gob"
	"net"
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"time"
)

// look is how often the clock is read at least: timers of a machine that was
// suspended go on where they stopped.
const look = 500 * time.Millisecond

// again is the pause between two rounds of killing, for what was forked meanwhile.
const again = 20 * time.Millisecond

// supervisor is the process between the parent and the command.
type supervisor struct {
	out      *gob.Encoder
	deadline Deadline
	grace    time.Duration

	adopts bool // what the command started and left becomes a child

	pid         int // of the command, and of its group
	exited      bool
	empty       bool // there is no child, nor a group where nothing is adopted
	terminating bool
	killing     bool
}

// Main is the supervisor's process; fd is its end of the socket.
func Main(fd uintptr) error { return supervise(fd, becomeSubreaper) }

// supervise is Main with what makes the process adopt, and reports whether it could.
func supervise(fd uintptr, adopt func() bool) error {
	// The parent-death signal is about the thread that forked, so that it must be
	// one which lives as long as the process.
	runtime.LockOSThread()
	syscall.CloseOnExec(int(fd))
	file := os.NewFile(fd, "parent")
	conn, err := net.FileConn(file)
	if err != nil {
		return err
	}
	_ = file.Close()                    // conn is a copy
	defer func() { _ = conn.Close() }() // the process ends
	children := make(chan os.Signal, 1)
	signal.Notify(children, syscall.SIGCHLD)
	shield()
	unblock()
	s := &supervisor{out: gob.NewEncoder(conn), adopts: adopt()}
	s.tell(Event{Kind: ready})

	orders := make(chan order)
	go func() {
		defer close(orders)
		in := gob.NewDecoder(conn)
		for {
			var o order
			if in.Decode(&o) != nil {
				return // the parent is gone
			}
			orders <- o
		}
	}()
	first, ok := <-orders
	if !ok || first.Start == nil || !s.start(first.Start) {
		return nil
	}
	s.run(orders, children)
	return nil
}

// shield keeps signals from the supervisor that are meant for its parent or the
// command. They are caught and not ignored, which the command would inherit; those
// that are ignored stay so.
func shield() {
	caught := make(chan os.Signal, 1) // nobody reads it
	for _, sig := range shielded() {
		if !signal.Ignored(sig) {
			signal.Notify(caught, sig)
		}
	}
}

func shielded() []syscall.Signal {
	return []syscall.Signal{
		syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGUSR1, syscall.SIGUSR2,
		syscall.SIGTSTP, syscall.SIGTTIN, syscall.SIGTTOU, syscall.SIGPIPE,
	}
}

func (s *supervisor) tell(e Event) { _ = s.out.Encode(e) } // a parent that is gone is noticed by reading

// start starts the command and reports whether it did.
func (s *supervisor) start(o *start) bool {
	s.deadline, s.grace = o.Deadline, o.Grace
	attr := &syscall.ProcAttr{Env: o.Env, Files: []uintptr{0, 1, 2}, Sys: commandAttr()}
	pid, err := syscall.ForkExec(o.Path, o.Args, attr)
	if err != nil {
		s.tell(Event{Kind: Refused, Error: err.Error()})
		s.tell(Event{Kind: Ended})
		return false
	}
	s.pid = pid
	s.tell(Event{Kind: Started, PID: pid})
	return true
}

// run ends when no process is left.
func (s *supervisor) run(orders <-chan order, children <-chan os.Signal) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		s.reap()
		if s.exited && s.empty {
			s.tell(Event{Kind: Ended})
			return
		}
		if s.exited && !s.terminating {
			s.end() // what the command left behind
		}
		next := s.check()
		if s.exited && !s.adopts {
			next = min(next, again) // nothing tells when the group has ended
		}
		timer.Reset(next)
		select {
		case o, ok := <-orders:
			if !ok {
				orders = nil
				s.end()
				continue
			}
			s.obey(o)
		case <-children:
		case <-timer.C:
		}
	}
}

func (s *supervisor) obey(o order) {
	if o.Deadline != nil && !s.terminating {
		s.deadline = *o.Deadline
	}
	if o.Signal != 0 && !s.exited {
		to := s.pid
		if o.Group {
			to = -s.pid
		}
		_ = syscall.Kill(to, o.Signal) // it may have just ended
	}
	if o.Stop {
		s.end()
	}
}

// end tells everything to end, and lets the deadline be the end of the grace if
// that is sooner.
func (s *supervisor) end() {
	if s.terminating {
		return
	}
	s.terminating = true
	s.deadline.Kill = min(s.deadline.Kill, In(s.grace))
	s.tell(Event{Kind: Terminating})
	s.signalAll(syscall.SIGTERM)
}

// check does what the deadline demands and returns the time until it is to be
// looked at again.
func (s *supervisor) check() time.Duration {
	if s.deadline.Term.left() <= 0 {
		s.end()
	}
	if s.deadline.Kill.left() > 0 {
		next := s.deadline.Kill.left()
		if !s.terminating {
			next = min(next, s.deadline.Term.left())
		}
		return min(next, look)
	}
	if !s.killing {
		s.killing = true
		s.tell(Event{Kind: Killing})
	}
	s.signalAll(syscall.SIGKILL)
	return again
}

// signalAll signals the group and every other process of the command's.
func (s *supervisor) signalAll(sig syscall.Signal) {
	// Until the command is reaped the group's id is not another's, nor as long as the
	// group has a process. Descendants are found anew each time, where they can be.
	if !s.exited || !s.adopts && !s.empty {
		_ = syscall.Kill(-s.pid, sig) // it may have just ended
	}
	if !s.adopts {
		return
	}
	for _, p := range descendants(os.Getpid()) {
		if s.exited || p.group != s.pid {
			_ = syscall.Kill(p.pid, sig) // as above
		}
	}
}

// reap takes the ends of children, also of those that became children when their
// parents ended.
func (s *supervisor) reap() {
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, syscall.WNOHANG|syscall.WUNTRACED, nil)
		switch {
		case err == syscall.EINTR:
			continue
		case err != nil: // ECHILD
			s.empty = s.adopts || syscall.Kill(-s.pid, 0) == syscall.ESRCH
			return
		case pid == 0:
			s.empty = false
			return
		case pid != s.pid || s.exited:
			continue
		case status.Stopped():
			s.tell(Event{Kind: Stopped, Signal: status.StopSignal()})
		case status.Exited():
			s.exited = true
			s.tell(Event{Kind: Exited, Code: status.ExitStatus()})
		case status.Signaled():
			s.exited = true
			s.tell(Event{Kind: Exited, Signal: status.Signal()})
		}
	}
}
