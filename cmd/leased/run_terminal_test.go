package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"leased/test/proc"
)

// shell is an interactive shell on a terminal of its own.
type shell struct {
	t      *testing.T
	typed  *os.File // what is typed
	screen *lines
	seen   int
	done   chan struct{}
}

func newShell(t *testing.T, environ ...string) *shell {
	t.Helper()
	keyboard, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlSetPointerInt(int(keyboard.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	number, err := unix.IoctlGetInt(int(keyboard.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	terminal, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("bash", "--norc", "--noprofile", "-i")
	cmd.Dir = t.TempDir()
	cmd.Env = slices.Concat(environ, []string{"PS1=> ", "TERM=dumb", "HISTFILE=", "PATH=" + os.Getenv("PATH"), asLeased + "=1", "GORACE=atexit_sleep_ms=0"})
	cmd.Stdin, cmd.Stdout, cmd.Stderr = terminal, terminal, terminal
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = terminal.Close() // the shell has it
	s := &shell{t: t, typed: keyboard, screen: newLines(), done: make(chan struct{})}
	go func() {
		defer close(s.done)
		buf := make([]byte, 4096)
		for {
			n, err := keyboard.Read(buf)
			_, _ = s.screen.Write(buf[:n])
			if err != nil { // EIO: nobody has the terminal any more
				return
			}
		}
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it has ended in order
		_ = cmd.Wait()
		_ = keyboard.Close()
		<-s.done
		if t.Failed() {
			t.Logf("on the screen:\n%s", s.screen)
		}
	})
	return s
}

// types sends keys.
func (s *shell) types(keys string) {
	s.t.Helper()
	if _, err := s.typed.WriteString(keys); err != nil {
		s.t.Fatal(err)
	}
}

// sees waits until the text is on the screen, below what was seen before.
func (s *shell) sees(text string) {
	s.t.Helper()
	proc.Until(s.t, fmt.Sprintf("%q is on the screen", text), patience, func() bool {
		all := s.screen.String()
		at := strings.Index(all[s.seen:], text)
		if at < 0 {
			return false
		}
		s.seen += at + len(text)
		return true
	})
}

// TestRun_terminal: under a shell with job control the command has the terminal
// when it needs it, and the keyboard's signals act as without `leased run`.
func TestRun_terminal(t *testing.T) {
	server := serveIn(t, t.TempDir())
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	leased := func(name, ttl, command string) string {
		return fmt.Sprintf("%s run --tenant acme --target name:%s --actor a --ttl %s -- %s\n", filepath.Clean(exe), name, ttl, command)
	}
	const long = "5m" // what is stopped for a moment must not have lost it, on any machine
	s := newShell(t, "LEASED_SERVER="+server.url)
	s.sees("> ")

	s.types(leased("keys", long, "cat"))
	s.sees("token")
	s.types("typed\n")
	s.sees("typed\r\n") // the echo
	s.sees("typed\r\n") // cat's
	s.types("\x1a")     // Ctrl-Z
	s.sees("Stopped")
	s.types("fg\n")
	s.sees("fg\r\n")
	s.sees("cat\r\n") // the shell says what it continues: what it changed of the terminal is undone
	s.types("again\n")
	s.sees("again\r\n")
	s.sees("again\r\n")
	s.types("\x03") // Ctrl-C
	s.sees("SIGINT")
	s.types("echo code=$?\n")
	s.sees("code=130")

	// Without having the terminal: nobody asked for it.
	s.types(leased("sleep", long, "sleep 600"))
	s.sees("token")
	s.types("\x03")
	s.sees("SIGINT")
	s.types("echo code=$?\n")
	s.sees("code=130")

	// Stopped for longer than the lease lives: it must not go on.
	s.types(leased("stopped", "5s", "cat"))
	s.sees("token")
	s.types("x\n")
	s.sees("x\r\nx")
	s.types("\x1a")
	s.sees("Stopped")
	s.types(fmt.Sprintf("%s acquire --tenant acme --target name:stopped --actor a --wait 30s\n", exe))
	s.sees("acquired")
	s.types("fg\n")
	s.sees("the lease is lost")
	s.types("echo code=$?\n")
	s.sees("code=4")
	s.types("exit\n")
}
