package proc

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// startTimeout bounds the start of a server, reading its data included.
const startTimeout = 2 * time.Minute

// Build compiles a command of this module without the race detector. Go keeps
// what it links for go run, and not what go build does: to "run" it under cp gets
// a copy, and the program is linked once for all tests that want it.
func Build(t *testing.T, pkg string) string {
	t.Helper()
	bin := filepath.Join(t.TempDir(), filepath.Base(pkg))
	cmd := exec.CommandContext(t.Context(), "go", "run", "-exec", "cp", pkg, bin)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build %s: %v\n%s", pkg, err, out)
	}
	return bin
}

// Server is a running process.
type Server struct {
	URL  string // of its HTTP server
	cmd  *exec.Cmd
	done chan struct{}
}

// PID returns the process id.
func (s *Server) PID() int { return s.cmd.Process.Pid }

// Runs tells whether the process has not ended.
func (s *Server) Runs() bool {
	select {
	case <-s.done:
		return false
	default:
		return true
	}
}

// Stop ends the server as its operator would and waits for it.
func (s *Server) Stop(t *testing.T) {
	t.Helper()
	select {
	case <-s.done:
		return
	default:
	}
	_ = s.cmd.Process.Signal(syscall.SIGTERM) // it may have ended by itself
	select {
	case <-s.done:
	case <-time.After(30 * time.Second):
		_ = s.cmd.Process.Kill()
		<-s.done
		t.Errorf("%s did not end within 30 s of SIGTERM", s.cmd.Path)
	}
}

// Kill ends the server with SIGKILL and waits for it.
func (s *Server) Kill() {
	_ = s.cmd.Process.Kill() // it may have ended by itself
	<-s.done
}

func start(t *testing.T, url string, cmd *exec.Cmd) *Server {
	t.Helper()
	if err := cmd.Start(); err != nil {
		t.Fatalf("start %s: %v", cmd.Path, err)
	}
	s := &Server{cmd: cmd, URL: url, done: make(chan struct{})}
	go func() { _ = cmd.Wait(); close(s.done) }()
	t.Cleanup(func() { s.Stop(t) })
	return s
}

// StartPrinting starts a command that prints its address as the first line.
func StartPrinting(t *testing.T, bin string) *Server {
	t.Helper()
	cmd := exec.Command(bin)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	s := start(t, "", cmd)
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("%s did not say its address: %v", bin, err)
	}
	s.URL = "http://" + strings.TrimSpace(line)
	return s
}

// StartLeased starts one raft node that keeps its data and its log file in dir,
// and waits until it is ready.
func StartLeased(t *testing.T, bin, dir string) *Server {
	t.Helper()
	s := startLeased(t, bin, dir, nil)
	s.waitForStatus(t, dir, "/readyz")
	return s
}

// StartLeasedOn starts a gateway with a configuration file, to which the address
// of the HTTP server is added, and waits until the process answers. Its
// namespaces need not be ready: their backends may be down.
// env is added to its environment.
func StartLeasedOn(t *testing.T, bin, dir, config string, env ...string) *Server {
	t.Helper()
	file := filepath.Join(dir, "leased.yaml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	s := startLeased(t, bin, dir, env, "-c", file)
	s.waitForStatus(t, dir, "/healthz")
	return s
}

func startLeased(t *testing.T, bin, dir string, env []string, args ...string) *Server {
	t.Helper()
	addr := loopback(FreePort(t))
	cmd := exec.Command(bin, append([]string{"serve"}, args...)...)
	cmd.Env = append(append(os.Environ(), "LEASED_HTTP_LISTEN="+addr, "LEASED_NODE_DATA_DIR="+filepath.Join(dir, "data")), env...)
	log, err := os.OpenFile(filepath.Join(dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = log.Close() }()
	cmd.Stdout, cmd.Stderr = log, log
	return start(t, "http://"+addr, cmd)
}

// waitForStatus returns when the path answers 200.
func (s *Server) waitForStatus(t *testing.T, dir, path string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
	defer cancel()
	for {
		if answers(ctx, s.URL+path) {
			return
		}
		select {
		case <-s.done:
			text, _ := os.ReadFile(filepath.Join(dir, "log"))
			t.Fatalf("leased ended while it started:\n%s", text)
		case <-ctx.Done():
			t.Fatalf("leased does not answer %s after %v", path, startTimeout)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func answers(ctx context.Context, url string) bool {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return false
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return false
	}
	_ = res.Body.Close()
	return res.StatusCode == http.StatusOK
}

// Memory returns a field of the process's status, such as VmRSS, in bytes.
func Memory(t *testing.T, pid int, field string) int64 {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, field+":"); ok {
			kib, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			if err != nil {
				t.Fatalf("%s of process %d: %v", field, pid, err)
			}
			return kib << 10
		}
	}
	t.Fatalf("process %d has no %s", pid, field)
	return 0
}

// Pause stops the server until Resume.
func (s *Server) Pause(t TB) {
	t.Helper()
	Pause(t, s.cmd.Process)
}

// Resume lets a server that was paused go on.
func (s *Server) Resume(t TB) {
	t.Helper()
	Resume(t, s.cmd.Process)
}
