package valkey_test

import (
	"context"
	"log/slog"
	"net"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"leased/backends/valkey"
	"leased/test/proc"
)

// heard is a log as its reader sees it: levels and messages.
type heard struct {
	mu    sync.Mutex
	lines []string
}

func (h *heard) Enabled(context.Context, slog.Level) bool { return true }
func (h *heard) WithAttrs([]slog.Attr) slog.Handler       { return h }
func (h *heard) WithGroup(string) slog.Handler            { return h }

func (h *heard) Handle(_ context.Context, r slog.Record) error {
	if r.Level >= slog.LevelInfo {
		h.mu.Lock()
		defer h.mu.Unlock()
		line := r.Level.String() + " " + r.Message
		r.Attrs(func(a slog.Attr) bool {
			line += " " + a.String()
			return true
		})
		h.lines = append(h.lines, line)
	}
	return nil
}

func (h *heard) all() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.lines)
}

// hanger hangs up on whoever dials an address.
type hanger struct {
	count atomic.Int64
	stop  func()
}

func hangUp(t *testing.T, address string) *hanger {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	h := &hanger{}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_ = c.(*net.TCPConn).SetLinger(0)
			_ = c.Close()
			h.count.Add(1)
		}
	}()
	h.stop = func() { _ = l.Close(); <-ended }
	t.Cleanup(h.stop)
	return h
}

// TestStore_saysWhetherServed starts a store while the server is down: whoever
// reads the log is told so, when it is there, and likewise of an outage later,
// and nothing twice.
func TestStore_saysWhetherServed(t *testing.T) {
	t.Parallel()
	server := proc.StartValkey(t)
	server.Kill()
	hangs := hangUp(t, server.Addr)
	log := &heard{}
	open(t, valkey.Config{Addresses: []string{server.Addr}, Logger: slog.New(log)})
	const (
		down  = "WARN valkey: the server cannot serve"
		up    = "INFO valkey: connected"
		other = "WARN valkey: a primary was restarted or is another now"
		again = "INFO valkey: the server serves again"
	)
	ports := regexp.MustCompile(`127\.0\.0\.1:\d+(->)?`)
	told := func(want ...string) {
		t.Helper()
		var lines, got []string
		proc.Until(t, "the log says "+strings.Join(want, ", then "), 20*time.Second, func() bool {
			lines, got = log.all(), nil
			for _, line := range lines {
				message, _, _ := strings.Cut(line, " err=")
				message, _, _ = strings.Cut(message, " run_id=")
				got = append(got, message)
			}
			got = slices.Compact(got) // a reason may be followed by another one
			return len(got) >= len(want)
		})
		// Of one outage there may be several reasons, depending on when a connection is
		// cut, but none is told twice: it is another one only where the ports are not
		// all that is different.
		reasons := make([]string, len(lines))
		for i, line := range lines {
			reasons[i] = ports.ReplaceAllString(line, "")
			if !strings.HasPrefix(line, down) {
				continue
			}
			for j := i - 1; j >= 0 && strings.HasPrefix(lines[j], down); j-- {
				if reasons[j] == reasons[i] {
					t.Fatalf("the log has %q: a reason twice", lines)
				}
			}
		}
		if !slices.Equal(got, want) {
			t.Fatalf("the log has %q, want %q", lines, want)
		}
	}
	told(down)
	proc.Until(t, "several attempts to connect", 20*time.Second, func() bool { return hangs.count.Load() >= 6 })
	hangs.stop()
	server.Start(t)
	told(down, up)
	server.Kill()
	told(down, up, down)
	server.Start(t)
	told(down, up, down, other, again)
}
