package cluster

import (
	"errors"
	"syscall"
	"time"

	wal "github.com/hashicorp/raft-wal"
)

const (
	// roomFile is made and deleted to see whether there is space.
	roomFile = "room" + tempSuffix
	// probePause is the least time between two looks for space.
	probePause = 300 * time.Millisecond
)

// trouble is why the log cannot be written, as far as is known.
type trouble struct {
	err error
	at  time.Time // of the last try
}

// trouble returns why the last change of the log failed; nil if it did not. It
// waits for nothing.
func (s *logStore) trouble() error {
	if t := s.failed.Load(); t != nil {
		return t.err
	}
	return nil
}

// note keeps, and says when that is new, whether the log can be written.
func (s *logStore) note(err error) {
	if err == nil {
		if s.failed.Load() != nil && s.failed.Swap(nil) != nil {
			s.files.logger.Warn("the log can be written again")
		}
		return
	}
	if s.failed.Swap(&trouble{err, time.Now()}) == nil {
		s.files.logger.Error("the log cannot be written: this node stands for no election until it can", "error", err)
	}
}

// writable returns nil if the log can be written, as far as is known. After a
// change that failed it looks: the log can be opened and there is space for a
// segment, so that what is written next does not fail for want of a few bytes.
func (s *logStore) writable() error {
	if s.failed.Load() == nil {
		return nil
	}
	s.changes.Lock()
	defer s.changes.Unlock()
	t := s.failed.Load()
	if t == nil || time.Since(t.at) < probePause {
		return s.trouble()
	}
	err := s.probe()
	s.note(err)
	return err
}

// probe is called with changes held.
func (s *logStore) probe() error {
	if s.ended {
		return wal.ErrClosed
	}
	if s.broken {
		if err := s.renew(); err != nil {
			return err
		}
	}
	return s.files.room()
}

// room returns nil if there is space for a segment.
func (f *logFiles) room() error {
	file, err := f.segments.vfs.Create(f.dir, roomFile, uint64(f.segment))
	if err == nil {
		err = file.Close()
	}
	return errors.Join(err, f.segments.vfs.Delete(f.dir, roomFile))
}

// isFull tells that a disk is full, or what its user may have of it is used up.
func isFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}
