package cluster

import (
	"errors"
	"net"
	"strings"
	"sync"
	"time"
)

// seldom lets a line through that was not let through lately. A peer that is
// refused comes again some times a second, from another port each time: what it is
// asked about has none, see reasonOf.
type seldom struct {
	mu   sync.Mutex
	last map[string]time.Time
}

const (
	seldomPause = 10 * time.Second
	seldomLines = 128
)

// reasonOf returns what err says without the addresses of the connection.
func reasonOf(err error) string {
	text := err.Error()
	if op, ok := errors.AsType[*net.OpError](err); ok {
		text = strings.ReplaceAll(text, op.Error(), op.Op+": "+op.Err.Error())
	}
	return text
}

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
