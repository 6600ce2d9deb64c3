package proc

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// Pause stops a process until Resume: it neither answers nor hangs up. It returns
// when all its threads have stopped. Each stops by itself: after the signal was
// sent, and after the first one stopped, another may still answer.
func Pause(t TB, p *os.Process) {
	t.Helper()
	if err := p.Signal(syscall.SIGSTOP); err != nil {
		t.Fatalf("pause process %d: %v", p.Pid, err)
	}
	Until(t, "process "+strconv.Itoa(p.Pid)+" has stopped", Patience, func() bool { return allStopped(p.Pid) })
}

// Resume lets a process that was paused go on.
func Resume(t TB, p *os.Process) {
	t.Helper()
	if err := p.Signal(syscall.SIGCONT); err != nil {
		t.Fatalf("resume process %d: %v", p.Pid, err)
	}
}

func allStopped(pid int) bool {
	threads, err := filepath.Glob("/proc/" + strconv.Itoa(pid) + "/task/*/stat")
	if err != nil || len(threads) == 0 {
		return false
	}
	for _, thread := range threads {
		stat, err := os.ReadFile(thread)
		// The state follows the command's name, which stands in parentheses.
		_, rest, _ := strings.Cut(string(stat), ") ")
		if err == nil && !strings.HasPrefix(rest, "T") {
			return false
		}
	}
	return true
}
