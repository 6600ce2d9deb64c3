package api

import (
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

const timeLayout = "2006-01-02T15:04:05.000Z"

// Time is an instant on the wire: RFC 3339 in UTC with milliseconds, cut off
// and not rounded; null when it is zero.
type Time struct{ time.Time }

// NewTime returns t for the wire.
func NewTime(t time.Time) Time { return Time{Time: t} }

// MarshalJSONTo writes the instant, or null.
func (t Time) MarshalJSONTo(enc *jsontext.Encoder) error {
	var buf [len(timeLayout) + 2]byte
	return enc.WriteValue(appendTime(buf[:0], t.Time))
}

// MarshalJSON is MarshalJSONTo for users of encoding/json.
func (t Time) MarshalJSON() ([]byte, error) { return appendTime(nil, t.Time), nil }

// UnmarshalJSONFrom reads an RFC 3339 instant, or null.
func (t *Time) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	var at *time.Time // null leaves it nil; time.Time alone would keep its value
	if err := json.UnmarshalDecode(dec, &at); err != nil {
		return err
	}
	t.set(at)
	return nil
}

// UnmarshalJSON is UnmarshalJSONFrom for users of encoding/json.
func (t *Time) UnmarshalJSON(b []byte) error {
	var at *time.Time
	if err := json.Unmarshal(b, &at); err != nil {
		return err
	}
	t.set(at)
	return nil
}

func (t *Time) set(at *time.Time) {
	*t = Time{}
	if at != nil {
		t.Time = at.UTC()
	}
}

// milliseconds returns d for a field that ends in _ms, rounded down.
func milliseconds(d time.Duration) int64 { return d.Milliseconds() }

// millisecondsUp is milliseconds for a promise, rounded up.
func millisecondsUp(d time.Duration) int64 {
	return (d + time.Millisecond - 1).Milliseconds()
}
