package contracttest_test

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"leased/contract/contracttest"
)

// brokenStore is a store that is wrong in one way.
type brokenStore struct {
	name  string
	rules []string // each of them must catch it
	make  func(contracttest.TB) *contracttest.Harness
}

// verdict is what one rule said of one store.
type verdict struct {
	store, rule string
	report      contracttest.Report
}

// TestBroken holds wrong stores to the rules that are named for them, and the
// right one to the same rules: a rule that fails everything catches nothing.
func TestBroken(t *testing.T) {
	rules := map[string]contracttest.Rule{}
	for _, rule := range contracttest.Rules() {
		rules[rule.ID] = rule
	}
	named := map[string]bool{}
	for _, b := range brokenStores() {
		for _, id := range b.rules {
			named[id] = true
			if _, ok := rules[id]; !ok {
				t.Errorf("%s: there is no rule %s", b.name, id)
			}
		}
	}
	for id := range rules {
		if !named[id] {
			t.Errorf("no broken store shows that rule %s can fail: add one", id)
		}
	}
	if t.Failed() {
		return
	}
	// Many at once: where a wrong store leaves somebody waiting the rule waits
	// too, until it loses patience. And again where it did not fail: a store
	// that loses a race is caught when the race happens.
	for _, v := range judge(t.Context(), rules, brokenStores(), 64, 3) {
		t.Run(v.store+"/"+v.rule, func(t *testing.T) { caught(t, v) })
	}
	// Few at once: some rules measure what the store promises.
	all := []brokenStore{{"right", slices.Collect(maps.Keys(rules)), right}}
	for _, v := range judge(t.Context(), rules, all, 4, 1) {
		t.Run(v.store+"/"+v.rule, func(t *testing.T) {
			if v.report.Failed {
				t.Errorf("the right store is caught by %s: %s", v.rule, strings.Join(v.report.Failures, "\n"))
			}
		})
	}
}

// caught wants a verdict against the store, and one that the rule came to by
// looking: a panic says that the wrong store confused it.
func caught(t *testing.T, v verdict) {
	t.Helper()
	if !v.report.Failed {
		t.Fatalf("a store that is wrong passes: %s", v.report.Rule.Sentence)
	}
	line, _, _ := strings.Cut(v.report.Failures[0], "\n")
	t.Logf("%s caught by %s: %s", v.store, v.rule, line)
	if strings.HasPrefix(line, "panic:") {
		t.Errorf("the rule came to no verdict: %s", v.report.Failures[0])
	}
}

// judge runs each rule on the stores that name it, up to runs times until it
// fails, slots at a time.
func judge(ctx context.Context, rules map[string]contracttest.Rule, stores []brokenStore, slots, runs int) []verdict {
	var (
		verdicts []verdict
		mu       sync.Mutex
		all      sync.WaitGroup
	)
	free := make(chan struct{}, slots)
	for _, b := range stores {
		for _, id := range b.rules {
			all.Go(func() {
				free <- struct{}{}
				defer func() { <-free }()
				report := contracttest.RunRule(ctx, rules[id], b.make)
				for run := 1; run < runs && !report.Failed; run++ {
					report = contracttest.RunRule(ctx, rules[id], b.make)
				}
				mu.Lock()
				defer mu.Unlock()
				verdicts = append(verdicts, verdict{b.name, id, report})
			})
		}
	}
	all.Wait()
	slices.SortFunc(verdicts, func(a, b verdict) int {
		return strings.Compare(a.store+"/"+a.rule, b.store+"/"+b.rule)
	})
	return verdicts
}
