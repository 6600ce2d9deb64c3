package client_test

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"leased/client"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestHold_manyTimes: leases that come and go leave no goroutine and no lease,
// over real connections. test/holding does it ten thousand times.
func TestHold_manyTimes(t *testing.T) {
	const workers, each = 20, 25
	c, _ := newGateway(t)
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for i := range each {
				s, err := c.Hold(t.Context(), holdRequest(func(h *client.HoldRequest) {
					h.Key, h.Instance = exampleKey(fmt.Sprintf("h%d.w%d.example", i%3, w)), fmt.Sprintf("w-%d", w%4)
				}))
				if err != nil {
					t.Error(err)
					return
				}
				if err := errors.Join(s.Err(), s.Release()); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	// The release of the last lease waits for the goroutine that renewed it.
	if n := strings.Count(stacks(), "client.(*group).run"); n != 0 {
		t.Errorf("%d goroutines that renew are left", n)
	}
	page, err := c.List(t.Context(), client.ListRequest{})
	if err != nil || len(page.Leases) != 0 {
		t.Errorf("%d leases are left, %v", len(page.Leases), err)
	}
	if err := c.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
}

func stacks() string {
	text := make([]byte, 64<<20)
	return string(text[:runtime.Stack(text, true)])
}
