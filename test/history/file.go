package history

import (
	"bufio"
	"bytes"
	"cmp"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/go-json-experiment/json"
	"golang.org/x/sys/unix"
)

// Now returns the instant on the machine's monotonic clock, in nanoseconds: the same
// in every process, whatever becomes of the wall clock.
func Now() int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic(err) // there is no such clock: nothing here has a meaning
	}
	return ts.Nano()
}

// Recorder writes calls to a file, each when it begins and again when it ends, so
// that a process which is killed leaves the calls that it had made.
type Recorder struct{ file io.Writer }

// NewRecorder returns one that writes to file.
func NewRecorder(file io.Writer) *Recorder { return &Recorder{file} }

// Record writes the call as it stands. One write makes one whole line, or at the
// death of the process part of one.
func (r *Recorder) Record(o *Op) error {
	line, err := json.Marshal(o)
	if err != nil {
		return err
	}
	_, err = r.file.Write(append(line, '\n'))
	return err
}

// Read returns the calls in a file that a Recorder wrote, by when they began.
func Read(path string) ([]Op, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	ops := map[string]Op{}
	for line := range bytes.Lines(text) {
		if !bytes.HasSuffix(line, []byte("\n")) {
			break // the process ended while it wrote it
		}
		var o Op
		if err := json.Unmarshal(line, &o, json.RejectUnknownMembers(true)); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		ops[o.ID] = o
	}
	var all []Op
	for _, o := range ops {
		all = append(all, o)
	}
	slices.SortFunc(all, func(a, b Op) int { return cmp.Or(cmp.Compare(a.CalledNS, b.CalledNS), cmp.Compare(a.ID, b.ID)) })
	return all, nil
}

// Save writes values as JSON lines.
func Save[T any](path string, values []T) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	w := bufio.NewWriter(f)
	for _, v := range values {
		line, err := json.Marshal(v)
		if err != nil {
			return err
		}
		_, _ = w.Write(append(line, '\n')) // Flush tells of it
	}
	return cmp.Or(w.Flush(), f.Close())
}
