package proc

import (
	"encoding/binary"
	"fmt"
	"net/http"
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
	// handVariable names the file of a process's ClockHand.
	handVariable = "LEASED_TEST_CLOCK_HAND"

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

var clockHand = openClockHand()

// The processes that have the file mapped see what is written to it at once.
func openClockHand() *int64 {
	path, ok := syscall.Getenv("` + handVariable + `")
	if !ok {
		return new(int64)
	}
	fd, err := syscall.Open(path, syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		panic("clock hand: " + err.Error())
	}
	page, err := syscall.Mmap(fd, 0, 8, syscall.PROT_READ, syscall.MAP_SHARED)
	if err != nil {
		panic("clock hand: " + err.Error())
	}
	_ = syscall.Close(fd)
	return (*int64)(unsafe.Pointer(&page[0]))
}

func clockOff(mono int64) (off int64) {
	for _, s := range clockSteps {
		if mono-startNano >= s.after {
			off = s.off
		}
	}
	return off + *clockHand
}
`
)

// BuildWithClock compiles a command as Build does, with a wall clock that Clock
// or a ClockHand sets for each process: package time is compiled with another Now.
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
	changed = strings.Replace(changed, imports, imports+"\t\"syscall\"\n\t\"unsafe\"\n", 1) + nowEnd
	return buildChanged(t, pkg, map[string]string{original: changed})
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

// ClockHand sets the wall clock of a process of BuildWithClock while it runs.
type ClockHand struct {
	Env  string // for the environment of the process
	file *os.File
}

// NewClockHand returns one that shows the machine's clock.
func NewClockHand(t *testing.T) *ClockHand {
	t.Helper()
	file, err := os.Create(filepath.Join(t.TempDir(), "hand"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = file.Close() })
	h := &ClockHand{Env: handVariable + "=" + file.Name(), file: file}
	h.Step(t, 0)
	return h
}

// Step has the clock be off by that from the machine's, in whole seconds, from now on.
func (h *ClockHand) Step(t *testing.T, off time.Duration) {
	t.Helper()
	if _, err := h.file.WriteAt(binary.NativeEndian.AppendUint64(nil, uint64(off/time.Second)), 0); err != nil {
		t.Fatal(err)
	}
}

// ClockOff returns by how much the wall clock of an HTTP server is off from the
// machine's, as its answers tell, to a few seconds.
func ClockOff(t *testing.T, url string) time.Duration {
	t.Helper()
	res, err := http.Get(url + "/healthz")
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	at, err := http.ParseTime(res.Header.Get("Date"))
	if err != nil {
		t.Fatal(err)
	}
	return time.Until(at)
}
