package raftkv

import (
	"bytes"
	"crypto/sha256"
	"io"
	"testing"
)

func FuzzDecodeCommand(f *testing.F) {
	w := newWorkload(1)
	d := newDriver(f)
	for range 40 {
		e := w.next()
		l := d.log(e)
		f.Add(l.Data)
		w.saw(e, d.fsm.Apply(l))
	}
	c := newCodec()
	f.Fuzz(func(t *testing.T, data []byte) {
		h, body, err := c.decode(data)
		if err != nil {
			return
		}
		again, err := c.encode(h, body)
		if err != nil {
			t.Fatalf("decoded, but cannot be encoded: %v", err)
		}
		h2, body2, err := c.decode(again)
		if err != nil || h2 != h {
			t.Fatalf("encoded anew it decodes to %v, %v; was %v", h2, err, h)
		}
		third, err := c.encode(h2, body2)
		if err != nil || !bytes.Equal(third, again) {
			t.Fatalf("encoding is not stable: %x, then %x (%v)", again, third, err)
		}
	})
}

func FuzzRestore(f *testing.F) {
	w := newWorkload(2)
	d := newDriver(f)
	for i := range 60 {
		if i%20 == 0 {
			whole := snapshotBytes(f, d.fsm)
			f.Add(whole[len(snapshotMagic)+2 : len(whole)-sha256.Size])
		}
		e := w.next()
		w.saw(e, d.fsm.Apply(d.log(e)))
	}
	// The records are fuzzed, not the frame: a wrong checksum would hide them.
	f.Fuzz(func(t *testing.T, records []byte) {
		data := append([]byte(snapshotMagic), 0, snapshotVersion)
		data = append(data, records...)
		sum := sha256.Sum256(data)
		data = append(data, sum[:]...)
		fsm := NewFSM()
		if fsm.Restore(io.NopCloser(bytes.NewReader(data))) == nil {
			snapshotBytes(t, fsm)
		}
	})
}

func FuzzParseCursors(f *testing.F) {
	f.Add("0000000000000001-00000000")
	f.Add(listCursor{token: 7}.encode(2))
	f.Fuzz(func(t *testing.T, text string) {
		if p, ok := parseEventID(text); ok && eventID(p) != text {
			t.Errorf("event id %q reads as %q", text, eventID(p))
		}
		if c, err := parseListCursor(text, 2); err == nil && c.encode(2) != text {
			t.Errorf("list cursor %q reads as %q", text, c.encode(2))
		}
	})
}
