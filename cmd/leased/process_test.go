package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"leased/test/proc"
)

// asLeased makes this test binary be the leased command: a process of its own,
// with main, signals and exit codes, and with the race detector when the tests
// have it.
const asLeased = "TEST_BINARY_IS_LEASED"

func TestMain(m *testing.M) {
	if os.Getenv(asLeased) != "" {
		main()
		return
	}
	proc.AtOnce(3)
	os.Exit(m.Run())
}

// patience bounds everything that a test waits for. It is no measurement.
const patience = 30 * time.Second

// servePatience is patience for the start of a server, under the race detector: what
// takes a second on a machine of its own has taken 30 on two cores with 32 to run.
const servePatience = 2 * time.Minute

// process is a running leased command.
type process struct {
	t      *testing.T
	cmd    *exec.Cmd
	stdout *lines
	stderr *lines
	done   chan struct{} // closed when the process has ended
}

// start starts a command in dir with a clean environment.
func start(t *testing.T, dir string, environ []string, args ...string) *process {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return startProgram(t, exe, dir, environ, args...)
}

// startProgram is start for another program.
func startProgram(t *testing.T, exe, dir string, environ []string, args ...string) *process {
	t.Helper()
	p := &process{t: t, stdout: newLines(), stderr: newLines(), done: make(chan struct{})}
	p.cmd = exec.Command(exe, args...)
	p.cmd.Dir = dir
	// The race detector sleeps for a second before an exit unless told not to.
	p.cmd.Env = slices.Concat(environ, []string{asLeased + "=1", "PATH=" + os.Getenv("PATH"), "HOME=" + dir, "GORACE=atexit_sleep_ms=0"})
	p.cmd.Stdout, p.cmd.Stderr = p.stdout, p.stderr
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.done)
		_ = p.cmd.Wait() // the exit code is in ProcessState
	}()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		<-p.done
		if t.Failed() {
			t.Logf("leased %s: %v\n%s%s", strings.Join(args, " "), p.cmd.ProcessState, p.stdout, p.stderr)
		}
	})
	return p
}

func (p *process) signal(s os.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
}

// wait waits for the process to end and returns what it did.
func (p *process) wait() result {
	p.t.Helper()
	select {
	case <-p.done:
	case <-time.After(patience):
		p.signal(syscall.SIGQUIT) // every goroutine's stack is in the log of the failure
		<-p.done
		p.t.Fatalf("the process did not end within %v", patience)
	}
	return result{p.cmd.ProcessState.ExitCode(), p.stdout.String(), p.stderr.String()}
}

// server is a running `leased serve`.
type server struct {
	*process
	url  string
	curl string // the line that the server suggests
}

// serveIn starts a server on a free port and waits until it says that it
// serves.
func serveIn(t *testing.T, dir string, args ...string) *server {
	t.Helper()
	p := start(t, dir, nil, append([]string{"serve", "--http.listen", "127.0.0.1:0"}, args...)...)
	s := &server{process: p}
	ctx, cancel := context.WithTimeout(t.Context(), servePatience)
	defer cancel()
	for s.curl == "" {
		line, err := p.stdout.next(ctx, p.done)
		if err != nil {
			t.Fatalf("the server does not say that it serves: %v", err)
		}
		fields := strings.Fields(line)
		switch {
		case strings.Contains(line, "listening on"):
			s.url = fields[len(fields)-1]
		case len(fields) > 0 && fields[0] == "curl":
			s.curl = strings.TrimSpace(line)
		}
	}
	return s
}

// stop ends the server in order and checks that it says it was in order.
func (s *server) stop() {
	s.t.Helper()
	s.signal(syscall.SIGTERM)
	got := s.wait()
	if got.code != 0 {
		s.t.Fatalf("the server ended with %v, want exit 0", got)
	}
}

// run runs a client command against the server to its end.
func (s *server) run(args ...string) result {
	s.t.Helper()
	return start(s.t, s.cmd.Dir, []string{"LEASED_SERVER=" + s.url}, args...).wait()
}

// mustRun is run for a command that must succeed.
func (s *server) mustRun(args ...string) result {
	s.t.Helper()
	got := s.run(args...)
	if got.code != 0 {
		s.t.Fatalf("leased %s: %v, want exit 0", strings.Join(args, " "), got)
	}
	return got
}

// lines keeps what a process writes and hands it out line by line.
type lines struct {
	mu    sync.Mutex
	text  bytes.Buffer
	read  *bufio.Reader
	grown chan struct{} // closed and replaced with each write
}

func newLines() *lines {
	l := &lines{grown: make(chan struct{})}
	l.read = bufio.NewReader(&cursor{of: l})
	return l
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	close(l.grown)
	l.grown = make(chan struct{})
	return l.text.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// cursor reads what has been written so far.
type cursor struct {
	of *lines
	at int
}

func (c *cursor) Read(p []byte) (int, error) {
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	n := copy(p, c.of.text.Bytes()[c.at:])
	c.at += n
	if n == 0 {
		return 0, io.EOF
	}
	return n, nil
}

// next returns the next line, waiting for it until ctx or the process ends.
func (l *lines) next(ctx context.Context, ended <-chan struct{}) (string, error) {
	var line string
	for {
		l.mu.Lock()
		grown := l.grown
		l.mu.Unlock()
		part, err := l.read.ReadString('\n')
		if line += part; err == nil {
			return line, nil
		}
		select {
		case <-grown:
		case <-ended:
			// What was written just before the end is still to be read.
			if part, err := l.read.ReadString('\n'); err == nil {
				return line + part, nil
			}
			return "", fmt.Errorf("the process ended after %q", l)
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}
}
