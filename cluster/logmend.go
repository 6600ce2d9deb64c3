package cluster

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"

	"github.com/hashicorp/raft-wal/segment"
	"github.com/hashicorp/raft-wal/types"
)

// mendBatch is how many entries are copied with one fsync.
const mendBatch = 256

// mendTail sees to it that the last segment is one that can be appended to, with
// no other entries than the log has, if that is known: it copies the segment if
// it is full, or has more.
//
// raft-wal marks a segment as full in the write that fills it and lists the next
// one afterwards. Killed between the two, or without space for the next one,
// raft-wal 0.4.1 opens the full one as the one to append to and then refuses
// every write. The same happens when a crash tore the write that filled it, and
// then the mark is not to be trusted: so its entries are copied, whichever it
// was.
//
// Nothing is deleted before it is known that everything that is listed is there.
func (f *logFiles) mendTail(have *extent) error {
	state, err := f.segments.Load(f.dir)
	if err != nil {
		return err
	}
	if err := f.segments.complete(); err != nil {
		return err
	}
	if len(state.Segments) == 0 {
		return f.segments.sweep()
	}
	tail := &state.Segments[len(state.Segments)-1]
	writer, err := f.segments.RecoverTail(*tail)
	if err != nil {
		return err
	}
	full, _, err := writer.Sealed()
	if err != nil {
		return err
	}
	last, upTo := lastEntries(*tail, writer, have)
	if last < upTo {
		return fmt.Errorf("entries %d to %d of segment %s are gone: restore the directory from a backup", last+1, upTo, segment.FileName(*tail))
	}
	if err := f.segments.sweep(); err != nil {
		return err
	}
	if !full && last == upTo {
		f.segments.hold(tail.ID, writer)
		return nil
	}
	copied, err := f.larger(*tail, state.NextSegmentID, full)
	if err != nil {
		return err
	}
	if err := f.segments.copy(copied, writer, upTo); err != nil {
		return err
	}
	old := *tail
	*tail = copied
	state.NextSegmentID++
	// From here on the copy is the log.
	if err := f.segments.CommitState(state); err != nil {
		return err
	}
	f.logger.Warn("nothing could be appended to the last segment of the log: copied it",
		"full", full, "entries", upTo+1-copied.BaseIndex, "left_out", last-upTo)
	return errors.Join(writer.Close(), f.segments.Delete(old.BaseIndex, old.ID))
}

// lastEntries returns the index of the last entry on disk, and of the last one
// that the log has or, where that is not known, has at least.
func lastEntries(tail types.SegmentInfo, writer types.SegmentWriter, have *extent) (onDisk, inLog uint64) {
	onDisk = writer.LastIndex()
	if onDisk == 0 {
		onDisk = tail.BaseIndex - 1
	}
	inLog = onDisk
	if have != nil {
		inLog = have.last
	}
	// An empty log has no last entry; and what was deleted at the front was there.
	return onDisk, max(inLog, tail.MinIndex-1)
}

// larger describes a copy of a segment that is not full when it has all the
// entries.
func (f *logFiles) larger(info types.SegmentInfo, id uint64, full bool) (types.SegmentInfo, error) {
	// The write that filled the segment may have gone beyond the limit, by its
	// whole size.
	file, err := os.Stat(filepath.Join(f.dir, segment.FileName(info)))
	if err != nil {
		return info, err
	}
	size := max(int64(info.SizeLimit), file.Size())
	// The marks of mendBatch are more than those of larger writes were.
	more := size / 64
	if full {
		more = size / 8
	}
	info.ID = id
	info.BaseIndex = max(info.BaseIndex, info.MinIndex)
	info.MinIndex = info.BaseIndex
	info.SizeLimit = uint32(min(size+more, math.MaxInt32)) // raft-wal makes no larger ones
	return info, nil
}

// copy makes the segment to, which nothing lists yet, with the entries of from
// up to upTo, and has it ready for whoever lists it.
func (s *segments) copy(to types.SegmentInfo, from types.SegmentWriter, upTo uint64) (err error) {
	copied, err := s.filer.Create(to)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, copied.Close(), s.filer.Delete(to.BaseIndex, to.ID))
		}
	}()
	for next := to.BaseIndex; next <= upTo; {
		var batch []types.LogEntry
		for ; next <= upTo && len(batch) < mendBatch; next++ {
			entry, err := from.GetLog(next)
			if err != nil {
				return fmt.Errorf("index %d: %w", next, err)
			}
			batch = append(batch, types.LogEntry{Index: next, Data: append([]byte(nil), entry.Bs...)})
			if err := entry.Close(); err != nil {
				return err
			}
		}
		if err := copied.Append(batch); err != nil {
			return err
		}
	}
	if marked, _, err := copied.Sealed(); err != nil || marked {
		return errors.Join(errors.New("the larger segment is full too"), err)
	}
	s.hold(to.ID, copied)
	return nil
}
