package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"slices"
	"time"

	"github.com/hashicorp/go-hclog"
)

// levelTrace is below slog's debug; slog has no name for it.
const levelTrace = slog.LevelDebug - 4

var _ hclog.Logger = (*raftLogger)(nil)

// raftLogger hands the lines of raft and its parts to slog.
//
// raft reports its ordinary life as information, several lines per election and
// snapshot. An operator wants one line of each, which this package writes, so
// raft's own become debug lines.
type raftLogger struct {
	to      *slog.Logger
	name    string
	implied []any
}

func newRaftLogger(to *slog.Logger) *raftLogger {
	return &raftLogger{to: to.With("component", "raft")}
}

// slogLevel maps hclog's levels.
func slogLevel(level hclog.Level) slog.Level {
	switch level {
	case hclog.Trace:
		return levelTrace
	case hclog.Warn:
		return slog.LevelWarn
	case hclog.Error:
		return slog.LevelError
	default:
		return slog.LevelDebug
	}
}

// expected recognises what every start or stop of a node causes, elections and
// connections that the node itself closed, and what was said before.
func expected(msg string, args []any) bool {
	switch msg {
	case "heartbeat timeout reached, starting election",
		"Election timeout reached, restarting election":
		return true
	}
	for _, arg := range args {
		if err, ok := arg.(error); ok && (errors.Is(err, net.ErrClosed) || errors.Is(err, errAbstains)) {
			return true
		}
	}
	return false
}

func (l *raftLogger) emit(level hclog.Level, msg string, args []any) {
	to := slogLevel(level)
	if to >= slog.LevelWarn && expected(msg, args) {
		to = slog.LevelDebug
	}
	ctx := context.Background()
	// Asked first: raft passes values that are costly to format.
	if !l.to.Enabled(ctx, to) {
		return
	}
	if l.name != "" {
		msg = l.name + ": " + msg
	}
	l.to.LogAttrs(ctx, to, msg, append(attrs(l.implied), attrs(args)...)...)
}

// attrs turns alternating keys and values into attributes.
func attrs(args []any) []slog.Attr {
	out := make([]slog.Attr, 0, (len(args)+1)/2)
	for i := 0; i < len(args); i += 2 {
		if i+1 == len(args) {
			out = append(out, slog.Any(hclog.MissingKey, plain(args[i])))
			break
		}
		key, ok := args[i].(string)
		if !ok {
			key = fmt.Sprint(args[i])
		}
		out = append(out, slog.Any(key, plain(args[i+1])))
	}
	return out
}

// plain makes a value safe to hand to any slog handler. raft passes itself as a
// value: the JSON handler would walk its fields while raft changes them.
func plain(value any) any {
	switch v := value.(type) {
	case hclog.Format:
		if len(v) == 0 {
			return ""
		}
		format, ok := v[0].(string)
		if !ok {
			return fmt.Sprint(v...)
		}
		return fmt.Sprintf(format, v[1:]...)
	case error, time.Duration, time.Time:
		return v
	case fmt.Stringer:
		return v.String()
	default:
		return v
	}
}

func (l *raftLogger) Log(level hclog.Level, msg string, args ...any) { l.emit(level, msg, args) }
func (l *raftLogger) Trace(msg string, args ...any)                  { l.emit(hclog.Trace, msg, args) }
func (l *raftLogger) Debug(msg string, args ...any)                  { l.emit(hclog.Debug, msg, args) }
func (l *raftLogger) Info(msg string, args ...any)                   { l.emit(hclog.Info, msg, args) }
func (l *raftLogger) Warn(msg string, args ...any)                   { l.emit(hclog.Warn, msg, args) }
func (l *raftLogger) Error(msg string, args ...any)                  { l.emit(hclog.Error, msg, args) }

func (l *raftLogger) enabled(level hclog.Level) bool {
	return l.to.Enabled(context.Background(), slogLevel(level))
}

func (l *raftLogger) IsTrace() bool { return l.enabled(hclog.Trace) }
func (l *raftLogger) IsDebug() bool { return l.enabled(hclog.Debug) }
func (l *raftLogger) IsInfo() bool  { return l.enabled(hclog.Info) }
func (l *raftLogger) IsWarn() bool  { return l.enabled(hclog.Warn) }
func (l *raftLogger) IsError() bool { return l.enabled(hclog.Error) }

// GetLevel returns the lowest level that is written.
func (l *raftLogger) GetLevel() hclog.Level {
	for _, level := range []hclog.Level{hclog.Trace, hclog.Debug, hclog.Warn, hclog.Error} {
		if l.enabled(level) {
			return level
		}
	}
	return hclog.Off
}

// SetLevel does nothing: the level belongs to the *slog.Logger that was given.
func (l *raftLogger) SetLevel(hclog.Level) {}

func (l *raftLogger) ImpliedArgs() []any { return l.implied }
func (l *raftLogger) Name() string       { return l.name }

func (l *raftLogger) With(args ...any) hclog.Logger {
	return &raftLogger{to: l.to, name: l.name, implied: slices.Concat(l.implied, args)}
}

func (l *raftLogger) Named(name string) hclog.Logger {
	if l.name != "" {
		name = l.name + "." + name
	}
	return l.ResetNamed(name)
}

func (l *raftLogger) ResetNamed(name string) hclog.Logger {
	return &raftLogger{to: l.to, name: name, implied: l.implied}
}

func (l *raftLogger) StandardLogger(*hclog.StandardLoggerOptions) *log.Logger {
	return slog.NewLogLogger(l.to.Handler(), slog.LevelDebug)
}

func (l *raftLogger) StandardWriter(options *hclog.StandardLoggerOptions) io.Writer {
	return l.StandardLogger(options).Writer()
}
