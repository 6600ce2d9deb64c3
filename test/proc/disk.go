package proc

import (
	"errors"
	"io/fs"
	"os"
	"syscall"
	"testing"
)

// Disk is a small file system, see NewDisk.
type Disk struct {
	Dir    string
	filler string
}

// Fill takes all space that is left.
func (d *Disk) Fill(t *testing.T) {
	t.Helper()
	file, err := os.OpenFile(d.filler, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	for size := 1 << 20; size > 0; {
		n, err := file.Write(make([]byte, size))
		switch {
		case errors.Is(err, syscall.ENOSPC):
			if n == 0 {
				size /= 2
			}
		case err != nil:
			t.Fatal(err)
		}
	}
}

// Empty gives it back.
func (d *Disk) Empty(t *testing.T) {
	t.Helper()
	if err := os.Remove(d.filler); err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
}
