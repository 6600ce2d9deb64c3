//go:build unix

package supervise

import (
	"context"
	"encoding/gob"
	"fmt"
	"net"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"syscall"
	"time"
)

// Options say what to run.
type Options struct {
	// Self is the command line that makes this program call Main with the number
	// that is appended to it.
	Self []string
	// Path is the command's file, and Args its arguments with its name first.
	Path      string
	Args, Env []string
	// Stdin, Stdout and Stderr are the command's.
	Stdin, Stdout, Stderr *os.File
	// Patience is how long a supervisor may take to become ready; 0 means for ever.
	Patience time.Duration
	// Deadline returns the deadline to begin with. It is called when the supervisor can
	// take it: on a loaded machine one that was known before could be over by then.
	Deadline func() Deadline
	// Grace is the time from SIGTERM to SIGKILL where the deadline does not come
	// first.
	Grace time.Duration
}

// Command is a command that runs under a supervisor.
type Command struct {
	supervisor *exec.Cmd
	conn       *net.UnixConn
	in         *gob.Decoder // of conn
	orders     chan order
	events     chan Event
	done       chan struct{} // closed with the last event
}

// attempts is how often a supervisor is started at most. Each further one takes a
// signal in the instant in which the one before was forked.
const attempts = 10

// Start starts the supervisor and has it start the command; the first event says
// whether it did. The events have to be read to the last. Where ctx ends before the
// supervisor is ready, nothing was started and the error is ctx's cause.
func Start(ctx context.Context, o *Options) (*Command, error) {
	becomeSubreaper() // for what a supervisor that is killed leaves behind
	ctx, cancel := withPatience(ctx, o.Patience)
	defer cancel()
	for attempt := 1; ; attempt++ {
		c, err := startSupervisor(o)
		if err != nil {
			return nil, fmt.Errorf("start a supervisor: %w", err)
		}
		ready := c.isReady(ctx)
		if ctx.Err() != nil { // also where it became ready as ctx ended
			c.giveUp()
			return nil, context.Cause(ctx)
		}
		if !ready && attempt < attempts && c.diedOfOthers() {
			c.giveUp()
			continue
		}
		go c.write()
		go c.read()
		c.send(order{Start: &start{Path: o.Path, Args: o.Args, Env: o.Env, Deadline: o.Deadline(), Grace: o.Grace}})
		return c, nil
	}
}

func startSupervisor(o *Options) (*Command, error) {
	conn, theirs, err := socket()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(o.Self[0], append(slices.Clone(o.Self[1:]), strconv.Itoa(theirs))...) //nolint:noctx // it ends with its socket
	cmd.Stdin, cmd.Stdout, cmd.Stderr = o.Stdin, o.Stdout, o.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	err = whileBlocked(cmd.Start)
	_ = syscall.Close(theirs) // the supervisor has it
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	return &Command{
		supervisor: cmd, conn: conn, in: gob.NewDecoder(conn),
		orders: make(chan order), events: make(chan Event), done: make(chan struct{}),
	}, nil
}

func withPatience(ctx context.Context, patience time.Duration) (context.Context, context.CancelFunc) {
	if patience == 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeoutCause(ctx, patience, fmt.Errorf("start a supervisor: the process was not ready within %v", patience))
}

// isReady waits until the supervisor is, and reports whether it became so before ctx
// ended.
func (c *Command) isReady(ctx context.Context) bool {
	stop := context.AfterFunc(ctx, func() { _ = c.conn.SetReadDeadline(time.Unix(1, 0)) }) // reading fails at once
	defer stop()
	var e Event
	return c.in.Decode(&e) == nil && e.Kind == ready
}

// giveUp ends a supervisor that was told of no command yet.
func (c *Command) giveUp() {
	_ = c.supervisor.Process.Kill() // it may be stopped, or gone
	_ = c.supervisor.Wait()         // killed
	_ = c.conn.Close()              // nothing was sent
}

// diedOfOthers reports whether a supervisor that did not become ready was ended by
// a signal that was meant for others: one that the terminal sent to the parent's
// group before the supervisor had left it, and that the parent has got as well.
// Blocking does not keep these from it, since Go's runtime unblocks them in each
// program, before it handles any.
func (c *Command) diedOfOthers() bool {
	_ = c.supervisor.Process.Kill() // it may have closed its socket only
	_ = c.supervisor.Wait()         // killed
	if c.supervisor.ProcessState == nil {
		return false // somebody else has waited for it
	}
	status, ok := c.supervisor.ProcessState.Sys().(syscall.WaitStatus)
	if !ok {
		return false
	}
	switch status.Signal() {
	case syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM:
		return true
	default:
		return false
	}
}

// socket returns both ends of a socket, theirs to be inherited. It keeps the
// number that it happens to have: one that is chosen, as os/exec does, could take
// the place of a file that the command is to inherit.
func socket() (ours *net.UnixConn, theirs int, err error) {
	syscall.ForkLock.RLock()
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err == nil {
		syscall.CloseOnExec(fds[0])
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return nil, 0, err
	}
	file := os.NewFile(uintptr(fds[0]), "supervisor")
	conn, err := net.FileConn(file)
	_ = file.Close() // conn is a copy
	if err != nil {
		_ = syscall.Close(fds[1])
		return nil, 0, err
	}
	ours, ok := conn.(*net.UnixConn)
	if !ok {
		_ = conn.Close()
		_ = syscall.Close(fds[1])
		return nil, 0, fmt.Errorf("a socket pair is a %T", conn)
	}
	return ours, fds[1], nil
}

// Events returns what happens, up to Ended, and is closed after that.
func (c *Command) Events() <-chan Event { return c.events }

// Supervisor returns the supervisor's process id.
func (c *Command) Supervisor() int { return c.supervisor.Process.Pid }

// Extend moves the deadline. Once everything was told to end it does nothing.
func (c *Command) Extend(d Deadline) { c.send(order{Deadline: &d}) }

// Signal passes a signal to the command, or to its whole group.
func (c *Command) Signal(sig syscall.Signal, group bool) { c.send(order{Signal: sig, Group: group}) }

// Stop ends everything: SIGTERM, and SIGKILL after the grace.
func (c *Command) Stop() { c.send(order{Stop: true}) }

func (c *Command) send(o order) {
	select {
	case c.orders <- o:
	case <-c.done:
	}
}

func (c *Command) write() {
	out := gob.NewEncoder(c.conn)
	for {
		select {
		case o := <-c.orders:
			_ = out.Encode(o) // a supervisor that is gone is noticed by reading
		case <-c.done:
			return
		}
	}
}

func (c *Command) read() {
	defer close(c.events)
	defer close(c.done)
	defer func() { _ = c.conn.Close() }() // everything was said
	last := Event{}
	for {
		var e Event
		if c.in.Decode(&e) != nil {
			break
		}
		if last = e; e.Kind == Ended {
			break
		}
		c.events <- e
	}
	if last.Kind != Ended {
		c.bury()
		c.events <- Event{Kind: Broken, Error: c.supervisor.ProcessState.String()} // says "<nil>" of nil
	}
	_ = c.supervisor.Wait() // how it ended was said, or does not matter
	c.events <- Event{Kind: Ended}
}

// bury ends what a supervisor left behind that is gone.
func (c *Command) bury() {
	_ = c.supervisor.Process.Kill() // it may have closed its socket only
	_ = c.supervisor.Wait()         // killed
	for {
		for _, p := range descendants(os.Getpid()) {
			_ = syscall.Kill(p.pid, syscall.SIGKILL) // it may have just ended
		}
		if !reapOne() {
			return
		}
	}
}

// reapOne waits for a child for a moment and reports whether there may be more.
func reapOne() bool {
	var status syscall.WaitStatus
	pid, err := syscall.Wait4(-1, &status, syscall.WNOHANG, nil)
	if err == syscall.ECHILD {
		return false
	}
	if pid == 0 {
		time.Sleep(again) //nolint:forbidigo // nothing tells when a child of a dead supervisor has ended
	}
	return true
}
