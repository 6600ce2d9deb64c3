package cluster

import (
	"bytes"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

// logged returns the lines that write produces, without their times.
func logged(t *testing.T, level slog.Level, write func(hclog.Logger)) []map[string]any {
	t.Helper()
	var out bytes.Buffer
	write(newRaftLogger(slog.New(slog.NewJSONHandler(&out, &slog.HandlerOptions{Level: level}))))
	var lines []map[string]any
	for decoder := json.NewDecoder(&out); decoder.More(); {
		var line map[string]any
		if err := decoder.Decode(&line); err != nil {
			t.Fatal(err)
		}
		delete(line, slog.TimeKey)
		lines = append(lines, line)
	}
	return lines
}

func TestRaftLogger(t *testing.T) {
	type object = map[string]any
	tests := map[string]struct {
		level slog.Level
		write func(hclog.Logger)
		want  []object
	}{
		"levels": {levelTrace, func(l hclog.Logger) {
			l.Trace("t")
			l.Debug("d")
			l.Info("i")
			l.Warn("w")
			l.Error("e")
			l.Log(hclog.Error, "le")
		}, []object{
			{"level": "DEBUG-4", "msg": "t"}, {"level": "DEBUG", "msg": "d"}, {"level": "DEBUG", "msg": "i"},
			{"level": "WARN", "msg": "w"}, {"level": "ERROR", "msg": "e"}, {"level": "ERROR", "msg": "le"},
		}},
		"raft's ordinary life is no information": {slog.LevelInfo, func(l hclog.Logger) {
			l.Info("entering follower state")
			l.Warn("heartbeat timeout reached, starting election")
			l.Error("failed to decode incoming command", "error", &net.OpError{Op: "read", Err: net.ErrClosed})
			l.Warn("failed to contact")
		}, []object{{"level": "WARN", "msg": "failed to contact"}}},
		"keys and values": {slog.LevelInfo, func(l hclog.Logger) {
			l.Error("m", "n", 7, "text", "x", "error", errors.New("broken"), "took", 2*time.Second,
				"servers", hclog.Fmt("%d of %d", 1, 3), "state", raft.Leader, 5, "odd key", "no value")
		}, []object{{
			"level": "ERROR", "msg": "m", "n": 7.0, "text": "x", "error": "broken", "took": 2e9,
			"servers": "1 of 3", "state": "Leader", "5": "odd key", hclog.MissingKey: "no value",
		}}},
		// The JSON handler would walk raft's fields while raft changes them.
		"raft itself": {slog.LevelInfo, func(l hclog.Logger) { l.Error("m", "follower", new(raft.Raft)) },
			[]object{{"level": "ERROR", "msg": "m", "follower": "Node at  [Follower]"}}},
		"names and implied values": {slog.LevelInfo, func(l hclog.Logger) {
			l.With("id", "a").Named("snapshot").Named("file").With("size", 3).Error("m", "more", true)
			l.Error("plain")
		}, []object{
			{"level": "ERROR", "msg": "snapshot.file: m", "id": "a", "size": 3.0, "more": true},
			{"level": "ERROR", "msg": "plain"},
		}},
		"a standard logger": {slog.LevelDebug, func(l hclog.Logger) { l.StandardLogger(nil).Print("printed") },
			[]object{{"level": "DEBUG", "msg": "printed"}}},
		"a format that is none": {slog.LevelInfo, func(l hclog.Logger) { l.Error("m", "a", hclog.Format{}, "b", hclog.Format{7}) },
			[]object{{"level": "ERROR", "msg": "m", "a": "", "b": "7"}}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			for _, line := range test.want {
				line["component"] = "raft"
			}
			if diff := cmp.Diff(test.want, logged(t, test.level, test.write)); diff != "" {
				t.Errorf("lines (-want +got):\n%s", diff)
			}
		})
	}
}

func TestRaftLogger_levels(t *testing.T) {
	for level, want := range map[slog.Level]hclog.Level{
		levelTrace:          hclog.Trace,
		slog.LevelDebug:     hclog.Debug,
		slog.LevelInfo:      hclog.Warn, // raft's information is a debug line
		slog.LevelWarn:      hclog.Warn,
		slog.LevelError:     hclog.Error,
		slog.LevelError + 1: hclog.Off,
	} {
		l := newRaftLogger(slog.New(slog.NewTextHandler(new(bytes.Buffer), &slog.HandlerOptions{Level: level})))
		l.SetLevel(hclog.Trace) // changes nothing
		if got := l.GetLevel(); got != want {
			t.Errorf("GetLevel with slog at %v = %v, want %v", level, got, want)
		}
		got := []bool{l.IsTrace(), l.IsDebug(), l.IsInfo(), l.IsWarn(), l.IsError()}
		wantIs := []bool{want == hclog.Trace, want <= hclog.Debug, want <= hclog.Debug, want <= hclog.Warn, want <= hclog.Error}
		if diff := cmp.Diff(wantIs, got); diff != "" {
			t.Errorf("IsTrace … IsError with slog at %v (-want +got):\n%s", level, diff)
		}
	}
}

// TestRaftLogger_costsNothing: raft formats its configuration for a line that is
// mostly not written.
func TestRaftLogger_costsNothing(t *testing.T) {
	got := logged(t, slog.LevelWarn, func(l hclog.Logger) {
		l.Debug("m", "value", panics{})
	})
	if len(got) != 0 {
		t.Errorf("lines = %v, want none", got)
	}
}

type panics struct{}

func (panics) String() string { panic("formatted though nobody reads it") }
