package supervise

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"syscall"
	"testing"
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
	case "supervisor":
		var fd int
		if fd, err = strconv.Atoi(os.Args[len(os.Args)-1]); err == nil {
			err = Main(uintptr(fd))
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// beParent starts commands while its group is signalled all the time. Each prints
// which signals it begins with blocked.
func beParent() error {
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	signal.Notify(make(chan os.Signal, 1), syscall.SIGUSR1)
	stop := make(chan struct{})
	go func() {
		for {
			select {
			case <-stop:
				return
			default:
				_ = syscall.Kill(0, syscall.SIGUSR1) // its own group is there
			}
		}
	}()
	defer close(stop)
	if err := os.Setenv(roleVariable, "supervisor"); err != nil {
		return err
	}
	for range 30 {
		never := Deadline{Term: In(1 << 50), Kill: In(1 << 50)}
		c, err := Start(&Options{
			Self: []string{exe}, Path: "/bin/sh", Args: []string{"sh", "-c", "grep SigBlk /proc/self/status"},
			Stdout: os.Stdout, Stderr: os.Stderr, Deadline: never, Grace: 1,
		})
		if err != nil {
			return err
		}
		var exit Event
		for e := range c.Events() {
			if e.Kind == Exited || e.Kind == Broken || e.Kind == Refused {
				exit = e
			}
		}
		if exit != (Event{Kind: Exited}) {
			return fmt.Errorf("a command ended with %+v", exit)
		}
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
	for range 30 {
		want += "SigBlk:\t0000000000000000\n"
	}
	if string(out) != want {
		t.Errorf("the commands began with\n%s", out)
	}
}
