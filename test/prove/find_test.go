package prove

import (
	"slices"
	"time"

	"leased/test/history"
)

const (
	// budget is for how long a defect may stay unnoticed.
	budget = time.Minute
	// atLeast is how long there is load in any case: there is time for leases to end in.
	atLeast = 5 * time.Second
)

// insist goes on, with nothing more that happens, until what may not be scarce is not:
// how much of it is among so many calls is left to chance, and to how much the machine
// has to do.
func (r *run) insist() {
	r.t.Helper()
	for began := time.Now(); r.scarce() != "" && time.Since(began) < budget; {
		r.history.Faults = append(r.history.Faults, r.stalls.stop()...)
		r.resume()
		r.await(100)
		r.collect()
	}
}

// find goes on until the rule is seen broken, and wants that to be within the budget; or
// without a rule nothing to be.
// Before it looks it does what is to be done to the service meanwhile.
func (r *run) find(rule string, meanwhile func()) {
	r.t.Helper()
	began := time.Now()
	time.Sleep(atLeast)
	// How often a defect shows in so many calls is left to chance, and to how much
	// the machine has to do.
	// One defect breaks several rules, and which of them shows first is chance too.
	var bad []history.Violation
	var at int
	for ; ; r.resume() {
		meanwhile()
		r.await(300)
		r.collect()
		bad = r.judge()
		// That an order was looked for in vain shows nothing.
		shows := func(v history.Violation) bool {
			return v.Rule == rule && (rule != history.Linearisable || v.Linearisation != nil)
		}
		at = slices.IndexFunc(bad, shows)
		seen := r.scarce() == "" && (at >= 0 || rule == "")
		if seen || time.Since(began) > budget {
			break
		}
	}
	if at < 0 && rule != "" || len(bad) > 0 && rule == "" {
		r.t.Errorf("violations are %v, want one of %q", bad, rule)
		r.keep(bad)
	}
	r.wantEnough()
	if at >= 0 {
		r.t.Logf("noticed in %d calls of %v: %v", len(r.history.Ops), time.Since(began).Round(100*time.Millisecond), bad[at])
	}
}
