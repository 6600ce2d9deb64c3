//go:build unix && !linux

package supervise

import (
	"syscall"
	"time"
)

func now() Instant { return Instant(time.Now().UnixNano()) }

func becomeSubreaper() bool { return false }

func commandAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

func whileBlocked(start func() error) error { return start() }

func unblock() {}

type process struct{ pid, group int }

// descendants knows only the group, which is signalled anyway.
func descendants(int) []process { return nil }
