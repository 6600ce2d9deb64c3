package main

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"golang.org/x/sys/unix"

	"leased/test/proc"
)

// TestRun_reader: nobody who reads what `leased run` says, and hangs or goes away,
// can end the command or keep the lease from being released.
func TestRun_reader(t *testing.T) {
	t.Parallel()
	s := serveIn(t, t.TempDir())
	for _, gone := range []bool{false, true} {
		name := map[bool]string{false: "hangs", true: "is gone"}[gone]
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, w, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = r.Close() }()
			if _, err := unix.FcntlInt(w.Fd(), unix.F_SETPIPE_SZ, 4096); err != nil { // four events
				t.Fatal(err)
			}
			exe, err := os.Executable()
			if err != nil {
				t.Fatal(err)
			}
			// Long enough for the pipe to be full, and for the lease to end if nobody
			// told the supervisor that it is renewed.
			cmd := exec.Command(exe, runArgs(t, "trap 'echo hup; exit 5' HUP; echo > started; n=0; while test $n -lt 3000 && ! test -e stop; do sleep 0.02; n=$((n+1)); done; exit 7", "--json", "--ttl", "5s")...)
			cmd.Dir = t.TempDir()
			cmd.Env = []string{asLeased + "=1", "PATH=" + os.Getenv("PATH"), "LEASED_SERVER=" + s.url, "GORACE=atexit_sleep_ms=0"}
			cmd.Stderr = w
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = cmd.Process.Kill() })
			_ = w.Close()
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				_ = cmd.Wait() // the exit code is in ProcessState
			}()
			proc.Until(t, "the command has started", patience, func() bool {
				_, err := os.Stat(filepath.Join(cmd.Dir, "started"))
				return err == nil
			})
			if gone {
				_ = r.Close()
			}
			select {
			case <-ended:
				t.Fatalf("it ended with %v", cmd.ProcessState)
			case <-time.After(15 * time.Second):
			}
			if err := os.WriteFile(filepath.Join(cmd.Dir, "stop"), nil, 0o600); err != nil {
				t.Fatal(err)
			}
			select {
			case <-ended:
			case <-time.After(patience):
				t.Fatal("it does not end")
			}
			if code := cmd.ProcessState.ExitCode(); code != 7 {
				t.Errorf("it ended with %v, want the command's exit code, 7", cmd.ProcessState)
			}
			if got := s.run("list", "--json"); strings.Contains(got.stdout, "name:"+t.Name()) || !strings.Contains(got.stdout, `"leases"`) {
				t.Errorf("the lease was not released: %v", got)
			}
		})
	}
}

// slowReader takes one line whenever it is let.
type slowReader struct {
	let   chan struct{}
	mu    sync.Mutex
	lines []string
}

func (r *slowReader) Write(p []byte) (int, error) {
	<-r.let
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lines = append(r.lines, string(p))
	return len(p), nil
}

// TestOutlet: lines keep their order; what finds no room is counted, where it would
// have stood, and routine ones leave room for those that matter.
func TestOutlet(t *testing.T) {
	t.Parallel()
	to := &slowReader{let: make(chan struct{})}
	n := newNarrator(&env{stderr: to, now: time.Now}, &runFlags{clientFlags: &clientFlags{json: true}})
	for range maxRoutine + 50 {
		n.started(1)
	}
	n.killing()
	close(to.let)
	proc.Until(t, "the lines are written", patience, func() bool {
		to.mu.Lock()
		defer to.mu.Unlock()
		return len(to.lines) > maxRoutine
	})
	n.terminating()
	n.out.close()
	counts, dropped, last := map[string]int{}, 0, ""
	for _, line := range to.lines {
		var e runEvent
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatal(err)
		}
		counts[e.Event]++
		dropped += e.Count
		last = e.Event
	}
	if counts["started"]+dropped != maxRoutine+50 || dropped < 49 || counts["dropped"] != 1 || counts["killing"] != 1 || last != "terminating" {
		t.Errorf("got %v, %d dropped, %s at the end", counts, dropped, last)
	}
}

// TestOutlet_close: a reader that takes nothing is waited for at the end for a moment.
func TestOutlet_close(t *testing.T) {
	t.Parallel()
	to := &slowReader{let: make(chan struct{})}
	o := newOutlet(to, func(int) string { return "" })
	_, _ = io.WriteString(o, "x")
	before := time.Now()
	o.close()
	if took := time.Since(before); took < lastWords || took > patience {
		t.Errorf("it took %v", took)
	}
	close(to.let)
	<-o.ended
}

// TestRun_signalAtRelease: whoever does not want to wait for a release is heard.
func TestRun_signalAtRelease(t *testing.T) {
	t.Parallel()
	s := serveIn(t, t.TempDir())
	p := s.startRun(t, "echo $$ > pids; while ! test -e stop; do sleep 0.02; done; exit 7", "--ttl", "1m", "--timeout", "25s")
	p.pids(1)
	proc.Pause(t, s.cmd.Process)
	t.Cleanup(func() { proc.Resume(t, s.cmd.Process) })
	if err := os.WriteFile(filepath.Join(p.cmd.Dir, "stop"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	before := time.Now()
	proc.Until(t, "it ends by SIGINT", patience, func() bool {
		if err := p.cmd.Process.Signal(syscall.SIGINT); err != nil && !errors.Is(err, os.ErrProcessDone) {
			t.Error(err)
		}
		select {
		case <-p.done:
			return true
		case <-time.After(100 * time.Millisecond):
			return false
		}
	})
	if took := time.Since(before); took > 15*time.Second {
		t.Errorf("it took %v", took)
	}
	if got := p.wait(); got.code != 7 && got.code != 130 || !strings.Contains(got.stderr, "could not be released (interrupted)") {
		t.Errorf("got %v, want the command's exit code, and that the release was interrupted", got)
	}
}

// TestLeftOf: time in which the machine was suspended counts.
func TestLeftOf(t *testing.T) {
	t.Parallel()
	now := time.Now()
	until := now.Add(10 * time.Second)
	for _, tt := range []struct {
		now  time.Time
		want time.Duration
	}{
		{now.Add(4 * time.Second), 6 * time.Second},
		{proc.AheadOnTheWall(now.Add(4*time.Second), 5), time.Second},
		{proc.AheadOnTheWall(now.Add(4*time.Second), -5), 6 * time.Second},
	} {
		if got := leftOf(until, tt.now); got != tt.want {
			t.Errorf("at %v: %v, want %v", tt.now, got, tt.want)
		}
	}
}
