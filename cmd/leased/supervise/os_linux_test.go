package supervise

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
)

// TestDescendants: a process is found below the one that started it, whatever its
// name looks like in /proc, and until it has ended.
func TestDescendants(t *testing.T) {
	sleep, err := exec.LookPath("sleep")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(sleep)
	if err != nil {
		t.Fatal(err)
	}
	odd := filepath.Join(t.TempDir(), "a) Z 1 (b") // as one that has ended and is a child of init
	if err := os.WriteFile(odd, text, 0o700); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(odd, "600")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	want := process{pid: cmd.Process.Pid, parent: os.Getpid(), group: cmd.Process.Pid}
	if all := descendants(os.Getpid()); !slices.Contains(all, want) {
		t.Errorf("%+v is not among %+v", want, all)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // killed
	if all := descendants(os.Getpid()); slices.Contains(all, want) {
		t.Errorf("%+v has ended, and is among %+v", want, all)
	}
}
