package etcd

import (
	"time"

	"github.com/fxamacker/cbor/v2"
)

// ShiftRecord moves the times in a stored lease, and names the revision of its
// grant.
func ShiftRecord(value []byte, ahead time.Duration, rev int64) (string, error) {
	var r record
	if err := cbor.Unmarshal(value, &r); err != nil {
		return "", err
	}
	r.Acquired += ahead.Microseconds()
	r.Renewed += ahead.Microseconds()
	r.Expires += ahead.Microseconds()
	r.Rev = rev
	return encode(&r), nil
}

// Kill ends the store as the end of its process would: calls are cut, waiters
// vanish, and etcd is told nothing.
func (s *Store) Kill() { s.Abandon() }
