package cluster

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

var (
	_ raft.SnapshotStore = (*snapshotStore)(nil)
	_ raft.SnapshotSink  = (*snapshotSink)(nil)
)

// snapshotStore is raft's file snapshot store, which also knows what the newest
// snapshot is and tells the FSM's wrapper which one it is given.
type snapshotStore struct {
	raft.SnapshotStore

	mu    sync.Mutex
	index uint64
	at    time.Time
	older uint64 // index of the one before the newest, 0 for none
	least uint64 // none below it is opened; 0 for any
}

// newSnapshotStore wraps files, whose snapshots are in the folder dir.
func newSnapshotStore(files *raft.FileSnapshotStore, dir string) (*snapshotStore, error) {
	s := &snapshotStore{SnapshotStore: files}
	metas, err := files.List()
	if err != nil {
		return nil, err
	}
	if len(metas) > 0 {
		info, err := os.Stat(filepath.Join(dir, metas[0].ID))
		if err != nil {
			return nil, err
		}
		s.index, s.at = metas[0].Index, info.ModTime()
	}
	if len(metas) > 1 {
		s.older = metas[1].Index
	}
	return s, nil
}

// newestNamed returns the index of the newest snapshot in dir, whether or not it can
// be read; 0 when there is none. raft passes one over of which it cannot read what
// it has.
func newestNamed(dir string) (uint64, error) {
	names, err := namesIn(dir)
	if err != nil {
		return 0, err
	}
	newest := uint64(0)
	for _, name := range names {
		var term, index, ms uint64
		if n, _ := fmt.Sscanf(name, "%d-%d-%d", &term, &index, &ms); n == 3 && !strings.HasSuffix(name, tempSuffix) {
			newest = max(newest, index)
		}
	}
	return newest, nil
}

// latest returns the index of the newest complete snapshot and when it was
// completed; zero when there is none.
func (s *snapshotStore) latest() (index uint64, at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.index, s.at
}

// olderIndex returns the index of the snapshot before the newest one, 0 for none.
func (s *snapshotStore) olderIndex() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.older
}

func (s *snapshotStore) completed(index uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if index > s.index {
		s.older = s.index
	}
	if index >= s.index {
		s.index, s.at = index, time.Now()
	}
}

// Create implements raft.SnapshotStore.
func (s *snapshotStore) Create(version raft.SnapshotVersion, index, term uint64, configuration raft.Configuration,
	configurationIndex uint64, trans raft.Transport,
) (raft.SnapshotSink, error) {
	sink, err := s.SnapshotStore.Create(version, index, term, configuration, configurationIndex, trans)
	if err != nil {
		return nil, err
	}
	return &snapshotSink{SnapshotSink: sink, store: s, index: index}, nil
}

// Open implements raft.SnapshotStore.
func (s *snapshotStore) Open(id string) (*raft.SnapshotMeta, io.ReadCloser, error) {
	meta, from, err := s.SnapshotStore.Open(id)
	if err != nil {
		return nil, nil, err
	}
	if least := s.leastIndex(); meta.Index < least {
		return nil, nil, errors.Join(fmt.Errorf("snapshot %s ends before entry %d, which the node had", id, least), from.Close())
	}
	return meta, &snapshotReader{from, meta.Index}, nil
}

// onlyFrom keeps raft from starting with a snapshot below index.
func (s *snapshotStore) onlyFrom(index uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.least = index
}

func (s *snapshotStore) leastIndex() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.least
}

type snapshotReader struct {
	io.ReadCloser

	index uint64
}

// snapshotSink answers every Close as the first.
//
// raft's sink answers the second with nil, also when the first failed. The FSM
// closes the sink and raft closes it again: if the FSM lost the first answer,
// raft would take the snapshot for complete and delete the entries it covers.
type snapshotSink struct {
	raft.SnapshotSink

	store *snapshotStore
	index uint64
	once  sync.Once
	err   error
}

// Close implements raft.SnapshotSink.
func (s *snapshotSink) Close() error {
	s.once.Do(func() {
		if s.err = s.SnapshotSink.Close(); s.err == nil {
			s.store.completed(s.index)
		}
	})
	return s.err
}

// Cancel implements raft.SnapshotSink. A sink that was closed stays as it is, as
// in raft's own; one that was canceled can be closed no more.
func (s *snapshotSink) Cancel() error {
	var err error
	s.once.Do(func() {
		s.err = io.ErrClosedPipe
		err = s.SnapshotSink.Cancel()
	})
	return err
}
