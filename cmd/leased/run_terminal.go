package main

import (
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
)

// terminal is the controlling terminal, which the command gets when it asks for
// it: a process group that reads it, or changes its modes, without having it is
// stopped. It is not given before, since in a pipeline others may need it.
type terminal struct {
	file  *os.File
	given bool
	lent  bool // given, and taken back while this process is stopped
}

// give makes the group of pid the terminal's foreground, if this process' group
// is, and reports whether it did.
func (t *terminal) give(group int) bool {
	if t.file == nil {
		file, err := os.OpenFile("/dev/tty", os.O_RDWR, 0)
		if err != nil {
			return false // there is none
		}
		t.file = file
	}
	if now, err := unix.IoctlGetInt(int(t.file.Fd()), unix.TIOCGPGRP); err != nil || now != syscall.Getpgrp() {
		return false
	}
	t.given = t.set(group)
	return t.given
}

// set makes a group the foreground. From a group that is not, that is signalled
// with SIGTTOU, which is ignored then.
func (t *terminal) set(group int) bool {
	signal.Ignore(syscall.SIGTTOU)
	return unix.IoctlSetPointerInt(int(t.file.Fd()), unix.TIOCSPGRP, group) == nil
}

// lend takes the terminal back for as long as this process is stopped.
func (t *terminal) lend() {
	if t.given {
		t.set(syscall.Getpgrp())
		t.given, t.lent = false, true
	}
}

// again gives the terminal to the group that it was taken back from, if this
// process was continued in the foreground.
func (t *terminal) again(group int) {
	if t.lent {
		t.lent = false
		t.give(group)
	}
}

// back takes the terminal back for good.
func (t *terminal) back() {
	if t.given {
		t.set(syscall.Getpgrp())
	}
	if t.file != nil {
		_ = t.file.Close() // it was not written to
	}
}

// orphaned reports whether nobody would continue this process if it stopped: its
// parent is not in its session, as a shell with job control is.
func orphaned() bool {
	parent, err1 := unix.Getsid(os.Getppid())
	own, err2 := unix.Getsid(0)
	return err1 != nil || err2 != nil || parent != own
}

// signalName returns SIGTERM for 15.
func signalName(s syscall.Signal) string { return unix.SignalName(s) }
