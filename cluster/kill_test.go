package cluster

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"
)

const (
	childCallers = 8
	opening      = "opening"
)

// child is the process that the tests below kill: it runs a node under load with
// many snapshots and prints each command once it is acknowledged. It returns only
// when that goes wrong.
func child(dir string) error {
	ctx := context.Background()
	if _, err := fmt.Fprintln(os.Stdout, opening); err != nil {
		return err
	}
	cfg := testConfig(dir)
	cfg.Snapshot.Entries = 1
	n, err := Open(ctx, cfg, new(ledger))
	if err != nil {
		return err
	}
	for term, changed := n.Leadership(); term == 0; term, changed = n.Leadership() {
		<-changed
	}
	failed := make(chan error)
	for i := range childCallers {
		go func() {
			for j := 0; ; j++ {
				command := fmt.Sprintf("%d/%d/%d", os.Getpid(), i, j)
				if os.Getenv(childPanics) != "" && j == 3 {
					command = "panic"
				}
				if _, err := n.Propose(ctx, []byte(command)); err != nil {
					failed <- err
				}
				// One write, so that a kill does not tear it.
				if _, err := fmt.Fprintln(os.Stdout, command); err != nil {
					failed <- err
				}
			}
		}()
	}
	go func() {
		for {
			if err := n.Snapshot(ctx); err != nil {
				failed <- err
			}
		}
	}()
	return <-failed
}

// childPanics, when set in its environment, makes the child propose a command
// that its FSM does not know.
const childPanics = "LEASED_CLUSTER_TEST_CHILD_PANICS"

type childProcess struct {
	cmd    *exec.Cmd
	out    *bufio.Scanner
	stderr *bytes.Buffer
}

func startChild(t *testing.T, dir string, env ...string) *childProcess {
	t.Helper()
	c := &childProcess{cmd: exec.Command(os.Args[0]), stderr: new(bytes.Buffer)}
	c.cmd.Env = append(os.Environ(), append(env, childDir+"="+dir)...)
	c.cmd.Stderr = c.stderr
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	c.out = bufio.NewScanner(out)
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.cmd.Process.Kill() })
	if !c.out.Scan() || c.out.Text() != opening {
		t.Fatalf("the child printed %q; stderr:\n%s", c.out.Text(), c.stderr)
	}
	return c
}

// kill ends the child with SIGKILL and returns what it printed until then.
func (c *childProcess) kill(t *testing.T) []string {
	t.Helper()
	if err := c.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	rest := c.rest()
	var exit *exec.ExitError
	if err := c.cmd.Wait(); !errors.As(err, &exit) || exit.Exited() {
		t.Fatalf("the child ended before it was killed: %v; stderr:\n%s", err, c.stderr)
	}
	return rest
}

func (c *childProcess) rest() []string {
	var out []string
	for c.out.Scan() {
		out = append(out, c.out.Text())
	}
	return out
}

// TestNode_kill kills a loaded node at random moments, between them snapshots
// and the deletion of what they cover. Nothing that was acknowledged may be
// missing, doubled or out of order.
func TestNode_kill(t *testing.T) {
	dir := t.TempDir()
	var acknowledged []string
	for round := range 8 {
		c := startChild(t, dir)
		for range 1 + rand.IntN(600) {
			if !c.out.Scan() {
				t.Fatalf("round %d: the child ended by itself; stderr:\n%s", round, c.stderr)
			}
			acknowledged = append(acknowledged, c.out.Text())
		}
		acknowledged = append(acknowledged, c.kill(t)...)

		fsm := new(ledger)
		n := lead(t, testConfig(dir), fsm)
		got := fsm.content()
		t.Logf("round %d: %d acknowledged, %d applied, snapshot at %d", round, len(acknowledged), len(got), n.Status().SnapshotIndex)
		stop(t, n)
		checkLedger(t, acknowledged, got)
	}
}

func checkLedger(t *testing.T, acknowledged, got []string) {
	t.Helper()
	seen := map[string]bool{}
	next := map[string]int{} // per process and caller: each waits for its answers
	for _, line := range got {
		if seen[line] {
			t.Errorf("%s was applied twice", line)
		}
		seen[line] = true
		at := strings.LastIndex(line, "/")
		caller := line[:at]
		if want := fmt.Sprint(next[caller]); line[at+1:] != want {
			t.Errorf("caller %s: command %s was applied, want %s", caller, line[at+1:], want)
		}
		next[caller]++
	}
	for _, line := range acknowledged {
		if !seen[line] {
			t.Errorf("%s was acknowledged and is lost", line)
		}
	}
}

// TestNode_killFirstStart kills a node while it founds its cluster.
func TestNode_killFirstStart(t *testing.T) {
	for range 12 {
		dir := t.TempDir()
		c := startChild(t, dir)
		moment := time.NewTimer(rand.N(25 * time.Millisecond))
		<-moment.C
		acknowledged := c.kill(t)
		fsm := new(ledger)
		n := lead(t, testConfig(dir), fsm)
		propose(t, n, "0/0/0")
		stop(t, n)
		checkLedger(t, append(acknowledged, "0/0/0"), fsm.content())
	}
}

// TestNode_panic: an FSM that cannot apply a command ends the process, and the
// caller is not told that all is well.
func TestNode_panic(t *testing.T) {
	dir := t.TempDir()
	c := startChild(t, dir, childPanics+"=1")
	printed := c.rest()
	err := c.cmd.Wait()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 2 {
		t.Errorf("the process ended with %v, want a panic's exit code 2", err)
	}
	if !strings.Contains(c.stderr.String(), "ledger: unknown command") {
		t.Errorf("stderr does not show the panic:\n%s", c.stderr)
	}
	for _, line := range printed {
		if line == "panic" {
			t.Error("the command that the FSM could not apply was acknowledged")
		}
	}
}

// TestOpen_inUseByProcess: the second process names the first.
func TestOpen_inUseByProcess(t *testing.T) {
	dir := t.TempDir()
	c := startChild(t, dir)
	if !c.out.Scan() {
		t.Fatalf("the child does not work; stderr:\n%s", c.stderr)
	}
	var drained sync.WaitGroup
	drained.Go(func() { _, _ = io.Copy(io.Discard, scannerReader{c.out}) })
	begin := time.Now()
	_, err := Open(testContext(t), testConfig(dir), new(ledger))
	if !errors.Is(err, ErrInUse) || !strings.Contains(err.Error(), fmt.Sprintf("(pid %d)", c.cmd.Process.Pid)) {
		t.Errorf("Open = %v, want %v and the other process's id, %d", err, ErrInUse, c.cmd.Process.Pid)
	}
	if took := time.Since(begin); took > 3*time.Second {
		t.Errorf("Open took %v, want at most 3s", took)
	}
	if err := c.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	drained.Wait()
	_ = c.cmd.Wait() // killed
	lead(t, testConfig(dir), new(ledger))
}

type scannerReader struct{ s *bufio.Scanner }

func (r scannerReader) Read(p []byte) (int, error) {
	if !r.s.Scan() {
		return 0, io.EOF
	}
	return copy(p, r.s.Bytes()), nil
}
