package main

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/google/go-cmp/cmp"

	"leased/gateway/api"
	"leased/test/proc"
)

// runArgs is `leased run` of a shell script on a key of the test's own.
func runArgs(t *testing.T, script string, flags ...string) []string {
	t.Helper()
	args := []string{"run", "--tenant", "acme", "--target", "name:" + strings.NewReplacer("/", ".", " ", "_").Replace(t.Name()), "--actor", "a"}
	return append(append(args, flags...), "--", "sh", "-c", script)
}

// startRun starts `leased run` in a folder of its own.
func (s *server) startRun(t *testing.T, script string, flags ...string) *process {
	t.Helper()
	return start(t, t.TempDir(), []string{"LEASED_SERVER=" + s.url}, runArgs(t, script, flags...)...)
}

// pids waits until the script has written as many process ids as wanted to the
// file "pids", and returns them.
func (p *process) pids(want int) []int {
	p.t.Helper()
	var all []int
	proc.Until(p.t, fmt.Sprintf("%d processes run", want), patience, func() bool {
		text, _ := os.ReadFile(filepath.Join(p.cmd.Dir, "pids"))
		all = nil
		for line := range strings.Lines(string(text)) {
			if pid, err := strconv.Atoi(strings.TrimSpace(line)); err == nil && strings.HasSuffix(line, "\n") {
				all = append(all, pid)
			}
		}
		return len(all) == want
	})
	return all
}

// runs reports whether a process has not ended; one that nobody reaped has.
func runs(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && !strings.Contains(string(text), ") Z ")
}

// family is a script that has a child, a grandchild whose parent has ended, and
// one in a session of its own; it says all their ids and ignores SIGTERM.
const family = `trap '' TERM
echo $$ >> pids
sh -c 'trap "" TERM; echo $$ >> pids; sleep 600' &
(sh -c 'trap "" TERM; echo $$ >> pids; sleep 600' &)
setsid sh -c 'trap "" TERM; echo $$ >> pids; sleep 600' &
`

const familySize = 4

func (p *process) wantGone(pids []int) {
	p.t.Helper()
	for _, pid := range pids {
		if runs(pid) {
			p.t.Errorf("process %d of %v still runs", pid, pids)
		}
	}
}

// supervisorOf returns the process between `leased run` and its command.
func supervisorOf(t *testing.T, command int) int {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", command))
	if err != nil {
		t.Fatal(err)
	}
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	pid, err := strconv.Atoi(fields[1])
	if err != nil {
		t.Fatal(err)
	}
	return pid
}

func TestRun(t *testing.T) {
	s := serveIn(t, t.TempDir())
	t.Run("commands", func(t *testing.T) { testRunCommands(t, s) })
	t.Run("faults", func(t *testing.T) { testRunFaults(t, s) })
}

// testRunCommands: what the command does comes through, and what `leased run`
// does itself has the exit codes of the other commands.
func testRunCommands(t *testing.T, s *server) {
	t.Helper()
	tests := []struct {
		name, script   string
		flags          []string
		code           int
		stdout, stderr string // stderr: a part of it
	}{
		{"done", "echo out; echo err >&2", []string{"-q"}, 0, "out\n", "err\n"},
		{"says what it holds", "true", nil, 0, "", "leased: holding v1/acme/default/name:TestRun.commands.says_what_it_holds/a/default/default, lease "},
		{"exit code", "exit 7", nil, 7, "", ""},
		{"signal", "kill -9 $$", nil, 137, "", "the command was ended by SIGKILL"},
		{"environment", `test "$LEASED_TOKEN" -gt 0 && test "${#LEASED_LEASE_ID}" = 43 && test "${#LEASED_KEY_ID}" = 22 && echo "$LEASED_EXPIRES_AT" | cut -c1-2`, nil, 0, "20\n", ""},
		// Each of them ignores SIGTERM by then.
		{"descendants left", family + fmt.Sprintf("while test $(wc -l < pids) -lt %d; do sleep 0.02; done; exit 3", familySize), []string{"--ttl", "10s"}, 3, "", "sent SIGKILL"},
		{"margin too long", "true", []string{"--ttl", "3s", "--margin", "2s"}, 2, "", "more than a third"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p := s.startRun(t, tt.script, tt.flags...)
			got := p.wait()
			if got.code != tt.code || got.stdout != tt.stdout || !strings.Contains(got.stderr, tt.stderr) {
				t.Errorf("got %v, want exit %d, output %q, and %q told", got, tt.code, tt.stdout, tt.stderr)
			}
			if strings.HasPrefix(tt.script, family) {
				p.wantGone(p.pids(familySize))
			}
		})
	}
	t.Run("under another lease", func(t *testing.T) {
		t.Parallel()
		names := []string{"LEASED_TOKEN", "LEASED_LEASE_ID", "LEASED_KEY_ID", "LEASED_EXPIRES_AT"}
		outer := []string{"LEASED_SERVER=" + s.url}
		for _, name := range names {
			outer = append(outer, name+"=outer")
		}
		// As getenv(3) sees it, and not a shell, which takes the last of two.
		got := start(t, t.TempDir(), outer, runArgs(t, `tr '\0' '\n' < /proc/$$/environ`)...).wait()
		for _, name := range names {
			if strings.Count("\n"+got.stdout, "\n"+name+"=") != 1 || strings.Contains(got.stdout, name+"=outer") {
				t.Errorf("the command has %s not once, or of another lease:\n%v", name, got)
			}
		}
		if !strings.Contains("\n"+got.stdout, "\nLEASED_SERVER="+s.url+"\n") {
			t.Errorf("the command has lost other variables: %v", got)
		}
	})
	t.Run("no such command", func(t *testing.T) {
		t.Parallel()
		got := s.run("run", "--tenant", "acme", "--target", "name:x", "--actor", "a", "--", "./nosuch")
		if got.code != exitUsage || !strings.Contains(got.stderr, "the command cannot be run") {
			t.Errorf("got %v, want exit 2", got)
		}
	})
	t.Run("no server", func(t *testing.T) {
		t.Parallel()
		got := start(t, t.TempDir(), []string{"LEASED_SERVER=http://127.0.0.1:1"}, runArgs(t, "echo ran")...).wait()
		if got.code != exitUnavailable || got.stdout != "" {
			t.Errorf("got %v, want exit 5 and that the command did not run", got)
		}
	})
	t.Run("held and waited for", func(t *testing.T) {
		t.Parallel()
		first := s.startRun(t, "echo $$ >> pids; while ! test -e stop; do sleep 0.02; done; echo first")
		first.pids(1)
		if got := s.startRun(t, "echo second").wait(); got.code != exitHeld || got.stdout != "" {
			t.Errorf("got %v, want exit 3 and that the command did not run", got)
		}
		second := s.startRun(t, "echo second", "--wait", "1m", "--json")
		if line, err := second.stderr.next(t.Context(), second.done); err != nil || !strings.Contains(line, `"waiting"`) {
			t.Errorf("the second says %q, %v; want that it waits", line, err)
		}
		if err := os.WriteFile(filepath.Join(first.cmd.Dir, "stop"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if got := first.wait(); got.code != 0 || got.stdout != "first\n" {
			t.Errorf("the first ended with %v", got)
		}
		if got := second.wait(); got.code != 0 || got.stdout != "second\n" {
			t.Errorf("the second ended with %v", got)
		}
	})
	t.Run("json", func(t *testing.T) {
		t.Parallel()
		got := s.startRun(t, "exit 4", "--json").wait()
		var events []string
		for line := range strings.Lines(got.stderr) {
			var e runEvent
			if err := json.Unmarshal([]byte(line), &e, json.RejectUnknownMembers(true)); err != nil || e.At.IsZero() {
				t.Fatalf("line %q: %v", line, err)
			}
			if e.Event != "renewed" && e.Event != "waiting" { // each if something takes so long
				events = append(events, e.Event)
			}
			if e.Event == "exited" && (e.ExitCode == nil || *e.ExitCode != 4) || e.Event == "acquired" && e.Lease.Token == 0 {
				t.Errorf("event %s", line)
			}
		}
		if diff := cmp.Diff([]string{"acquired", "started", "exited", "released"}, events); diff != "" || got.code != 4 {
			t.Errorf("exit %d, events (-want +got):\n%s", got.code, diff)
		}
	})
	t.Run("signals", func(t *testing.T) {
		t.Parallel()
		// The group gets TERM, with the child that would keep the shell waiting; USR1
		// is for the command alone.
		p := s.startRun(t, `trap 'echo usr1' USR1; trap 'echo term; exit 9' TERM; echo $$ >> pids; sleep 600 & while :; do wait; done`)
		p.pids(1)
		p.signal(syscall.SIGUSR1)
		if line, err := p.stdout.next(t.Context(), p.done); line != "usr1\n" {
			t.Fatalf("after USR1 the command says %q, %v", line, err)
		}
		p.signal(syscall.SIGTERM)
		if got := p.wait(); got.code != 9 || got.stdout != "usr1\nterm\n" {
			t.Errorf("got %v, want exit 9 and both signals", got)
		}
	})
}

// testRunFaults: whoever is killed or stopped, and whatever ends the lease, no
// process of the command outlives it.
func testRunFaults(t *testing.T, s *server) {
	t.Helper()
	t.Run("revoked", func(t *testing.T) {
		t.Parallel()
		p := s.startRun(t, family+"wait", "--ttl", "30s", "--json") // it is there to be revoked, on any machine
		pids := p.pids(familySize)
		var acquired runEvent
		for acquired.Lease == nil { // it may have been told that it takes long
			line, err := p.stderr.next(t.Context(), p.done)
			if err != nil || json.Unmarshal([]byte(line), &acquired) != nil {
				t.Fatalf("a line is %q, %v", line, err)
			}
		}
		s.mustRun("revoke", acquired.Lease.LeaseID, "--reason", "incident 7")
		got := p.wait()
		if got.code != exitLost || !strings.Contains(got.stderr, `"event":"lost"`) || !strings.Contains(got.stderr, `"code":"revoked"`) || !strings.Contains(got.stderr, "incident 7") {
			t.Errorf("got %v, want exit 4, lost, revoked, and why", got)
		}
		p.wantGone(pids)
	})
	t.Run("killed", func(t *testing.T) {
		t.Parallel()
		p := s.startRun(t, family+"wait", "--ttl", "10s")
		pids := p.pids(familySize)
		_ = p.cmd.Process.Kill()
		proc.Until(t, "every process has ended", patience, func() bool { return !slices.ContainsFunc(pids, runs) })
	})
	t.Run("supervisor killed", func(t *testing.T) {
		t.Parallel()
		p := s.startRun(t, family+"wait")
		pids := p.pids(familySize)
		if err := syscall.Kill(supervisorOf(t, pids[0]), syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		if got := p.wait(); got.code != exitOther || !strings.Contains(got.stderr, "was killed") {
			t.Errorf("got %v, want exit 1 and why", got)
		}
		p.wantGone(pids)
	})
	for _, who := range []string{"client", "server"} {
		t.Run(who+" stopped", func(t *testing.T) {
			t.Parallel()
			own := serveIn(t, t.TempDir())
			// It says when it lives, and ends only when it is killed.
			p := own.startRun(t, `trap '' TERM; echo $$ >> pids; while :; do date +%s%N >> lived; sleep 0.02; done`, "--ttl", "3s", "--margin", "1s")
			p.pids(1)
			stopped := p
			if who == "server" {
				stopped = own.process
			}
			stopped.signal(syscall.SIGSTOP)
			if who == "server" {
				if got := p.wait(); got.code != exitLost {
					t.Errorf("got %v, want exit 4", got)
				}
				stopped.signal(syscall.SIGCONT)
			}
			key := runArgs(t, "")[1:7]
			next := own.run(append([]string{"acquire", "--json", "--wait", "30s"}, key...)...)
			if next.code != 0 {
				t.Fatalf("acquire by another: %v", next)
			}
			lived := lastStamp(t, filepath.Join(p.cmd.Dir, "lived"))
			if passed := reply[jsonAnswer](t, next).Lease.AcquiredAt; !lived.Before(passed.Time) {
				t.Errorf("the command lived at %v, and another had the key from %v", lived, passed)
			}
			if who == "client" {
				p.signal(syscall.SIGCONT)
				if got := p.wait(); got.code != exitLost {
					t.Errorf("got %v, want exit 4", got)
				}
			}
		})
	}
}

// lastStamp returns the last time that a script wrote to a file.
func lastStamp(t *testing.T, file string) time.Time {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var last int64
	for in := bufio.NewScanner(f); in.Scan(); {
		if at, err := strconv.ParseInt(in.Text(), 10, 64); err == nil {
			last = at
		}
	}
	return api.NewTime(time.Unix(0, last)).Time
}
