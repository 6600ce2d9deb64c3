package cluster

import (
	"sync"
	"time"
)

// seldom lets a line through that was not let through lately. A peer that is
// refused comes again some times a second.
type seldom struct {
	mu   sync.Mutex
	last map[string]time.Time
}

const (
	seldomPause = 10 * time.Second
	seldomLines = 128
)

func newSeldom() *seldom { return &seldom{last: make(map[string]time.Time)} }

func (s *seldom) now(line string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if at, ok := s.last[line]; ok && now.Sub(at) < seldomPause {
		return false
	}
	if len(s.last) >= seldomLines {
		clear(s.last)
	}
	s.last[line] = now
	return true
}
