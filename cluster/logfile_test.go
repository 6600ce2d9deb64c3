package cluster

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// countedFile counts what is written to it, and fails writes of zeros if told.
type countedFile struct {
	*os.File

	writes    int
	failZeros bool
}

func (f *countedFile) WriteAt(b []byte, at int64) (int, error) {
	f.writes++
	if f.failZeros && len(bytes.Trim(b, "\x00")) == 0 {
		return 0, errors.New("no space left on device")
	}
	return f.File.WriteAt(b, at)
}

func openLogFile(t *testing.T, size int64) (*logFile, *countedFile) {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "segment"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	if err := f.Truncate(size); err != nil {
		t.Fatal(err)
	}
	counted := &countedFile{File: f}
	return newLogFile(counted, size), counted
}

// TestLogFile_fillsAhead appends past the end of the space that was reserved: the
// file is what was appended, zeros stand behind it, and they cost one write for
// each fillAhead bytes.
func TestLogFile_fillsAhead(t *testing.T) {
	const size = 3*fillAhead + 100
	f, counted := openLogFile(t, size)
	// What a killed process left behind the last entry that counts.
	if _, err := counted.File.WriteAt(bytes.Repeat([]byte{7}, 100), 5000); err != nil {
		t.Fatal(err)
	}
	var want []byte
	appends := 0
	for len(want) < size+5000 {
		entry := bytes.Repeat([]byte{byte(appends%255 + 1)}, 1500)
		n, err := f.WriteAt(entry, int64(len(want)))
		if n != len(entry) || err != nil {
			t.Fatalf("append %d: wrote %d, error %v", appends, n, err)
		}
		want = append(want, entry...)
		appends++
		if err := f.Sync(); err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(counted.Name())
		if err != nil {
			t.Fatal(err)
		}
		whole := append(bytes.Clone(want), make([]byte, max(0, size-len(want)))...)
		if !bytes.Equal(got, whole) {
			t.Fatalf("after append %d the file of %d bytes is not the %d that were appended and zeros up to %d", appends, len(got), len(want), len(whole))
		}
	}
	if fills := counted.writes - appends; fills < 3 || fills > 4 {
		t.Errorf("%d appends and %d fills, want one for each %d of %d bytes", appends, fills, fillAhead, size)
	}
}

// TestLogFile_fillFails keeps an entry whose zeros could not be written.
func TestLogFile_fillFails(t *testing.T) {
	f, counted := openLogFile(t, fillAhead)
	counted.failZeros = true
	if n, err := f.WriteAt([]byte("entry"), 0); n != 5 || err != nil {
		t.Errorf("append: wrote %d, error %v", n, err)
	}
	if err := f.Sync(); err != nil {
		t.Error(err)
	}
}
