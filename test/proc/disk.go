package proc

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// Disk is a small file system.
type Disk struct {
	Dir    string
	filler string
}

// NewDisk mounts one of that size in bytes, in a process of OwnMounts.
func NewDisk(t *testing.T, size int) *Disk {
	t.Helper()
	d := &Disk{Dir: t.TempDir()}
	d.filler = filepath.Join(d.Dir, "filler")
	if err := syscall.Mount("tmpfs", d.Dir, "tmpfs", 0, fmt.Sprintf("size=%d", size)); err != nil {
		t.Fatalf("mount %s: %v", d.Dir, err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(d.Dir, syscall.MNT_DETACH); err != nil {
			t.Errorf("unmount %s: %v", d.Dir, err)
		}
	})
	return d
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
