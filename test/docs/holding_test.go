package docs

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"

	"leased/test/proc"
)

// terminal is what runs in one terminal of the page.
type terminal struct {
	cmd *exec.Cmd
	out *output
}

// output keeps what a command writes.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
	seen int
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

// find reports whether a line like the one of the page was written below those
// that were found before.
func (o *output) find(line *regexp.Regexp) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	at := line.FindIndex(o.text.Bytes()[o.seen:])
	if at == nil {
		return false
	}
	o.seen += at[1]
	return true
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// like returns a pattern for a line of the page: what differs from time to time
// may.
func like(line string) *regexp.Regexp {
	p := regexp.QuoteMeta(line)
	for shown, varies := range map[string]string{
		`[A-Za-z0-9_-]{43}`:              `[A-Za-z0-9_-]{43}`, // a lease
		`Mon Jan  5 12:00:\d\d UTC 2026`: `\w+ +\w+ +\d.*`,
		`2026-01-05T12:00:\d\dZ`:         `\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ`,
		`(token:? +)\d+`:                 `${1}\d+`,
		`^  (\w+):  +`:                   `  ${1}: +`, // columns
	} {
		p = regexp.MustCompile(shown).ReplaceAllString(p, varies)
	}
	return regexp.MustCompile(`(?m)^` + p + `$`)
}

// TestHolding_terminals types what docs/holding.md says into three terminals, and
// reads what it shows.
func TestHolding_terminals(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/holding.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile(`(?m)^\*\*Terminal (\d)\*\* .*\n(?:\S.*\n)*\n((?:    .*\n)+)`).FindAllStringSubmatch(string(page), -1)
	if len(blocks) < 5 {
		t.Fatalf("the page has %d blocks of a terminal", len(blocks))
	}
	bin := proc.Build(t, "leased/cmd/leased")
	server := proc.StartLeased(t, bin, t.TempDir())
	terminals := map[string]*terminal{}
	for _, b := range blocks {
		for line := range strings.Lines(b[2]) {
			line = strings.TrimSuffix(strings.TrimPrefix(line, "    "), "\n")
			at := terminals[b[1]]
			command, typed := strings.CutPrefix(line, "$ ")
			switch {
			case command == "echo $?":
				_ = at.cmd.Wait() // the exit code is compared with the next line
				_, _ = at.out.Write([]byte(strings.TrimPrefix(at.cmd.ProcessState.String(), "exit status ") + "\n"))
			case typed:
				if one := terminals["1"]; one != nil {
					command = strings.Replace(command, "LEASE_ID", leaseOf(one.out.String()), 1)
				}
				terminals[b[1]] = open(t, filepath.Dir(bin), server.URL, command)
			default:
				proc.Until(t, "terminal "+b[1]+" shows "+line, proc.Patience, func() bool { return at.out.find(like(line)) })
			}
		}
	}
	// And Ctrl-C in terminal 2.
	two := terminals["2"]
	if err := syscall.Kill(-two.cmd.Process.Pid, syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	_ = two.cmd.Wait() // as is its exit code
	if got := two.cmd.ProcessState.ExitCode(); got != 130 {
		t.Errorf("after Ctrl-C the exit code is %d, want 130\n%s", got, two.out)
	}
}

func leaseOf(shown string) string {
	return regexp.MustCompile(`lease ([^,]+),`).FindStringSubmatch(shown)[1]
}

// open types a command into a new terminal.
func open(t *testing.T, path, server, command string) *terminal {
	t.Helper()
	x := &terminal{cmd: exec.Command("bash", "-c", "exec "+command), out: &output{}}
	x.cmd.Env = append(os.Environ(), "PATH="+path+":"+os.Getenv("PATH"), "LEASED_SERVER="+server, "LC_ALL=C", "TZ=UTC")
	x.cmd.Stdout, x.cmd.Stderr = x.out, x.out
	x.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := x.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = x.cmd.Process.Kill() // it has ended in order
		_ = x.cmd.Wait()
		if t.Failed() {
			t.Logf("$ %s\n%s", command, x.out)
		}
	})
	return x
}
