package raftkv

import (
	"strings"
	"testing"
	"time"

	"leased/contract"
)

// TestBehind: a node that is far behind is not ready, and one that is a little is.
func TestBehind(t *testing.T) {
	for lag, ready := range map[time.Duration]bool{0: true, maxReadyLag: true, maxReadyLag + 1: false, time.Hour: false} {
		h := contract.Health{Ready: true, Lag: lag}
		behind(&h)
		if h.Ready != ready || (h.Detail == "") != ready || !ready && !strings.Contains(h.Detail, "behind") {
			t.Errorf("%v behind: got %+v, want ready %v and a reason if not", lag, h, ready)
		}
	}
}
