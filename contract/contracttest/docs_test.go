package contracttest_test

import (
	"os"
	"regexp"
	"testing"

	"leased/contract/contracttest"
)

// The design document names the rules that hold its claims. Each must exist, and
// each rule must hold a claim.
func TestRules_NamedInDesign(t *testing.T) {
	text, err := os.ReadFile("../../docs/design.md")
	if err != nil {
		t.Fatal(err)
	}
	named := make(map[string]bool)
	for _, m := range regexp.MustCompile("`([a-z]+(?:-[a-z]+)+)`").FindAllSubmatch(text, -1) {
		named[string(m[1])] = true
	}
	for _, rule := range contracttest.Rules() {
		if !named[rule.ID] {
			t.Errorf("rule %s holds no claim of docs/design.md", rule.ID)
		}
		delete(named, rule.ID)
	}
	for id := range named {
		t.Errorf("docs/design.md names the rule %s, which does not exist", id)
	}
}
