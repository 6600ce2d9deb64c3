package contracttest

import "testing"

// Run holds a backend to every rule, each in a subtest named after its ID: the
// timed ones one after the other, and then the rest in parallel. newHarness is
// called once for each rule.
func Run(t *testing.T, newHarness func(t *testing.T) *Harness) {
	t.Helper()
	for _, rule := range Rules() {
		t.Run(rule.ID, func(t *testing.T) {
			if !rule.Timed {
				t.Parallel() // goes on when those that are not have ended
			}
			defer func() {
				if t.Failed() {
					t.Logf("THE RULE: %s", rule.Sentence)
				}
			}()
			h := newHarness(t)
			h.check(t)
			rule.run(t, h)
		})
	}
}
