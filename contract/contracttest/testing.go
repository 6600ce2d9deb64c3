package contracttest

import "testing"

// Run holds a backend to every rule, each in a subtest named after its ID: the
// timed ones one after the other, and then the rest in parallel. newHarness is
// called once for each rule.
//
// The timed rules run while no other test of the package does. After them Run
// makes t a parallel test, so that the rest share the time that they wait with
// the package's other deployments and parallel tests: t must not be one before,
// and must not have called Setenv or Chdir.
func Run(t *testing.T, newHarness func(t *testing.T) *Harness) {
	t.Helper()
	run(t, Rules(), newHarness)
}

func run(t *testing.T, rules []Rule, newHarness func(t *testing.T) *Harness) {
	t.Helper()
	for _, rule := range rules {
		if rule.Timed {
			t.Run(rule.ID, func(t *testing.T) { rule.test(t, newHarness) })
		}
	}
	t.Parallel() // goes on when the tests that are not have ended
	for _, rule := range rules {
		if !rule.Timed {
			t.Run(rule.ID, func(t *testing.T) {
				t.Parallel()
				rule.test(t, newHarness)
			})
		}
	}
}

// test holds the store to the rule as a test of its own.
func (r Rule) test(t *testing.T, newHarness func(t *testing.T) *Harness) {
	t.Helper()
	defer func() {
		if t.Failed() {
			t.Logf("THE RULE: %s", r.Sentence)
		}
	}()
	h := newHarness(t)
	h.check(t)
	r.run(t, h)
}
