package raftkv

import (
	"io"
	"log/slog"
	"net/http"
	"testing"
	"testing/synctest"
)

// streamingDouble is a leader that answers the first call of a batch and takes its
// time for the others.
type streamingDouble struct {
	leaderDouble

	reply chan struct{} // closed: the first call is answered
	cut   chan struct{} // closed when the batch is given up
}

func (l *streamingDouble) Transport() http.RoundTripper { return l }

func (l *streamingDouble) RoundTrip(r *http.Request) (*http.Response, error) {
	if _, err := io.Copy(io.Discard, r.Body); err != nil {
		return nil, err
	}
	first, err := l.wire.encode(carriedAnswer{Call: 0, Status: http.StatusOK, Body: []byte("first")})
	if err != nil {
		return nil, err
	}
	from, to := io.Pipe()
	go func() {
		<-l.reply
		_, _ = to.Write(first)
		<-r.Context().Done()
		close(l.cut)
		to.CloseWithError(r.Context().Err())
	}()
	return &http.Response{StatusCode: http.StatusOK, Body: from}, nil
}

// TestCarriers_goneAsAnswered: the caller of one call goes away in the moment in
// which its answer comes. That call counts once: the batch is waited for as long as
// somebody waits for any call of it, and not longer.
func TestCarriers_goneAsAnswered(t *testing.T) {
	for name, firstLast := range map[string]bool{"answered before the others go": false, "answered after": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := &streamingDouble{leaderDouble: leaderDouble{wire: newWire()}, reply: make(chan struct{}), cut: make(chan struct{})}
				e := &Engine{wire: newWire(), peers: l, log: slog.New(slog.DiscardHandler)}
				c := newCarriers(e)
				e.carriers = c
				c.to["n1"] = &carrier{busy: true} // as behind another batch: these are one
				first, second, third := put(t, c, "a"), put(t, c, "b"), put(t, c, "c")
				c.next("n1")
				isCut := func() bool {
					synctest.Wait()
					select {
					case <-l.cut:
						return true
					default:
						return false
					}
				}
				synctest.Wait()
				if !firstLast {
					close(l.reply)
					synctest.Wait()
					_ = c.giveUp("n1", first, errCallerGone) // the answer is there, and not read
				}
				_ = c.giveUp("n1", second, errCallerGone)
				if isCut() {
					t.Fatal("the batch was cut while somebody waits for a call of it")
				}
				_ = c.giveUp("n1", third, errCallerGone)
				if firstLast {
					if isCut() {
						t.Fatal("the batch was cut while somebody waits for its first call")
					}
					close(l.reply)
				}
				if !isCut() {
					t.Error("the batch goes on, and nobody waits for it")
				}
			})
		})
	}
}
