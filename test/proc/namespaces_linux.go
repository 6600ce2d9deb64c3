package proc

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"unsafe"
)

// ownVariable names, in a process that has them, the test for which it has mounts
// or a network of its own.
const ownVariable = "LEASED_TEST_OWN"

// OwnMounts runs the test that calls it in a process with mounts of its own, which
// are gone with it, whatever becomes of the test. It returns true there, and false,
// when that process has ended, in the test's first process, which has nothing more
// to do. Without root it takes a kernel that lets users have namespaces.
func OwnMounts(t *testing.T) bool {
	t.Helper()
	if !own(t, syscall.CLONE_NEWNS) {
		return false
	}
	if err := syscall.Mount("none", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
		t.Fatalf("keep mounts from other processes: %v", err)
	}
	return true
}

// OwnNetwork is OwnMounts for a loopback interface on which no port is taken.
func OwnNetwork(t *testing.T) bool {
	t.Helper()
	if !own(t, syscall.CLONE_NEWNET) {
		return false
	}
	if err := loopbackUp(); err != nil {
		t.Fatalf("bring up the loopback interface: %v", err)
	}
	if _, err := net.InterfaceByName("lo"); err != nil {
		t.Fatal(err)
	}
	return true
}

func own(t *testing.T, what uintptr) bool {
	t.Helper()
	if os.Getenv(ownVariable) == t.Name() {
		return true
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run", "^"+t.Name()+"$", "-test.v", "-test.timeout", "10m")
	cmd.Env = append(os.Environ(), ownVariable+"="+t.Name())
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: what, Pdeathsig: syscall.SIGKILL}
	if os.Getuid() != 0 {
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}}
	}
	out, err := cmd.CombinedOutput()
	if passed := strings.Contains(string(out), "--- PASS: "+t.Name()+" "); err != nil || !passed {
		t.Errorf("in a process of its own (%v, which needs root or user namespaces): %v\n%s", cmd.Args, err, out)
		return false
	}
	t.Logf("%s", out)
	return false
}

// loopbackUp brings up the loopback interface of a network that is new.
func loopbackUp() error {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_DGRAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = syscall.Close(fd) }()
	request := struct {
		name  [syscall.IFNAMSIZ]byte
		flags uint16
		_     [22]byte
	}{flags: syscall.IFF_UP | syscall.IFF_RUNNING}
	copy(request.name[:], "lo")
	if _, _, errno := syscall.Syscall(syscall.SYS_IOCTL, uintptr(fd), syscall.SIOCSIFFLAGS, uintptr(unsafe.Pointer(&request))); errno != 0 {
		return errno
	}
	return nil
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
