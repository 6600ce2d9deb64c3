package boltlog

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"time"

	"github.com/hashicorp/raft"
)

// The value of an entry, integers big-endian:
//
//	version 1 | type 1 | term 8 | appended at, ns since 1970, 0 unknown 8 |
//	length of extensions 4 | extensions | data | CRC-32C 4
//
// The checksum is combined with the index, which is the key, so that a value
// found under another key is damage too.
const (
	keySize      = 8
	entryVersion = 1
	headerSize   = 1 + 1 + 8 + 8 + 4
	checksumSize = 4
)

// ErrDamaged says that a stored entry is not what was written.
var ErrDamaged = errors.New("log entry is damaged")

// ErrVersion says that a stored entry was written by another version of this
// program.
var ErrVersion = errors.New("log entry has an unknown version")

func entryKey(index uint64) [keySize]byte {
	var key [keySize]byte
	binary.BigEndian.PutUint64(key[:], index)
	return key
}

func entrySize(log *raft.Log) int {
	return headerSize + len(log.Extensions) + len(log.Data) + checksumSize
}

// appendEntry appends log's value to buf.
func appendEntry(buf []byte, log *raft.Log) ([]byte, error) {
	if len(log.Extensions) > math.MaxUint32 {
		return buf, fmt.Errorf("log entry %d: extensions of %d bytes", log.Index, len(log.Extensions))
	}
	var at int64
	if !log.AppendedAt.IsZero() {
		at = log.AppendedAt.UnixNano()
	}
	start := len(buf)
	buf = append(buf, entryVersion, byte(log.Type))
	buf = binary.BigEndian.AppendUint64(buf, log.Term)
	buf = binary.BigEndian.AppendUint64(buf, uint64(at))
	buf = binary.BigEndian.AppendUint32(buf, uint32(len(log.Extensions)))
	buf = append(buf, log.Extensions...)
	buf = append(buf, log.Data...)
	return binary.BigEndian.AppendUint32(buf, checksum(log.Index, buf[start:])), nil
}

func checksum(index uint64, value []byte) uint32 {
	return crc32.Checksum(value, crc32.MakeTable(crc32.Castagnoli)) ^ uint32(index) ^ uint32(index>>32)
}

// checkEntry tells whether value is a whole entry of this index.
func checkEntry(index uint64, value []byte) error {
	if len(value) < headerSize+checksumSize {
		return fmt.Errorf("entry %d: %d bytes: %w", index, len(value), ErrDamaged)
	}
	end := len(value) - checksumSize
	if checksum(index, value[:end]) != binary.BigEndian.Uint32(value[end:]) {
		return fmt.Errorf("entry %d: checksum: %w", index, ErrDamaged)
	}
	// Judged after the checksum: a flipped bit in the version byte is damage, not
	// a reason to install another release.
	if value[0] != entryVersion {
		return fmt.Errorf("entry %d: version %d: %w", index, value[0], ErrVersion)
	}
	if n := int(binary.BigEndian.Uint32(value[headerSize-4:])); n > end-headerSize {
		return fmt.Errorf("entry %d: extensions of %d bytes: %w", index, n, ErrDamaged)
	}
	return nil
}

// decodeEntry fills log from the value stored under index. It copies: value is
// memory of the file, valid only while its transaction is open.
func decodeEntry(index uint64, value []byte, log *raft.Log) error {
	if err := checkEntry(index, value); err != nil {
		return err
	}
	*log = raft.Log{
		Index: index,
		Type:  raft.LogType(value[1]),
		Term:  binary.BigEndian.Uint64(value[2:]),
	}
	if at := int64(binary.BigEndian.Uint64(value[10:])); at != 0 {
		log.AppendedAt = time.Unix(0, at)
	}
	rest := append([]byte(nil), value[headerSize:len(value)-checksumSize]...)
	if n := binary.BigEndian.Uint32(value[headerSize-4:]); n > 0 {
		log.Extensions, rest = rest[:n:n], rest[n:]
	}
	if len(rest) > 0 {
		log.Data = rest
	}
	return nil
}
