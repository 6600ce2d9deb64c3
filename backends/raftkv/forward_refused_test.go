package raftkv_test

import (
	"bytes"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"leased/backends/raftkv"
	"leased/contract"
	"leased/test/proc"
)

// lines is a log of which lines can be counted.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) count(of string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text.String(), of)
}

func newLoggedPair(t *testing.T) (*pair, *lines) {
	t.Helper()
	l := new(lines)
	return newPair(t, func(o *raftkv.Options) { o.Logger = slog.New(slog.NewTextHandler(l, nil)) }), l
}

// refusing is a transport to a node that takes no calls such as these.
type refusing struct {
	http.RoundTripper

	refuses atomic.Bool
	asked   atomic.Int64
}

func (r *refusing) RoundTrip(req *http.Request) (*http.Response, error) {
	r.asked.Add(1)
	if !r.refuses.Load() {
		return r.RoundTripper.RoundTrip(req)
	}
	_ = req.Body.Close()
	return &http.Response{
		StatusCode: http.StatusBadRequest, Header: http.Header{}, Request: req, ContentLength: -1,
		Body: io.NopCloser(strings.NewReader("this release cannot read the call\n")),
	}, nil
}

// A leader of another release, which does not take a call, is asked once and not
// some times a second until the deadline, and the log has one line of it.
func TestForwarder_refused(t *testing.T) {
	p, log := newLoggedPair(t)
	r := &refusing{RoundTripper: p.transport}
	r.refuses.Store(true)
	p.peers.transport = r
	f := p.forwarder(t)
	const calls = 3
	for i := range calls {
		begin := time.Now()
		_, err := f.Acquire(t.Context(), ask("default", "r1", "key"))
		if contract.CodeOf(err) != contract.CodeUnavailable || !strings.Contains(err.Error(), "of the same release?") {
			t.Errorf("got error %v, want unavailable, with the reason", err)
		}
		if took := time.Since(begin); took > 3*time.Second {
			t.Errorf("call %d took %v, want about a second", i, took)
		}
	}
	if got := r.asked.Load(); got != calls {
		t.Errorf("the leader was asked %d times, want once a call: %d", got, calls)
	}
	if got := log.count("the leader refuses a call"); got != 1 {
		t.Errorf("%d lines say so, want 1", got)
	}

	// The next leader is asked as soon as there is one.
	answered := make(chan error, 1)
	before := r.asked.Load()
	go func() {
		_, err := f.Acquire(t.Context(), ask("default", "r2", "key"))
		answered <- err
	}()
	proc.Until(t, "the leader is asked again", proc.Patience, func() bool { return r.asked.Load() > before })
	r.refuses.Store(false)
	p.peers.elect("n3") // the transport leads to the one node that there is
	if err := <-answered; err != nil {
		t.Errorf("with another leader: got error %v", err)
	}
}

// What a node cannot read it refuses each time, and says so seldom.
func TestPeerHandler_unreadable(t *testing.T) {
	p, log := newLoggedPair(t)
	for range 5 {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://n1/calls/v1/acquire", strings.NewReader("later"))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Leased-Time-Left", "1000000")
		res, err := p.transport.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		if _ = res.Body.Close(); res.StatusCode != http.StatusBadRequest {
			t.Errorf("got status %d", res.StatusCode)
		}
	}
	if got := log.count("a peer's call cannot be read"); got != 1 {
		t.Errorf("%d lines say so, want 1", got)
	}
}
