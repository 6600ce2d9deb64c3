package prove

import (
	"sync"
	"testing"
	"time"

	"leased/test/proc"
)

// TestHistories runs every deployment under load while things happen to it, and holds
// what its clients saw to the law; and the runs together to have seen each kind of
// thing happen.
func TestHistories(t *testing.T) {
	t.Parallel()
	bin := proc.BuildWithClock(t, "leased/cmd/leased")
	seed, lasting := seed(t), duration(t, 12*time.Second)
	var all kinds
	t.Cleanup(func() { all.check(t, len(deployments())) })
	for name, start := range deployments() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRun(t, start(t, bin), seed, false)
			r.torment(lasting)
			r.await(400)
			r.collect()
			r.insist()
			bad := r.judge()
			r.wantEnough()
			for _, v := range bad {
				t.Error(v)
			}
			r.keep(bad)
			all.add(r)
		})
	}
}

// kinds has, for each kind of fault, how often it happened.
type kinds struct {
	mu       sync.Mutex
	runs     int
	happened map[string]int
}

func (k *kinds) add(r *run) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.runs++
	if k.happened == nil {
		k.happened = map[string]int{}
	}
	for i := range r.d.faults {
		k.happened[r.d.faults[i].kind()] += 0 // it could
	}
	for _, f := range r.history.Faults {
		k.happened[(&fault{name: f.Name}).kind()]++
	}
}

// check wants each kind to have happened, where all deployments ran to their end.
func (k *kinds) check(t *testing.T, deployments int) {
	t.Helper()
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.runs < deployments {
		return // some were not asked for, or failed
	}
	for kind, n := range k.happened {
		if n == 0 {
			t.Errorf("nothing was ever %q", kind)
		}
	}
	t.Logf("what happened: %v", k.happened)
}
