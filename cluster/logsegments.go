package cluster

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hashicorp/raft-wal/segment"
	"github.com/hashicorp/raft-wal/types"
)

var (
	_ types.MetaStore    = (*segments)(nil)
	_ types.SegmentFiler = (*segments)(nil)
)

// segments are a log's segments and their list, as raft-wal sees them. They take
// away the states between its steps:
//
//   - A segment's file is there, durably, before the list names it. raft-wal
//     lists it first, and so must take a missing file for one that it did not get
//     to make, also where it was lost with acknowledged entries in it; and when
//     making it fails, what is in memory and what is listed go apart.
//   - A change of the list that failed did not happen: before anything else is
//     done the list is stored again as it was. On its own it may or may not have
//     happened, until the next start says which.
//   - Only what the list, stored for certain, does not name is deleted.
//
// They are used by one goroutine at a time, except for GetStable, SetStable and
// Delete.
type segments struct {
	dir   string
	list  types.MetaStore
	vfs   *logVFS
	filer *segment.Filer

	loaded  bool
	known   types.PersistentState // the list as it was last read or stored
	settled bool                  // it is on disk like that, for certain
	orphan  string                // a segment that a failed change of the list may have named

	// ready is the writer of a segment that exists already when raft-wal asks for
	// it; readyID says of which one.
	ready   types.SegmentWriter
	readyID uint64
}

func newSegments(dir string, list types.MetaStore, vfs *logVFS) *segments {
	return &segments{dir: dir, list: list, vfs: vfs, filer: segment.NewFiler(dir, vfs)}
}

// Load returns the list, which is durable then: what a killed process changed
// may not have been.
func (s *segments) Load(string) (types.PersistentState, error) {
	if !s.loaded {
		state, err := s.list.Load(s.dir)
		if err != nil {
			return state, err
		}
		s.known, s.loaded = state, true
	}
	return copyState(s.known), s.settle()
}

// settle makes the list on disk the known one.
func (s *segments) settle() error {
	if !s.settled {
		if err := s.list.CommitState(s.known); err != nil {
			return err
		}
		s.settled = true
	}
	if s.orphan != "" {
		if err := s.vfs.Delete(s.dir, s.orphan); err != nil {
			return err
		}
		s.orphan = ""
	}
	return nil
}

// CommitState changes the list. If its last segment is new, the segment's file
// is made before.
func (s *segments) CommitState(state types.PersistentState) error {
	if err := s.settle(); err != nil {
		return err
	}
	if len(state.Segments) == 0 {
		return errors.New("a list without segments")
	}
	tail := state.Segments[len(state.Segments)-1]
	if !s.isReady(tail.ID) && !slices.ContainsFunc(s.known.Segments, func(i types.SegmentInfo) bool { return i.ID == tail.ID }) {
		writer, err := s.filer.Create(tail)
		if err != nil {
			return err
		}
		s.hold(tail.ID, writer)
	}
	s.settled = false
	if err := s.list.CommitState(state); err != nil {
		if s.isReady(tail.ID) {
			s.orphan = segment.FileName(tail)
			err = errors.Join(err, s.take().Close())
		}
		// At once, if possible: on a full disk the orphan has the space that is missing.
		_ = s.settle() // tried again before the next change
		return err
	}
	s.known, s.settled = copyState(state), true
	return nil
}

// Create hands over the segment that CommitState made.
func (s *segments) Create(info types.SegmentInfo) (types.SegmentWriter, error) {
	if !s.isReady(info.ID) {
		return nil, fmt.Errorf("segment %s was not made before it was listed", segment.FileName(info))
	}
	return s.take(), nil
}

// RecoverTail opens the last segment to append to it.
func (s *segments) RecoverTail(info types.SegmentInfo) (types.SegmentWriter, error) {
	if s.isReady(info.ID) {
		return s.take(), nil
	}
	writer, err := s.filer.RecoverTail(info)
	if errors.Is(err, os.ErrNotExist) {
		return nil, s.missing(info) // without the cause: raft-wal would make a new one
	}
	return writer, err
}

// Open opens a segment that is full.
func (s *segments) Open(info types.SegmentInfo) (types.SegmentReader, error) {
	reader, err := s.filer.Open(info)
	if err != nil {
		return nil, fmt.Errorf("segment %s: %w: restore the directory from a backup", segment.FileName(info), err)
	}
	return reader, nil
}

// List names the segments that raft-wal may delete when it opens the log: none.
// It would count a new one among them that has the name of a leftover.
func (s *segments) List() (map[uint64]uint64, error) { return nil, nil }

// Delete deletes a segment that is no longer listed.
func (s *segments) Delete(base, id uint64) error { return s.filer.Delete(base, id) }

// GetStable returns a value of raft's.
func (s *segments) GetStable(key []byte) ([]byte, error) { return s.list.GetStable(key) }

// SetStable stores a value of raft's.
func (s *segments) SetStable(key, value []byte) error { return s.list.SetStable(key, value) }

// Close does nothing: the list outlives a log that is opened again, and is
// closed by logFiles.close.
func (s *segments) Close() error { return nil }

func (s *segments) isReady(id uint64) bool { return s.ready != nil && s.readyID == id }

func (s *segments) hold(id uint64, writer types.SegmentWriter) { s.ready, s.readyID = writer, id }

// take returns the writer that is ready.
func (s *segments) take() types.SegmentWriter {
	writer := s.ready
	s.ready = nil
	return writer
}

func (s *segments) missing(info types.SegmentInfo) error {
	return fmt.Errorf("segment %s is listed and not there: restore the directory from a backup", segment.FileName(info))
}

// complete refuses a list and segments that do not belong together.
func (s *segments) complete() error {
	for _, info := range s.known.Segments {
		if _, err := os.Stat(filepath.Join(s.dir, segment.FileName(info))); errors.Is(err, os.ErrNotExist) {
			return s.missing(info)
		} else if err != nil {
			return err
		}
	}
	if len(s.known.Segments) > 0 {
		return nil
	}
	// A first start that was cut short leaves a segment that was never written to.
	return s.eachUnlisted(func(name string) error {
		blank, err := isBlank(filepath.Join(s.dir, name))
		if err == nil && !blank {
			err = fmt.Errorf("segment %s has entries and %s names no segment: restore the directory from a backup", name, logMetaFile)
		}
		return err
	})
}

// sweep deletes the segments that are not listed. An attempt to change the list,
// or to mend the log, was cut short before it ended.
func (s *segments) sweep() error {
	return s.eachUnlisted(func(name string) error { return s.vfs.Delete(s.dir, name) })
}

func (s *segments) eachUnlisted(do func(name string) error) error {
	names, err := s.vfs.ListDir(s.dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		listed := func(i types.SegmentInfo) bool { return segment.FileName(i) == name }
		if !strings.HasSuffix(name, segmentSuffix) || slices.ContainsFunc(s.known.Segments, listed) {
			continue
		}
		if err := do(name); err != nil {
			return err
		}
	}
	return nil
}

// isBlank reports whether nothing was written to the segment: its header would
// stand at its beginning.
func isBlank(path string) (bool, error) {
	file, err := os.Open(path)
	if err != nil {
		return false, err
	}
	defer func() { _ = file.Close() }() // it was only read
	var head [8]byte
	if _, err := file.ReadAt(head[:], 0); err != nil {
		return true, nil //nolint:nilerror // it is shorter than a header
	}
	return head == [8]byte{}, nil
}

func copyState(state types.PersistentState) types.PersistentState {
	state.Segments = slices.Clone(state.Segments)
	return state
}
