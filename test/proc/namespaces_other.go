//go:build !linux

package proc

import "testing"

const onlyLinux = "mounts and networks of a process's own are Linux's: run this test there"

// OwnMounts fails the test.
func OwnMounts(t *testing.T) bool {
	t.Helper()
	t.Error(onlyLinux)
	return false
}

// OwnNetwork fails the test.
func OwnNetwork(t *testing.T) bool { t.Helper(); return OwnMounts(t) }

// NewDisk fails the test.
func NewDisk(t *testing.T, _ int) *Disk {
	t.Helper()
	t.Fatal(onlyLinux)
	return nil
}
