package supervise

import (
	"bytes"
	"errors"
	"os"
	"runtime"
	"strconv"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

func now() Instant {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		panic(err) // every Linux that Go runs on has it
	}
	return Instant(ts.Nano())
}

// becomeSubreaper makes processes whose parent ends children of this one, and reports
// whether it could: older than Linux 3.4, what leaves the group escapes.
func becomeSubreaper() bool {
	return unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == nil
}

func commandAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// whileBlocked starts a process that begins with the signals blocked from which it
// shields itself: until it has a group of its own, those that the terminal sends
// to its parent's are for it too, and it would die of them. Of those of which a
// program in Go ends it dies all the same, see diedOfOthers.
func whileBlocked(start func() error) error {
	runtime.LockOSThread() // the mask is the thread's, and so is that of what it forks
	defer runtime.UnlockOSThread()
	set, before := shieldedSet(), unix.Sigset_t{}
	if err := unix.PthreadSigmask(unix.SIG_BLOCK, &set, &before); err != nil {
		return err
	}
	err := start()
	return errors.Join(err, unix.PthreadSigmask(unix.SIG_SETMASK, &before, nil))
}

// unblock ends that for this thread, which starts the command.
func unblock() {
	set := shieldedSet()
	_ = unix.PthreadSigmask(unix.SIG_UNBLOCK, &set, nil) // it cannot fail with these arguments
}

func shieldedSet() unix.Sigset_t {
	var set unix.Sigset_t
	bits := 8 * int(unsafe.Sizeof(set.Val[0]))
	for _, sig := range shielded() {
		set.Val[(int(sig)-1)/bits] |= 1 << ((int(sig) - 1) % bits)
	}
	return set
}

type process struct{ pid, parent, group int }

// descendants returns the processes below one, in no order.
func descendants(of int) []process {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	names, _ := dir.Readdirnames(-1)
	_ = dir.Close() // it was read only
	children := make(map[int][]process)
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil {
			if p, ok := stat(pid); ok {
				children[p.parent] = append(children[p.parent], p)
			}
		}
	}
	var all []process
	for next := []int{of}; len(next) > 0; next = next[1:] {
		for _, p := range children[next[0]] {
			all = append(all, p)
			next = append(next, p.pid)
		}
	}
	return all
}

// stat reads the parent and the group of a process. Its name, in parentheses, can
// have any characters.
func stat(pid int) (process, bool) {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return process{}, false
	}
	fields := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
	if len(fields) < 3 || fields[0][0] == 'Z' {
		return process{}, false
	}
	parent, err1 := strconv.Atoi(string(fields[1]))
	group, err2 := strconv.Atoi(string(fields[2]))
	return process{pid, parent, group}, err1 == nil && err2 == nil
}
