package proc

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// mountsVariable is set in a process that has mounts of its own.
const mountsVariable = "LEASED_TEST_MOUNTS"

// OwnMounts runs the test that calls it in a process with mounts of its own, which
// are gone with it, whatever becomes of the test. It returns true there, and false,
// when that process has ended, in the test's first process, which has nothing more
// to do. Without root it takes a kernel that lets users have namespaces.
func OwnMounts(t *testing.T) bool {
	t.Helper()
	if os.Getenv(mountsVariable) == t.Name() {
		return true
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run", "^"+t.Name()+"$", "-test.v", "-test.timeout", "10m")
	cmd.Env = append(os.Environ(), mountsVariable+"="+t.Name())
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	if os.Getuid() != 0 {
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}}
	}
	out, err := cmd.CombinedOutput()
	passed := strings.Contains(string(out), "--- PASS: "+t.Name()+" ")
	if err != nil || !passed {
		t.Errorf("in a process with mounts of its own (%v, which needs root or user namespaces): %v\n%s", cmd.Args, err, out)
		return false
	}
	t.Logf("%s", out)
	return false
}

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
	if err := syscall.Mount("none", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
		t.Fatalf("keep mounts from other processes: %v", err)
	}
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
