package raftkv_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"leased/backends/raftkv"
	"leased/contract"
)

// interrupted calls a function when half of it was read.
type interrupted struct {
	first, second io.Reader
	half          func()
}

func interruptedAt(backup []byte, half func()) *interrupted {
	n := len(backup) / 2
	return &interrupted{first: bytes.NewReader(backup[:n]), second: bytes.NewReader(backup[n:]), half: half}
}

func (s *interrupted) Read(b []byte) (int, error) {
	if s.first != nil {
		n, err := s.first.Read(b)
		if !errors.Is(err, io.EOF) {
			return n, err
		}
		s.first = nil
		s.half()
	}
	return s.second.Read(b)
}

// TestForwarder_Restore_longUpload: what a backup remembers is remembered as long as
// it had left, however long the backup was on its way.
func TestForwarder_Restore_longUpload(t *testing.T) {
	for _, upload := range []time.Duration{time.Second, 9 * time.Minute, 11 * time.Minute} {
		t.Run(upload.String(), func(t *testing.T) {
			p := newPair(t)
			f := p.engines[0].Forwarder() // which reads it: another one may be ahead of that
			t.Cleanup(func() { _ = f.Close(context.WithoutCancel(t.Context())) })
			r := ask("default", "r1", "held")
			r.Retention.Idempotency, r.TTL = 10*time.Minute, 5*time.Minute
			acquired(t, f, r)
			_, backup := backUp(t, f)
			if _, err := f.Restore(t.Context(), interruptedAt(backup, func() { p.offset.Add(int64(upload)) })); err != nil {
				t.Fatal(err)
			}
			p.offset.Add(int64(9 * time.Minute))
			// What is due is forgotten with the next sweep; one that is forced comes at once.
			short := ask("default", "r2", "other")
			short.TTL = time.Second
			l := acquired(t, f, short)
			p.offset.Add(int64(2 * time.Second))
			checkState(t, f, l.ID, contract.StateExpired)
			res, err := f.Acquire(t.Context(), r)
			if err != nil || res.Outcome != contract.OutcomeEndedExpired {
				t.Errorf("9 min after the restore the request id of a lease that it ended: got %v, error %v, want ended_expired", res.Outcome, err)
			}
		})
	}
}

// stalled is the rest of a body that does not come.
type stalled struct{}

func (stalled) Read([]byte) (int, error) { return 0, os.ErrDeadlineExceeded }

// TestForwarder_Restore_stalled: a backup of which the rest does not come, even if
// that is nothing but its end, was not restored, and that is said.
func TestForwarder_Restore_stalled(t *testing.T) {
	p := newPair(t)
	held := acquired(t, p.forwarder(t), ask("default", "r1", "held"))
	_, backup := backUp(t, p.forwarder(t))
	for i := range p.engines {
		f := p.engines[i].Forwarder()
		for _, n := range []int{0, 20, len(backup) / 2, len(backup)} {
			var err error
			for again := true; again; again = contract.CodeOf(err) == contract.CodeUnavailable { // the leader is still at the one before
				_, err = f.Restore(t.Context(), io.MultiReader(bytes.NewReader(backup[:n]), stalled{}))
			}
			if contract.CodeOf(err) != contract.CodeTimeout {
				t.Errorf("engine %d: %d of %d bytes came: got error %v, want timeout", i, n, len(backup), err)
			}
		}
		checkState(t, f, held.ID, contract.StateActive)
		if err := f.Close(t.Context()); err != nil {
			t.Errorf("close: %v", err)
		}
	}
}

// TestForwarder_Restore_leaderLost: when the leader is lost before it has all of the
// backup, nothing was restored, and that is said.
func TestForwarder_Restore_leaderLost(t *testing.T) {
	p, begun := newAsked(t)
	conns := make(chan net.Conn, 8)
	dial := p.transport.DialContext
	p.transport.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := dial(ctx, network, address)
		if err == nil {
			conns <- c
		}
		return c, err
	}
	f := p.forwarder(t)
	_, backup := backUp(t, f)
	w, done := uploadHalf(t, f, backup)
	defer func() { _ = w.Close() }()
	<-begun
	for len(conns) > 0 {
		_ = (<-conns).Close()
	}
	// Its transport notices with what comes next, which is not the end, or before it.
	if _, err := w.Write(backup[len(backup)/2 : len(backup)-1]); err != nil && !errors.Is(err, io.ErrClosedPipe) {
		t.Error(err)
	}
	if err := <-done; contract.CodeOf(err) != contract.CodeUnavailable {
		t.Errorf("got error %v, want unavailable", err)
	}
}

// asked is a cluster that tells when it is asked whether a backup can be restored.
type asked chan struct{}

func (a asked) Applies(context.Context, int) error {
	select {
	case a <- struct{}{}:
	default:
	}
	return nil
}

// newAsked returns a pair and what tells that the one that leads begins to restore.
func newAsked(t *testing.T) (*pair, asked) {
	t.Helper()
	begun := make(asked, 1)
	return newPair(t, func(o *raftkv.Options) { o.Members = begun }), begun
}

// uploadHalf begins a restore of which the second half is yet to be written. Who
// writes it learns of the restore's end, after which nobody reads.
func uploadHalf(t *testing.T, f *raftkv.Forwarder, backup []byte) (net.Conn, <-chan error) {
	t.Helper()
	r, w := net.Pipe()
	done := make(chan error, 1)
	go func() {
		_, err := f.Restore(t.Context(), r)
		_ = r.Close()
		done <- err
	}()
	if _, err := w.Write(backup[:len(backup)/2]); err != nil {
		t.Fatal(err)
	}
	return w, done
}

// TestForwarder_Restore_closed: nobody who closes waits for the rest of a backup.
func TestForwarder_Restore_closed(t *testing.T) {
	for name, c := range map[string]struct {
		engine int
		close  func(*pair, *raftkv.Forwarder, context.Context) error
		want   contract.Code
	}{
		"on the node that leads": {0, func(_ *pair, f *raftkv.Forwarder, ctx context.Context) error { return f.Close(ctx) }, contract.CodeClosed},
		"on a node that follows": {1, func(_ *pair, f *raftkv.Forwarder, ctx context.Context) error { return f.Close(ctx) }, contract.CodeClosed},
		"on the node that leads, of one that follows": {
			1, func(p *pair, _ *raftkv.Forwarder, ctx context.Context) error { return p.handler.Close(ctx) }, contract.CodeUnavailable,
		},
	} {
		t.Run(name, func(t *testing.T) {
			p, begun := newAsked(t)
			_, backup := backUp(t, p.forwarder(t))
			f := p.engines[c.engine].Forwarder()
			w, done := uploadHalf(t, f, backup)
			defer func() { _ = w.Close() }()
			<-begun
			ctx, cancel := context.WithTimeout(t.Context(), closeTimeout)
			defer cancel()
			if err := c.close(p, f, ctx); err != nil {
				t.Errorf("close: %v", err)
			}
			if err := <-done; contract.CodeOf(err) != c.want {
				t.Errorf("the restore: got error %v, want %v", err, c.want)
			}
			if err := f.Close(ctx); err != nil {
				t.Errorf("close: %v", err)
			}
		})
	}
}

// TestForwarder_Restore_refusedFirst: what refuses a restore refuses it before the
// backup is read.
func TestForwarder_Restore_refusedFirst(t *testing.T) {
	p := newPair(t, func(o *raftkv.Options) { o.Members = new(older) })
	f := p.engines[0].Forwarder()
	t.Cleanup(func() { _ = f.Close(context.WithoutCancel(t.Context())) })
	_, backup := backUp(t, f) // it leads
	from := interruptedAt(backup, func() { t.Error("the backup was read") })
	if _, err := f.Restore(t.Context(), from); contract.CodeOf(err) != contract.CodeUnavailable {
		t.Errorf("got error %v, want unavailable", err)
	}
}
