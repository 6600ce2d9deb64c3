//go:build unix && !aix && !solaris

package runner

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// lock keeps other processes out. The kernel drops it when the process ends,
// however it ends; the file stays, because a process that has it open would
// otherwise lock one that nobody else can see.
func lock(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	for {
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if !errors.Is(err, syscall.EINTR) {
			break
		}
	}
	switch {
	case err == nil:
		return f, nil
	case errors.Is(err, syscall.EWOULDBLOCK):
		err = ErrInUse
	default:
		err = fmt.Errorf("lock: %w", err)
	}
	return nil, errors.Join(err, f.Close())
}

// unlock lets others in. Closing the file is not enough: a process that is just
// being started by another goroutine has the file open until it runs its program.
func unlock(f *os.File) error {
	return errors.Join(syscall.Flock(int(f.Fd()), syscall.LOCK_UN), f.Close())
}
