package prove

import (
	"testing"
	"time"

	"leased/test/proc"
)

// TestHistories runs every deployment under load while things happen to it, and holds
// what its clients saw to the law.
func TestHistories(t *testing.T) {
	t.Parallel()
	bin := proc.Build(t, "leased/cmd/leased")
	seed, lasting := seed(t), duration(t, 15*time.Second)
	for name, start := range deployments() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRun(t, start(t, bin), seed, false)
			r.torment(lasting)
			r.collect()
			bad := r.judge()
			for _, v := range bad {
				t.Error(v)
			}
			r.keep(bad)
		})
	}
}
