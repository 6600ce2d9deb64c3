package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"time"
)

const (
	// lockWait is how long a start waits for another process to leave the folder:
	// long enough for a restart whose predecessor is just ending.
	lockWait  = 2 * time.Second
	lockRetry = 50 * time.Millisecond
)

// ErrInUse says that another process runs on the data directory.
var ErrInUse = errors.New("data directory is in use by another leased process")

// dirLock keeps other processes out of a node's folder. The log file has a lock
// of its own, but that comes too late: a start must be alone before it decides
// whether what it finds was left by a crash.
//
// The kernel drops the lock when the process ends, however it ends.
type dirLock struct {
	file *os.File
}

// lockDir locks path, a file that belongs to the folder dataDir. It waits at
// most lockWait; then the error is an ErrInUse that names the folder.
func lockDir(ctx context.Context, path, dataDir string) (*dirLock, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, lockWait, ErrInUse)
	defer cancel()
	retry := time.NewTicker(lockRetry)
	defer retry.Stop()
	for {
		err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			break
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), file.Close())
		}
		select {
		case <-retry.C:
		case <-ctx.Done():
			holder := readHolder(file)
			err := context.Cause(ctx)
			if errors.Is(err, ErrInUse) {
				err = fmt.Errorf("%s: %w%s: stop that process, or give this one a data directory of its own", dataDir, ErrInUse, holder)
			}
			return nil, errors.Join(err, file.Close())
		}
	}
	l := &dirLock{file}
	if err := l.sign(); err != nil && !isFull(err) {
		return nil, errors.Join(fmt.Errorf("write %s: %w", path, err), l.unlock())
	}
	return l, nil
}

// sign leaves the process id for the message of the next one, which does without
// where the disk is full.
func (l *dirLock) sign() error {
	if err := l.file.Truncate(0); err != nil {
		return err
	}
	_, err := l.file.WriteAt(fmt.Appendf(nil, "%d\n", os.Getpid()), 0)
	return err
}

func readHolder(file *os.File) string {
	content, err := io.ReadAll(io.NewSectionReader(file, 0, 32))
	pid := strings.TrimSpace(string(content))
	if err != nil || pid == "" {
		return ""
	}
	return fmt.Sprintf(" (pid %s)", pid)
}

// unlock lets others in. The file stays: a process that waits for it would
// otherwise lock a file that nobody else can see.
func (l *dirLock) unlock() error {
	return l.file.Close()
}
