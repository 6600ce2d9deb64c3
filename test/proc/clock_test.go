package proc

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// A process of BuildWithClock has the clock that it is given, and its steps.
func TestBuildWithClock(t *testing.T) {
	bin := BuildWithClock(t, "leased/test/proc/clock")
	cmd := exec.CommandContext(t.Context(), bin)
	const step = 300 * time.Millisecond
	cmd.Env = append(os.Environ(), Clock(ClockStep{0, time.Hour}, ClockStep{step, -time.Hour}))
	before := time.Now()
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Fields(string(out))
	if len(lines) != 3 {
		t.Fatalf("got %q", out)
	}
	for i, want := range []time.Duration{time.Hour, -time.Hour} {
		at, err := time.Parse(time.RFC3339Nano, lines[i])
		if err != nil {
			t.Fatal(err)
		}
		off := at.Sub(before)
		if late := off + time.Hour; i == 0 && late >= step && late <= 10*time.Second {
			want = -time.Hour // a busy machine took so long to start it
		}
		if off -= want; off < -time.Second || off > 10*time.Second {
			t.Errorf("the process's clock is off by %v, want %v", at.Sub(before), want)
		}
	}
	if took, err := time.ParseDuration(lines[2]); err != nil || took < 400*time.Millisecond || took > 10*time.Second {
		t.Errorf("its monotonic clock counted %v, error %v, want about 0.4s", took, err)
	}
}

// A ClockHand sets the clock of a process that runs, and of no other.
func TestClockHand(t *testing.T) {
	hand := NewClockHand(t)
	cmd := exec.CommandContext(t.Context(), BuildWithClock(t, "leased/test/proc/clock"))
	cmd.Env = append(os.Environ(), hand.Env)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	for range 3 { // what it prints by itself
		lines.Scan()
	}
	for _, want := range []time.Duration{0, time.Hour, -time.Hour, 0} {
		hand.Step(t, want)
		if _, err := io.WriteString(in, "\n"); err != nil || !lines.Scan() {
			t.Fatalf("it does not answer: %v, %v", err, lines.Err())
		}
		at, err := time.Parse(time.RFC3339Nano, lines.Text())
		if err != nil {
			t.Fatal(err)
		}
		if off := time.Until(at) - want; off < -10*time.Second || off > time.Second {
			t.Errorf("the process's clock is off by %v, want %v", time.Until(at), want)
		}
	}
	if err := in.Close(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}
