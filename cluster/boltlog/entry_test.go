package boltlog

import (
	"bytes"
	"errors"
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/raft"
)

func sampleLogs() map[string]*raft.Log {
	at := time.Unix(1700000000, 123456789)
	return map[string]*raft.Log{
		"a command":          {Index: 7, Term: 3, Type: raft.LogCommand, Data: []byte("acquire"), AppendedAt: at},
		"without data":       {Index: 8, Term: 3, Type: raft.LogNoop, AppendedAt: at},
		"with extensions":    {Index: 9, Term: 4, Type: raft.LogCommand, Data: []byte("d"), Extensions: []byte("ext"), AppendedAt: at},
		"extensions alone":   {Index: 10, Term: 4, Type: raft.LogBarrier, Extensions: []byte("ext")},
		"no time":            {Index: 1, Term: 1, Type: raft.LogConfiguration, Data: []byte{0}},
		"the largest values": {Index: math.MaxUint64, Term: math.MaxUint64, Type: math.MaxUint8, Data: bytes.Repeat([]byte{0xff}, 100_000), AppendedAt: at},
	}
}

func TestEntry_roundTrip(t *testing.T) {
	for name, want := range sampleLogs() {
		t.Run(name, func(t *testing.T) {
			value, err := appendEntry([]byte("before"), want)
			if err != nil {
				t.Fatal(err)
			}
			value = value[len("before"):]
			if got, want := len(value), entrySize(want); got != want {
				t.Errorf("encoded size = %d, entrySize says %d", got, want)
			}
			var got raft.Log
			if err := decodeEntry(want.Index, value, &got); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(*want, got); diff != "" {
				t.Errorf("decoded entry (-want +got):\n%s", diff)
			}
		})
	}
}

// TestEntry_damage flips each bit of an entry, cuts it at each length and looks
// it up under another index.
func TestEntry_damage(t *testing.T) {
	log := sampleLogs()["with extensions"]
	whole, err := appendEntry(nil, log)
	if err != nil {
		t.Fatal(err)
	}
	wantDamaged := func(what string, index uint64, value []byte) {
		t.Helper()
		var got raft.Log
		if err := decodeEntry(index, value, &got); !errors.Is(err, ErrDamaged) {
			t.Errorf("decodeEntry of %s = %v, want %v", what, err, ErrDamaged)
		}
		if diff := cmp.Diff(raft.Log{}, got); diff != "" {
			t.Errorf("decodeEntry of %s filled the log:\n%s", what, diff)
		}
	}
	for i := range len(whole) * 8 {
		flipped := bytes.Clone(whole)
		flipped[i/8] ^= 1 << (i % 8)
		wantDamaged("an entry with a flipped bit", log.Index, flipped)
	}
	for n := range whole {
		wantDamaged("a cut entry", log.Index, whole[:n])
	}
	wantDamaged("another index's entry", log.Index+1, whole)
}

// TestEntry_version: a version byte with a right checksum is another release's.
func TestEntry_version(t *testing.T) {
	value, err := appendEntry(nil, &raft.Log{Index: 5, Data: []byte("x")})
	if err != nil {
		t.Fatal(err)
	}
	value[0] = entryVersion + 1
	value = sealed(5, value[:len(value)-checksumSize])
	if err := decodeEntry(5, value, new(raft.Log)); !errors.Is(err, ErrVersion) {
		t.Errorf("decodeEntry of version %d = %v, want %v", value[0], err, ErrVersion)
	}
}

// TestEntry_extensionsBeyondValue: a length with a right checksum is still not
// believed.
func TestEntry_extensionsBeyondValue(t *testing.T) {
	value, err := appendEntry(nil, &raft.Log{Index: 5, Data: []byte("x")})
	if err != nil {
		t.Fatal(err)
	}
	value[headerSize-1] = 2
	value = sealed(5, value[:len(value)-checksumSize])
	if err := decodeEntry(5, value, new(raft.Log)); !errors.Is(err, ErrDamaged) {
		t.Errorf("decodeEntry with extensions longer than the value = %v, want %v", err, ErrDamaged)
	}
}

func FuzzDecodeEntry(f *testing.F) {
	for _, log := range sampleLogs() {
		if len(log.Data) > 1000 {
			continue
		}
		value, err := appendEntry(nil, log)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(log.Index, value, false)
		f.Add(log.Index, value[:len(value)-checksumSize], true)
	}
	f.Fuzz(func(t *testing.T, index uint64, value []byte, seal bool) {
		if seal { // random bytes never have the right checksum
			value = sealed(index, value)
		}
		var log raft.Log
		err := decodeEntry(index, value, &log)
		if err != nil {
			if !errors.Is(err, ErrDamaged) && !errors.Is(err, ErrVersion) {
				t.Errorf("decodeEntry = %v, want %v or %v", err, ErrDamaged, ErrVersion)
			}
			return
		}
		again, err := appendEntry(nil, &log)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(again, value) {
			t.Errorf("decoded and encoded again:\ngot  %x\nwant %x", again, value)
		}
	})
}

func sealed(index uint64, body []byte) []byte {
	sum := checksum(index, body)
	return append(bytes.Clone(body), byte(sum>>24), byte(sum>>16), byte(sum>>8), byte(sum))
}
