package lifecycle_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"leased/contract"
	"leased/contract/lifecycle"
)

func valid() error { return nil }

// begin starts a call that must start.
func begin(t *testing.T, h *lifecycle.Handle) (end func()) {
	t.Helper()
	_, end, err := h.Begin(t.Context(), valid)
	if err != nil {
		t.Fatalf("Begin: %v", err)
	}
	return end
}

func wantCode(t *testing.T, what string, err error, want contract.Code) {
	t.Helper()
	if got := contract.CodeOf(err); got != want {
		t.Errorf("%s: %v, want code %v", what, err, want)
	}
}

func isClosed(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}

func TestHandle_Begin(t *testing.T) {
	over, cancel := context.WithCancel(t.Context())
	cancel()
	bad := contract.Invalid("key", "is missing")
	tests := map[string]struct {
		ctx      context.Context //nolint:containedctx // the case's own
		validate func() error
		want     contract.Code
	}{
		"a request that breaks a rule":      {t.Context(), func() error { return bad }, contract.CodeInvalid},
		"a context that is over":            {over, valid, contract.CodeTimeout},
		"both: what is wrong says the more": {over, func() error { return bad }, contract.CodeInvalid},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			h := lifecycle.New()
			_, _, err := h.Begin(test.ctx, test.validate)
			wantCode(t, "Begin", err, test.want)
			// A call that was refused must not be waited for.
			if err := h.Close(over, nil); err != nil {
				t.Errorf("Close after a refusal: %v", err)
			}
		})
	}
	t.Run("a call without a deadline gets one, and loses it at its end", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			ctx, end, err := lifecycle.New().Begin(context.Background(), valid)
			if err != nil {
				t.Fatal(err)
			}
			deadline, ok := ctx.Deadline()
			if want := time.Now().Add(contract.DefaultTimeout); !ok || !deadline.Equal(want) {
				t.Errorf("the deadline is %v, want %v", deadline, want)
			}
			end()
			if ctx.Err() == nil {
				t.Error("the context goes on after the call")
			}
		})
	})
}

// TestHandle_Close_waits holds Close to its order: who waits is told at once, the
// calls end, then comes the goodbye.
func TestHandle_Close_waits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := lifecycle.New()
		ends := []func(){begin(t, h), begin(t, h)}
		var order []string
		closed := make(chan error, 1)
		go func() {
			closed <- h.Close(t.Context(), func(context.Context) error { order = append(order, "goodbye"); return nil })
		}()
		synctest.Wait()
		if !isClosed(h.Closing()) {
			t.Error("who waits is not told")
		}
		_, _, err := h.Begin(t.Context(), func() error { t.Error("a call after Close is validated"); return nil })
		wantCode(t, "Begin after Close", err, contract.CodeClosed)
		for _, end := range ends {
			order = append(order, "end")
			end()
			synctest.Wait()
		}
		if err := <-closed; err != nil {
			t.Errorf("Close: %v", err)
		}
		if diff := cmp.Diff([]string{"end", "end", "goodbye"}, order); diff != "" {
			t.Errorf("order (-want +got):\n%s", diff)
		}
	})
}

// TestHandle_Close_bound cuts off a call that goes on: the store says its goodbye
// all the same, with the context that bounds it, and the first fault is told.
func TestHandle_Close_bound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := lifecycle.New()
		end := begin(t, h)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		said := false
		err := h.Close(ctx, func(given context.Context) error {
			said = given == ctx
			return errors.New("the line is dead")
		})
		wantCode(t, "Close", err, contract.CodeTimeout)
		if took := time.Since(start); took != time.Second {
			t.Errorf("Close took %v, want its bound of 1s", took)
		}
		if !said {
			t.Error("no goodbye with the context of Close")
		}
		end() // late, and without harm
		if again := h.Close(t.Context(), nil); !errors.Is(again, err) {
			t.Errorf("Close again: %v, want %v", again, err)
		}
	})
}

func TestHandle_Close_contextOver(t *testing.T) {
	over, cancel := context.WithCancel(t.Context())
	cancel()
	for range 100 { // a choice by chance would show
		if err := lifecycle.New().Close(over, nil); err != nil {
			t.Fatalf("Close with nothing running: %v", err)
		}
	}
	h := lifecycle.New()
	defer begin(t, h)()
	wantCode(t, "Close with a call running", h.Close(over, nil), contract.CodeTimeout)
}

// TestHandle_Close_concurrent closes at once from many sides, among them some
// whose own context is over: one goodbye, one answer.
func TestHandle_Close_concurrent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := lifecycle.New()
		end := begin(t, h)
		fault := errors.New("the line is dead")
		byes := 0
		bye := func(context.Context) error { byes++; return fault }
		first := make(chan error, 1)
		go func() { first <- h.Close(t.Context(), bye) }()
		synctest.Wait()
		over, cancel := context.WithCancel(t.Context())
		cancel()
		others := make(chan error, 8)
		for range cap(others) {
			go func() { others <- h.Close(over, bye) }()
		}
		synctest.Wait()
		if len(others) > 0 {
			t.Error("a second Close answers before the first one")
		}
		end()
		for range cap(others) {
			if err := <-others; !errors.Is(err, fault) {
				t.Errorf("a second Close: %v, want %v", err, fault)
			}
		}
		if err := <-first; !errors.Is(err, fault) {
			t.Errorf("the first Close: %v, want %v", err, fault)
		}
		if byes != 1 {
			t.Errorf("%d goodbyes, want 1", byes)
		}
	})
}

// TestHandle_Close_race begins and ends calls while the handle closes: whatever
// began has ended before the goodbye.
func TestHandle_Close_race(t *testing.T) {
	for range 50 {
		h := lifecycle.New()
		var mu sync.Mutex
		running, said := 0, false
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				for {
					_, end, err := h.Begin(context.Background(), valid)
					if err != nil {
						wantCode(t, "Begin", err, contract.CodeClosed)
						return
					}
					mu.Lock()
					if running++; said {
						t.Error("a call runs after the goodbye")
					}
					mu.Unlock()
					mu.Lock()
					running--
					mu.Unlock()
					end()
				}
			})
		}
		if err := h.Close(t.Context(), func(context.Context) error {
			mu.Lock()
			defer mu.Unlock()
			said = true
			if running > 0 {
				t.Errorf("%d calls run at the goodbye", running)
			}
			return nil
		}); err != nil {
			t.Error(err)
		}
		all.Wait()
	}
}

func TestStream(t *testing.T) {
	open := func(t *testing.T, h *lifecycle.Handle) *lifecycle.Stream {
		t.Helper()
		s, err := h.Stream()
		if err != nil {
			t.Fatalf("Stream: %v", err)
		}
		if err := s.Err(); err != nil || isClosed(s.Ended()) {
			t.Fatalf("a new stream has ended: %v", err)
		}
		return s
	}
	ended := func(t *testing.T, s *lifecycle.Stream) {
		t.Helper()
		if !isClosed(s.Ended()) {
			t.Error("the stream has not ended")
		}
		wantCode(t, "Err", s.Err(), contract.CodeClosed)
	}
	t.Run("its own Close ends it and no other", func(t *testing.T) {
		h := lifecycle.New()
		one, two := open(t, h), open(t, h)
		one.Close()
		one.Close()
		ended(t, one)
		if err := two.Err(); err != nil {
			t.Errorf("the other one: %v", err)
		}
	})
	t.Run("the handle's Close ends all, and waits for none", func(t *testing.T) {
		h := lifecycle.New()
		one, two := open(t, h), open(t, h)
		two.Close()
		if err := h.Close(t.Context(), func(context.Context) error { ended(t, one); return nil }); err != nil {
			t.Error(err)
		}
		ended(t, one)
		ended(t, two)
		one.Close() // what its reader does in the end
	})
	t.Run("none begins after Close", func(t *testing.T) {
		h := lifecycle.New()
		if err := h.Close(t.Context(), nil); err != nil {
			t.Error(err)
		}
		_, err := h.Stream()
		wantCode(t, "Stream", err, contract.CodeClosed)
	})
	t.Run("one that closes itself while the handle does", func(t *testing.T) {
		for range 100 {
			h := lifecycle.New()
			s := open(t, h)
			var both sync.WaitGroup
			both.Go(s.Close)
			both.Go(func() { _ = h.Close(t.Context(), nil) })
			both.Wait()
			ended(t, s)
		}
	})
}

func TestHandle_Die(t *testing.T) {
	t.Run("nobody is told, and nothing begins", func(t *testing.T) {
		h := lifecycle.New()
		end := begin(t, h)
		s, err := h.Stream()
		if err != nil {
			t.Fatal(err)
		}
		h.Die()
		h.Die()
		if isClosed(h.Closing()) {
			t.Error("a store that died tells its waiters to leave")
		}
		if err := s.Err(); err != nil {
			t.Errorf("a store that died ends its stream: %v", err)
		}
		_, _, err = h.Begin(t.Context(), valid)
		wantCode(t, "Begin", err, contract.CodeClosed)
		_, err = h.Stream()
		wantCode(t, "Stream", err, contract.CodeClosed)
		if err := h.Close(t.Context(), func(context.Context) error { t.Error("the dead say goodbye"); return nil }); err != nil {
			t.Errorf("Close: %v", err)
		}
		end()
	})
	t.Run("during Close, which goes on", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			h := lifecycle.New()
			end := begin(t, h)
			closed := make(chan error, 1)
			said := false
			go func() { closed <- h.Close(t.Context(), func(context.Context) error { said = true; return nil }) }()
			synctest.Wait()
			h.Die()
			synctest.Wait()
			if len(closed) > 0 {
				t.Error("Close ends with a call running")
			}
			end()
			if err := <-closed; err != nil || !said {
				t.Errorf("Close: %v, goodbye said: %v", err, said)
			}
		})
	})
}
