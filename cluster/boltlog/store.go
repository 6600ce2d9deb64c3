package boltlog

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/hashicorp/raft"
	"go.etcd.io/bbolt"
)

const (
	logsBucket   = "logs"
	valuesBucket = "values"

	// fileMode: commands name owners and targets.
	fileMode = 0o600

	// mmapSize is address space, not memory or disk. While the file is smaller,
	// growing it never has to remap, which would wait for every reader.
	mmapSize = 128 << 20

	// deleteChunk bounds how long one transaction of DeleteRange keeps StoreLogs
	// waiting. Deleting the 8,192 entries below a snapshot in one transaction
	// stalled every request for tens of milliseconds.
	deleteChunk = 1024

	// keepBuffer bounds the encoding buffer that is kept between calls, in bytes.
	keepBuffer = 1 << 20
)

// errNotFound must have this text: raft compares it to learn that a value was
// never set.
var errNotFound = errors.New("not found")

var (
	_ raft.LogStore    = (*Store)(nil)
	_ raft.StableStore = (*Store)(nil)
)

// Store is an open file. Its methods may be called concurrently.
type Store struct {
	path string
	db   *bbolt.DB
	// buf holds the encoded entries of the running StoreLogs; bbolt refers to
	// them until the commit. bbolt's write lock guards it.
	buf    []byte
	failed atomic.Pointer[error]
}

// Open opens the file at path and creates it if it is missing. It waits at most
// lockWait for another process that has the file open, and then returns an error
// for which errors.Is(err, bbolt's ErrTimeout) holds. Every stored entry is
// checked: one that is damaged is an ErrDamaged, one of another release an
// ErrVersion, each with its index.
func Open(path string, lockWait time.Duration) (*Store, error) {
	return open(path, &bbolt.Options{Timeout: lockWait})
}

func open(path string, options *bbolt.Options) (*Store, error) {
	options.InitialMmapSize = mmapSize
	// Writing the list of free pages with each commit made every write slow after
	// a peak had left many of them; it is rebuilt at the next start instead.
	options.NoFreelistSync = true
	options.FreelistType = bbolt.FreelistMapType
	db, err := bbolt.Open(path, fileMode, options)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	s := &Store{path: path, db: db}
	if err := s.prepare(); err != nil {
		return nil, fmt.Errorf("open %s: %w", path, errors.Join(err, db.Close()))
	}
	return s, nil
}

func (s *Store) prepare() error {
	missing := false
	err := s.db.View(func(tx *bbolt.Tx) error {
		missing = logs(tx) == nil || values(tx) == nil
		return nil
	})
	if err == nil && missing {
		// Only then: a node must start on a full disk to be read from.
		err = s.update(func(tx *bbolt.Tx) error {
			for _, name := range []string{logsBucket, valuesBucket} {
				if _, err := tx.CreateBucketIfNotExists([]byte(name)); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err != nil {
		return err
	}
	// raft panics when it cannot read an entry at its start, and the panic does
	// not say what to do.
	return s.db.View(func(tx *bbolt.Tx) error {
		return logs(tx).ForEach(func(k, v []byte) error {
			if len(k) != keySize {
				return fmt.Errorf("key %x: %w", k, ErrDamaged)
			}
			return checkEntry(binary.BigEndian.Uint64(k), v)
		})
	})
}

// Close closes the file after the transactions that are running.
func (s *Store) Close() error {
	return s.db.Close()
}

// Failure tells why the store writes no more, nil while it does. Only opening
// the file anew clears it.
func (s *Store) Failure() error {
	if p := s.failed.Load(); p != nil {
		return *p
	}
	return nil
}

// Size returns the size of the file and how much of it is free for reuse, both
// in bytes.
func (s *Store) Size() (file, free int64, err error) {
	info, err := os.Stat(s.path)
	if err != nil {
		return 0, 0, err
	}
	return info.Size(), int64(s.db.Stats().FreeAlloc), nil
}

func logs(tx *bbolt.Tx) *bbolt.Bucket   { return tx.Bucket([]byte(logsBucket)) }
func values(tx *bbolt.Tx) *bbolt.Bucket { return tx.Bucket([]byte(valuesBucket)) }

// update runs change in a transaction that is on disk when update returns nil.
func (s *Store) update(change func(*bbolt.Tx) error) error {
	tx, err := s.db.Begin(true)
	if err != nil {
		return err
	}
	// After a commit there is nothing to roll back, and it says so.
	defer func() { _ = tx.Rollback() }()
	// Asked under the write lock, so that nobody commits after the failure.
	if err := s.Failure(); err != nil {
		return err
	}
	if err := change(tx); err != nil {
		return err
	}
	if err := tx.Commit(); err != nil {
		return s.commitFailed(err)
	}
	return nil
}

func (s *Store) commitFailed(err error) error {
	// A write that finds no space is refused before anything was synced: once
	// there is space the store can go on. It comes as a PathError from the os
	// package; an fsync that finds none comes bare from bbolt, and is final.
	var refused *fs.PathError
	if errors.As(err, &refused) && (errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)) {
		return fmt.Errorf("write: %w", err)
	}
	err = fmt.Errorf("write %s: %w; nothing more is written until the next start", s.path, err)
	s.failed.CompareAndSwap(nil, &err)
	return err
}

// FirstIndex returns the index of the oldest entry, 0 when there is none.
func (s *Store) FirstIndex() (uint64, error) {
	return s.end((*bbolt.Cursor).First)
}

// LastIndex returns the index of the newest entry, 0 when there is none.
func (s *Store) LastIndex() (uint64, error) {
	return s.end((*bbolt.Cursor).Last)
}

func (s *Store) end(of func(*bbolt.Cursor) (key, value []byte)) (index uint64, err error) {
	err = s.db.View(func(tx *bbolt.Tx) error {
		if k, _ := of(logs(tx).Cursor()); k != nil {
			index = binary.BigEndian.Uint64(k)
		}
		return nil
	})
	return index, err
}

// GetLog fills log with the entry at index. It returns raft.ErrLogNotFound when
// there is none, ErrDamaged or ErrVersion when it cannot be used.
func (s *Store) GetLog(index uint64, log *raft.Log) error {
	return s.db.View(func(tx *bbolt.Tx) error {
		key := entryKey(index)
		value := logs(tx).Get(key[:])
		if value == nil {
			return raft.ErrLogNotFound
		}
		return decodeEntry(index, value, log)
	})
}

// StoreLog stores one entry, see StoreLogs.
func (s *Store) StoreLog(log *raft.Log) error {
	return s.StoreLogs([]*raft.Log{log})
}

// StoreLogs stores entries, all or none. An entry replaces one with the same
// index.
func (s *Store) StoreLogs(entries []*raft.Log) error {
	return s.update(func(tx *bbolt.Tx) error {
		bucket := logs(tx)
		// Indices rise, so no later entry will ever need room in a full page.
		bucket.FillPercent = 1
		size := 0
		for _, log := range entries {
			size += keySize + entrySize(log)
		}
		buf := s.buf[:0]
		if cap(buf) < size {
			buf = make([]byte, 0, size)
		}
		for _, log := range entries {
			start := len(buf)
			var err error
			buf = binary.BigEndian.AppendUint64(buf, log.Index)
			if buf, err = appendEntry(buf, log); err != nil {
				return err
			}
			if err := bucket.Put(buf[start:start+keySize], buf[start+keySize:]); err != nil {
				return err
			}
		}
		if cap(buf) <= keepBuffer {
			s.buf = buf
		}
		return nil
	})
}

// DeleteRange deletes the entries from first to last, both included.
//
// raft calls it to drop what a snapshot covers, from the oldest entry on, and to
// drop entries of a deposed leader at the other end. The former may happen in
// several transactions; a crash between them leaves the log shorter. The latter
// may not: between two of them the log would have a hole.
func (s *Store) DeleteRange(first, last uint64) error {
	oldest, err := s.FirstIndex()
	if err != nil {
		return err
	}
	limit := deleteChunk
	if first > oldest {
		limit = math.MaxInt
	}
	for {
		more, err := s.deleteSome(first, last, limit)
		if err != nil || !more {
			return err
		}
	}
}

// deleteSome deletes at most limit entries of the range in one transaction and
// tells whether there may be more.
func (s *Store) deleteSome(first, last uint64, limit int) (more bool, err error) {
	err = s.update(func(tx *bbolt.Tx) error {
		// Collected first: a cursor that deletes may pass over the next key, and
		// looking for the first key again and again walks over the pages that were
		// emptied, which took seven times as long.
		var doomed []uint64
		from := entryKey(first)
		cursor := logs(tx).Cursor()
		for k, _ := cursor.Seek(from[:]); k != nil && len(doomed) < limit; k, _ = cursor.Next() {
			index := binary.BigEndian.Uint64(k)
			if index > last {
				break
			}
			doomed = append(doomed, index)
		}
		for _, index := range doomed {
			key := entryKey(index)
			cursor.Seek(key[:])
			if err := cursor.Delete(); err != nil {
				return err
			}
		}
		more = len(doomed) == limit
		return nil
	})
	return more, err
}

// Set stores value under key.
func (s *Store) Set(key, value []byte) error {
	return s.update(func(tx *bbolt.Tx) error { return values(tx).Put(key, value) })
}

// Get returns the value under key, or an error with the text "not found".
func (s *Store) Get(key []byte) (value []byte, err error) {
	err = s.db.View(func(tx *bbolt.Tx) error {
		stored := values(tx).Get(key)
		if stored == nil {
			return errNotFound
		}
		value = append([]byte{}, stored...)
		return nil
	})
	return value, err
}

// SetUint64 stores value under key.
func (s *Store) SetUint64(key []byte, value uint64) error {
	return s.Set(key, binary.BigEndian.AppendUint64(nil, value))
}

// GetUint64 returns the value under key, or an error with the text "not found".
func (s *Store) GetUint64(key []byte) (uint64, error) {
	value, err := s.Get(key)
	if err != nil {
		return 0, err
	}
	if len(value) != 8 {
		return 0, fmt.Errorf("value %s has %d bytes, want 8", key, len(value))
	}
	return binary.BigEndian.Uint64(value), nil
}
