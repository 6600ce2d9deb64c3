package etcd

import (
	"bytes"
	"errors"
	"log/slog"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestReach_note has looks go well or not, and reads the log.
func TestReach_note(t *testing.T) {
	var out bytes.Buffer
	levelAndError := func(_ []string, a slog.Attr) slog.Attr {
		if slices.Contains([]string{slog.LevelKey, "error"}, a.Key) {
			return a
		}
		return slog.Attr{}
	}
	down := newFailure(errors.New("it is down"), false)
	for _, c := range []struct {
		name  string
		looks []*failure
		want  string
	}{
		{"down at the start", []*failure{down, down, down, nil, nil, down, down, nil}, "level=WARN error=\"it is down\"\nlevel=INFO\nlevel=WARN error=\"it is down\"\nlevel=INFO\n"},
		{"up at the start", []*failure{nil, nil, down, down}, "level=INFO\nlevel=WARN error=\"it is down\"\n"},
	} {
		out.Reset()
		r := reach{log: slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{ReplaceAttr: levelAndError}))}
		for _, fail := range c.looks {
			r.note(fail)
		}
		if diff := cmp.Diff(c.want, out.String()); diff != "" {
			t.Errorf("%s: the log differs (-want +got):\n%s", c.name, diff)
		}
	}
}
