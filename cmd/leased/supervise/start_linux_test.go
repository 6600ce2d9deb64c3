package supervise

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// roleVariable makes this test binary one of the processes of a test.
const roleVariable = "TEST_SUPERVISE_ROLE"

func TestMain(m *testing.M) {
	var err error
	switch os.Getenv(roleVariable) {
	case "":
		os.Exit(m.Run())
	case "parent":
		err = beParent()
	case "parent without adoption":
		err = beParentWithoutAdoption()
	case "supervisor", "supervisor without adoption":
		var fd int
		if fd, err = strconv.Atoi(os.Args[len(os.Args)-1]); err == nil {
			adopt := becomeSubreaper
			if os.Getenv(roleVariable) == "supervisor without adoption" {
				adopt = func() bool { return false }
			}
			err = supervise(uintptr(fd), adopt)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// beParent starts commands while its group is signalled. Each prints which signals
// it begins with blocked.
func beParent() error {
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	if err := os.Setenv(roleVariable, "supervisor"); err != nil {
		return err
	}
	for _, sig := range groupSignals() {
		signal.Notify(make(chan os.Signal, 1), sig)
		for range 5 {
			if err := startSignalled(exe, sig); err != nil {
				return fmt.Errorf("%v: %w", sig, err)
			}
		}
	}
	return nil
}

// groupSignals lists one signal of those of which a program in Go does not die as
// it starts with them blocked, and all of which it does.
func groupSignals() []syscall.Signal {
	return []syscall.Signal{syscall.SIGUSR1, syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM}
}

// startSignalled starts a command while its own group is signalled, until a moment
// after a child was forked: it is still in that group for some of it.
func startSignalled(exe string, sig syscall.Signal) error {
	signalled := make(chan struct{})
	go func() {
		defer close(signalled)
		for forked := false; !forked; {
			forked = unix.Waitid(unix.P_ALL, 0, nil, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil) != unix.ECHILD
			_ = syscall.Kill(0, sig) // its own group is there
		}
	}()
	c, err := Start(context.Background(), &Options{
		Self: []string{exe}, Path: "/bin/sh", Args: []string{"sh", "-c", "grep SigBlk /proc/self/status"},
		Stdout: os.Stdout, Stderr: os.Stderr, Deadline: never, Grace: 1,
	})
	if err != nil {
		return err
	}
	<-signalled
	var exit Event
	for e := range c.Events() {
		if e.Kind == Exited || e.Kind == Broken || e.Kind == Refused {
			exit = e
		}
	}
	if exit != (Event{Kind: Exited}) {
		return fmt.Errorf("a command ended with %+v", exit)
	}
	return nil
}

// TestStart_groupIsSignalled: Ctrl-C in the moment in which the supervisor is
// started, and is still of its parent's group, does not kill it; and the command
// begins with no signal blocked.
func TestStart_groupIsSignalled(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), roleVariable+"=parent", "GORACE=atexit_sleep_ms=0")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out, err := cmd.Output()
	if err != nil {
		failed, _ := errors.AsType[*exec.ExitError](err)
		t.Fatalf("%v: %s", err, failed.Stderr)
	}
	want := ""
	for range 5 * len(groupSignals()) {
		want += "SigBlk:\t0000000000000000\n"
	}
	if string(out) != want {
		t.Errorf("the commands began with\n%s", out)
	}
}

func never() Deadline { return Deadline{Term: In(1 << 50), Kill: In(1 << 50)} }

// TestStart_deadline: what the deadline is, is asked when there is a supervisor to take
// it, however long that takes to start.
func TestStart_deadline(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv(roleVariable, "supervisor")
	begun := filepath.Join(t.TempDir(), "begun")
	asked := 0
	c, err := Start(context.Background(), &Options{
		Self: []string{"/bin/sh", "-c", `: > "$0"; exec "$1" "$2"`, begun, exe},
		Path: "/bin/true", Args: []string{"true"}, Grace: 1,
		Deadline: func() Deadline {
			asked++
			if _, err := os.Stat(begun); err != nil {
				t.Errorf("the deadline is asked before the supervisor runs: %v", err)
			}
			return never()
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	for e := range c.Events() {
		if e.Kind == Exited && e.Code != 0 || e.Kind == Refused || e.Kind == Broken {
			t.Errorf("the command ended with %+v", e)
		}
	}
	if asked != 1 {
		t.Errorf("the deadline was asked %d times, want once", asked)
	}
}

// TestStart_stopped: a supervisor that does not become ready is not waited for longer
// than was said, nor than there is a lease, and does not stay.
func TestStart_stopped(t *testing.T) {
	over := errors.New("the lease is over")
	for name, test := range map[string]struct {
		patience time.Duration // 0: the lease is lost instead
		want     string
	}{
		"impatient": {300 * time.Millisecond, "start a supervisor: the process was not ready within 300ms"},
		"lost":      {0, over.Error()},
	} {
		t.Run(name, func(t *testing.T) {
			pidFile := filepath.Join(t.TempDir(), "pid")
			ctx, lose := context.WithCancelCause(t.Context())
			defer lose(nil)
			if test.patience == 0 {
				go func() {
					for ctx.Err() == nil && !isStopped(pidIn(pidFile)) {
						time.Sleep(time.Millisecond)
					}
					lose(over)
				}()
			}
			_, err := Start(ctx, &Options{
				Self: []string{"/bin/sh", "-c", `echo $$ > "$0.new"; mv "$0.new" "$0"; kill -STOP $$`, pidFile},
				Path: "/bin/true", Args: []string{"true"}, Patience: test.patience, Grace: 1,
				Deadline: func() Deadline {
					t.Error("a deadline was asked for")
					return never()
				},
			})
			if err == nil || err.Error() != test.want {
				t.Errorf("got %v, want %s", err, test.want)
			}
			if pid := pidIn(pidFile); pid != "" {
				if _, err := os.Stat("/proc/" + pid); !errors.Is(err, os.ErrNotExist) {
					t.Errorf("process %s is still there: %v", pid, err)
				}
			}
		})
	}
}

func isStopped(pid string) bool {
	state, _ := os.ReadFile("/proc/" + pid + "/stat") // "" is no process
	return strings.Contains(string(state), ") T ")
}

// pidIn returns the process id that a file has, or "" if there is no such file yet.
func pidIn(file string) string {
	pid, _ := os.ReadFile(file)
	return strings.TrimSpace(string(pid))
}

// leaves is a script that leaves a process behind which ignores SIGTERM.
const leaves = `d=$(mktemp -d)
sh -c 'trap "" TERM; echo $$; : > "$0/up"; while :; do sleep 0.05; done' "$d" &
while ! test -e "$d/up"; do sleep 0.01; done
rm -r "$d"; exit 3`

// beParentWithoutAdoption runs a command that leaves a process in its group, as on
// systems where nobody adopts it, and prints its id and the events.
func beParentWithoutAdoption() error {
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	if err := os.Setenv(roleVariable, "supervisor without adoption"); err != nil {
		return err
	}
	c, err := Start(context.Background(), &Options{
		Self: []string{exe}, Path: "/bin/sh",
		Args:   []string{"sh", "-c", leaves},
		Stdout: os.Stdout, Stderr: os.Stderr, Deadline: never, Grace: 300 * time.Millisecond,
	})
	if err != nil {
		return err
	}
	var kinds []Kind
	for e := range c.Events() {
		kinds = append(kinds, e.Kind)
		if e.Kind == Started {
			go func() { // as the first process of those systems does
				for {
					_, err := syscall.Wait4(-e.PID, nil, 0, nil)
					if err != nil && err != syscall.EINTR {
						time.Sleep(time.Millisecond)
					}
				}
			}()
		}
	}
	fmt.Println(kinds)
	return nil
}

// TestStart_groupWithoutAdoption: where what the command leaves behind becomes no
// child of the supervisor, its group is ended all the same, before the end is told.
func TestStart_groupWithoutAdoption(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe)
	cmd.WaitDelay = time.Second // what is left behind has its output open
	cmd.Env = append(os.Environ(), roleVariable+"=parent without adoption", "GORACE=atexit_sleep_ms=0")
	out, err := cmd.Output()
	if err != nil {
		failed, _ := errors.AsType[*exec.ExitError](err)
		t.Fatalf("%v: %s", err, failed.Stderr)
	}
	left, events, _ := strings.Cut(string(out), "\n")
	if want := fmt.Sprintln([]Kind{Started, Exited, Terminating, Killing, Ended}); events != want {
		t.Errorf("the events were %s, want %s", events, want)
	}
	pid, err := strconv.Atoi(left)
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, 0); err != syscall.ESRCH {
		_ = syscall.Kill(pid, syscall.SIGKILL)
		t.Errorf("the process that was left behind: %v, want that it has ended", err)
	}
}
