package cluster

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
	wal "github.com/hashicorp/raft-wal"
)

// termKey is what raft calls its term in the stable store; TestTermStore_key fails
// if a later one calls it otherwise.
const termKey = "CurrentTerm"

// Pauses before a term is stored again for which there was no space.
const (
	firstTermPause = 50 * time.Millisecond
	mostTermPause  = time.Second
)

var _ raft.StableStore = (*termStore)(nil)

// termStore is where raft keeps its term and its vote. raft panics when a term
// cannot be stored. On a full disk it waits here instead: it answers nobody and
// stands for no election meanwhile, which is what such a node is to do, and goes on
// when there is space.
type termStore struct {
	log   *logStore
	hooks atomic.Pointer[termHooks]

	closing   chan struct{} // closed by shut
	closeOnce sync.Once
	// forsaken tells that a term was not stored and raft believes it was: nothing is
	// stored any more, so that nobody is promised anything.
	forsaken atomic.Bool
}

// termHooks are the node's part in the storing of a term.
type termHooks struct {
	// hold returns why a new term is not to be stored yet; it is asked again.
	hold func() error
	// waits is called when a term begins to wait, raft with it.
	waits func()
}

func newTermStore(log *logStore) *termStore {
	s := &termStore{log: log, closing: make(chan struct{})}
	s.hooks.Store(&termHooks{hold: func() error { return nil }, waits: func() {}})
	return s
}

// SetUint64 implements raft.StableStore.
func (s *termStore) SetUint64(key []byte, value uint64) error {
	switch isTerm := string(key) == termKey; {
	case s.forsaken.Load() && isTerm:
		return nil // as the one before
	case s.forsaken.Load():
		return wal.ErrClosed
	case !isTerm:
		return s.log.SetUint64(key, value)
	}
	// raft stores the term again that it has read when it starts.
	if have, err := s.log.GetUint64(key); err == nil && have == value {
		return nil
	}
	again, err := s.tryTerm(key, value)
	if !again {
		return err
	}
	return s.wait(key, value, err)
}

// tryTerm returns whether to try again what failed. A disk that fails otherwise
// than by being full is nothing to wait for: raft ends the process.
func (s *termStore) tryTerm(key []byte, value uint64) (again bool, err error) {
	if err := s.hooks.Load().hold(); err != nil {
		return true, err
	}
	err = s.log.SetUint64(key, value)
	return isFull(err), err
}

// wait stores a term when there is space, or pretends to when the node closes.
func (s *termStore) wait(key []byte, value uint64, err error) error {
	s.log.files.logger.Error("the node's term cannot be stored: the node waits for space", "term", value, "error", err)
	s.hooks.Load().waits()
	again := true
	for pause := firstTermPause; again; pause = min(2*pause, mostTermPause) {
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-s.closing:
			timer.Stop()
			s.forsaken.Store(true)
			s.log.forsake()
			return nil
		}
		again, err = s.tryTerm(key, value)
	}
	if err == nil {
		s.log.files.logger.Warn("the node's term is stored: the node goes on", "term", value)
	}
	return err
}

// shut lets raft go on that waits, so that it can be ended.
func (s *termStore) shut() {
	s.closeOnce.Do(func() { close(s.closing) })
}

// Set implements raft.StableStore.
func (s *termStore) Set(key, value []byte) error {
	if s.forsaken.Load() {
		return wal.ErrClosed
	}
	return s.log.Set(key, value)
}

// Get implements raft.StableStore.
func (s *termStore) Get(key []byte) ([]byte, error) { return s.log.Get(key) }

// GetUint64 implements raft.StableStore.
func (s *termStore) GetUint64(key []byte) (uint64, error) { return s.log.GetUint64(key) }
