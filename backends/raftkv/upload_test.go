package raftkv_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"testing"
	"time"

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
