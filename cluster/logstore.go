package cluster

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"sync"
	"sync/atomic"

	"github.com/hashicorp/raft"
	wal "github.com/hashicorp/raft-wal"
)

// checksumSize is the size of an entry's checksum in bytes.
const checksumSize = 4

// errUnreadable says that the log has something under an index, but not an entry
// with that index.
var errUnreadable = errors.New("entry cannot be read")

var (
	_ raft.LogStore          = (*logStore)(nil)
	_ raft.StableStore       = (*logStore)(nil)
	_ raft.MonotonicLogStore = (*logStore)(nil)
)

// logStore is raft-wal's log with what it leaves out: an entry has a checksum of
// its own, and is believed only if its index is the one under which it was
// found; and a log whose last segment is full while the next one could not be
// made goes on, see mendTail.
type logStore struct {
	files *logFiles

	// changes is held by whoever changes the log, or opens it again. raft-wal waits
	// for a change that it makes in the background only as long as there is one
	// caller, and its Close lets one that waits hang.
	changes sync.Mutex
	broken  bool // a change failed: what raft-wal has in memory and what is on disk may differ
	// forsaken tells that nothing is to be changed any more, see termStore.
	forsaken bool
	failed   atomic.Pointer[trouble] // written with changes held
	// covered is the index up to which the FSM was given a snapshot, see closeGap.
	covered atomic.Uint64
	// keepAbove, if set, returns the index of the older snapshot, 0 for none. What
	// follows it stays when the log is made shorter at its begin.
	keepAbove func() uint64

	mu    sync.RWMutex // held for writing while log is replaced or closed; for that, changes is held too
	log   *wal.WAL
	ended bool // Close was called
}

// newLogStore opens the log in its folder and creates both if they are missing.
// It waits for ever while another process has the log open: the node's folder is
// locked before.
func newLogStore(files *logFiles) (*logStore, error) {
	log, err := files.open()
	if err != nil {
		return nil, err
	}
	return &logStore{files: files, log: log}, nil
}

func (s *logStore) with(f func(*wal.WAL) error) error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return f(s.log)
}

// FirstIndex returns the index of the oldest entry, 0 for none.
func (s *logStore) FirstIndex() (index uint64, err error) {
	err = s.with(func(w *wal.WAL) error { index, err = w.FirstIndex(); return err })
	return index, err
}

// LastIndex returns the index of the newest entry, 0 for none.
func (s *logStore) LastIndex() (index uint64, err error) {
	err = s.with(func(w *wal.WAL) error { index, err = w.LastIndex(); return err })
	return index, err
}

// StoreLog stores entry. Both return after fsync.
func (s *logStore) StoreLog(entry *raft.Log) error {
	return s.StoreLogs([]*raft.Log{entry})
}

// StoreLogs stores entries, all or none.
func (s *logStore) StoreLogs(entries []*raft.Log) error {
	sums := make([]*raft.Log, len(entries))
	for i, entry := range entries {
		sums[i] = sealed(entry)
	}
	return s.change(func(w *wal.WAL) error {
		if err := s.closeGap(w, entries); err != nil {
			return err
		}
		return w.StoreLogs(sums)
	})
}

// closeGap deletes the log when a snapshot covers more than it has, and what is to be
// stored follows the snapshot. raft itself deletes it when it was sent a snapshot,
// but it may be killed before it comes to that, or fail for a full disk; and then
// raft-wal, whose log has no holes, would refuse every entry from then on.
func (s *logStore) closeGap(w *wal.WAL, entries []*raft.Log) error {
	last, err := w.LastIndex()
	if err != nil || last == 0 || len(entries) == 0 || entries[0].Index <= last+1 || s.covered.Load()+1 < entries[0].Index {
		return err
	}
	first, err := w.FirstIndex()
	if err != nil {
		return err
	}
	return w.DeleteRange(first, last)
}

// DeleteRange deletes the entries from first to last, both included, at either
// end of the log. At its begin it deletes less when the older snapshot, should the
// newer one be damaged, is of use only with what follows it.
func (s *logStore) DeleteRange(first, last uint64) error {
	return s.change(func(w *wal.WAL) error {
		end, err := w.LastIndex()
		if err != nil {
			return err
		}
		if s.keepAbove != nil && last < end {
			if older := s.keepAbove(); older > 0 && older+1 >= first {
				last = min(last, older)
			}
		}
		if last < first {
			return nil
		}
		return w.DeleteRange(first, last)
	})
}

// change changes the log. After an error the log has the entries that it had
// before: the next change opens it again first, as raft-wal does not recover
// from every failure on its own. It may have more after a restart, as after a
// crash.
func (s *logStore) change(f func(*wal.WAL) error) error {
	s.changes.Lock()
	defer s.changes.Unlock()
	if s.forsaken {
		return wal.ErrClosed
	}
	err := s.changeOrMend(f)
	s.note(err)
	return err
}

func (s *logStore) changeOrMend(f func(*wal.WAL) error) error {
	if s.broken {
		if err := s.renew(); err != nil {
			return err
		}
	}
	err := f(s.log)
	if errors.Is(err, wal.ErrSealed) {
		// The last segment is full, and making the next one failed in the background,
		// for want of space most likely. raft-wal does not try again.
		if again := s.renew(); again != nil {
			return errors.Join(err, again)
		}
		err = f(s.log)
	}
	s.broken = err != nil
	return err
}

// forsake has every later change fail.
func (s *logStore) forsake() {
	s.changes.Lock()
	defer s.changes.Unlock()
	s.forsaken = true
}

// renew opens the log again. As long as that fails, what is there can be read,
// term and vote can be stored, and the next change tries again. It is called
// with changes held.
func (s *logStore) renew() error {
	s.broken = true
	if s.ended {
		return wal.ErrClosed
	}
	have, err := extentOf(s.log)
	if err != nil {
		return err
	}
	log, err := s.files.reopen(have)
	if err != nil {
		return err
	}
	s.mu.Lock()
	old := s.log
	s.log = log
	s.mu.Unlock()
	s.broken = false
	return old.Close()
}

// GetLog fills entry with the entry at index. It returns raft.ErrLogNotFound,
// which raft compares with ==, when there is none, and errUnreadable, with the
// folder and the index, when there is something else.
func (s *logStore) GetLog(index uint64, entry *raft.Log) error {
	err := s.with(func(w *wal.WAL) error { return read(w, index, entry) })
	if err == nil || errors.Is(err, raft.ErrLogNotFound) {
		return err
	}
	return fmt.Errorf("%s: index %d: %w: %w", s.files.dir, index, errUnreadable, err)
}

func read(w *wal.WAL, index uint64, entry *raft.Log) (err error) {
	// raft-wal's decoder slices by lengths that it reads.
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("decode: %v", p)
		}
	}()
	if err := w.GetLog(index, entry); err != nil {
		return err
	}
	if err := unseal(entry); err != nil {
		return err
	}
	if entry.Index != index {
		return fmt.Errorf("it is entry %d", entry.Index)
	}
	return nil
}

// IsMonotonic tells raft that the log has no holes: after it was sent a snapshot it
// deletes what is there. Where it could not, closeGap does.
func (s *logStore) IsMonotonic() bool { return true }

// Set stores a value of raft's, its term or its vote. It returns after fsync.
func (s *logStore) Set(key, value []byte) error {
	return s.with(func(w *wal.WAL) error { return w.Set(key, value) })
}

// Get returns the value of the key, nil for none.
func (s *logStore) Get(key []byte) (value []byte, err error) {
	err = s.with(func(w *wal.WAL) error { value, err = w.Get(key); return err })
	return value, err
}

// SetUint64 is Set for a number.
func (s *logStore) SetUint64(key []byte, value uint64) error {
	return s.with(func(w *wal.WAL) error { return w.SetUint64(key, value) })
}

// GetUint64 returns the number of the key, 0 for none.
func (s *logStore) GetUint64(key []byte) (value uint64, err error) {
	err = s.with(func(w *wal.WAL) error { value, err = w.GetUint64(key); return err })
	return value, err
}

// Close closes the log's files. Calls that come later fail.
func (s *logStore) Close() error {
	s.changes.Lock()
	defer s.changes.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return nil
	}
	s.ended = true
	return errors.Join(s.log.Close(), s.files.close())
}

// size returns how much of the disk the log has, in bytes, and 0 when that
// cannot be asked.
func (s *logStore) size() int64 { return s.files.size() }

// sealed returns a copy of entry with its checksum behind its extensions.
// raft-wal's own checksums are one for each write, and only that of the last
// write is compared, when the log is opened. A codec with checksums would be
// plainer, but raft-wal 0.4.1 names its own in each segment and then refuses to
// open a log with another.
func sealed(entry *raft.Log) *raft.Log {
	c := *entry
	c.Extensions = make([]byte, 0, len(entry.Extensions)+checksumSize)
	c.Extensions = append(c.Extensions, entry.Extensions...)
	c.Extensions = binary.LittleEndian.AppendUint32(c.Extensions, checksum(entry))
	return &c
}

// unseal takes the checksum off entry and returns an error if the entry is not
// as it was stored.
func unseal(entry *raft.Log) error {
	end := len(entry.Extensions) - checksumSize
	if end < 0 {
		return errors.New("it has no checksum")
	}
	sum := binary.LittleEndian.Uint32(entry.Extensions[end:])
	// nil and not empty, as raft stored it.
	entry.Extensions = append([]byte(nil), entry.Extensions[:end]...)
	if checksum(entry) != sum {
		return errors.New("its checksum does not match")
	}
	return nil
}

// checksum returns the CRC-32C of what raft and the FSM decide by; when a leader
// appended the entry is not part of that.
func checksum(entry *raft.Log) uint32 {
	var head [25]byte
	binary.LittleEndian.PutUint64(head[0:], entry.Index)
	binary.LittleEndian.PutUint64(head[8:], entry.Term)
	head[16] = byte(entry.Type)
	// The length keeps data and extensions apart.
	binary.LittleEndian.PutUint64(head[17:], uint64(len(entry.Data)))
	table := crc32.MakeTable(crc32.Castagnoli)
	sum := crc32.Update(0, table, head[:])
	sum = crc32.Update(sum, table, entry.Data)
	return crc32.Update(sum, table, entry.Extensions)
}
