package proc

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// ClockStep has the wall clock of a process be off by a time, so long after its
// start.
type ClockStep struct {
	After time.Duration // since the process started
	Off   time.Duration // from the machine's clock; whole seconds
}

const (
	// clockVariable has the steps of a process's clock: AFTER_NS:OFF_S, and so on,
	// with a comma between.
	clockVariable = "LEASED_TEST_CLOCK"

	// A program reads the wall clock in time.Now and nowhere else. Not every
	// machine can give one process another clock: a time namespace has the
	// machine's wall clock, and what replaces functions of the C library is not
	// asked by a Go program.
	nowIs    = "\tsec, nsec, mono := runtimeNow()\n\tif mono == 0 {"
	nowBegin = "\tsec, nsec, mono := runtimeNow()\n\tsec += clockOff(mono)\n\tif mono == 0 {"
	nowEnd   = `
type clockStep struct{ after, off int64 }

var clockSteps = readClockSteps()

func readClockSteps() (steps []clockStep) {
	text, _ := syscall.Getenv("` + clockVariable + `")
	number := func() (n int64) {
		negative := text != "" && text[0] == '-'
		if negative {
			text = text[1:]
		}
		for text != "" && text[0] >= '0' && text[0] <= '9' {
			n, text = 10*n+int64(text[0]-'0'), text[1:]
		}
		if text != "" {
			text = text[1:]
		}
		if negative {
			return -n
		}
		return n
	}
	for text != "" {
		after := number()
		steps = append(steps, clockStep{after, number()})
	}
	return steps
}

func clockOff(mono int64) (off int64) {
	for _, s := range clockSteps {
		if mono-startNano >= s.after {
			off = s.off
		}
	}
	return off
}
`
)

// BuildWithClock compiles a command as Build does, with a wall clock that Clock
// sets for each process: package time is compiled with another Now.
func BuildWithClock(t *testing.T, pkg string) string {
	t.Helper()
	root, err := exec.CommandContext(t.Context(), "go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatal(err)
	}
	original := filepath.Join(strings.TrimSpace(string(root)), "src", "time", "time.go")
	text, err := os.ReadFile(original)
	if err != nil {
		t.Fatal(err)
	}
	const imports = "import (\n"
	changed := strings.Replace(string(text), nowIs, nowBegin, 1)
	if changed == string(text) || !strings.Contains(changed, imports) {
		t.Fatalf("%s does not read the clock as this test expects: look at time.Now and correct nowIs", original)
	}
	changed = strings.Replace(changed, imports, imports+"\t\"syscall\"\n", 1) + nowEnd
	dir := t.TempDir()
	source, overlay := filepath.Join(dir, "time.go"), filepath.Join(dir, "overlay.json")
	files, err := json.Marshal(map[string]map[string]string{"Replace": {original: source}})
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{source: changed, overlay: string(files)} {
		if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	bin := filepath.Join(dir, filepath.Base(pkg))
	cmd := exec.CommandContext(t.Context(), "go", "build", "-overlay", overlay, "-o", bin, pkg)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build %s with another clock: %v\n%s", pkg, err, out)
	}
	return bin
}

// Clock returns what sets the wall clock of a process of BuildWithClock, for its
// environment.
func Clock(steps ...ClockStep) string {
	all := make([]string, len(steps))
	for i, s := range steps {
		all[i] = fmt.Sprintf("%d:%d", s.After.Nanoseconds(), int64(s.Off/time.Second))
	}
	return clockVariable + "=" + strings.Join(all, ",")
}
