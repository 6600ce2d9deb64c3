//go:build unix && !aix && !solaris

package runner

import (
	"path/filepath"
	"syscall"
	"testing"
)

// A process that is being started has what its parent has open, until it runs its
// own program: the lock must go without it.
func TestUnlock_whileAProcessStarts(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	first, err := lock(path)
	if err != nil {
		t.Fatal(err)
	}
	inherited, err := syscall.Dup(int(first.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = syscall.Close(inherited) }()
	if err := unlock(first); err != nil {
		t.Fatal(err)
	}
	second, err := lock(path)
	if err != nil {
		t.Fatalf("lock the folder again: %v", err)
	}
	if err := unlock(second); err != nil {
		t.Error(err)
	}
}
