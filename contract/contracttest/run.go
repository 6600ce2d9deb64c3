package contracttest

import (
	"context"
	"slices"
	"time"
)

// Rule is one sentence of the law and the function that holds a store to it.
type Rule struct {
	// ID names the rule, in kebab-case. It never changes.
	ID string
	// Sentence is the law.
	Sentence string
	// Func fails its Env when the store under test breaks the sentence.
	Func func(*Env)
	// Reopens tells that the rule restarts the backing store, so that nobody
	// else can use it meanwhile.
	Reopens bool
	// Timed tells that the rule holds the store to bounds in real time that users
	// were promised. It runs alone: other rules would take the machine's time from
	// the store, and fail what is right.
	Timed bool
}

// Rules returns all rules, in the order in which they are best read.
func Rules() []Rule {
	return slices.Concat(
		acquireRules(),
		independenceRules(),
		validationRules(),
		deadlineRules(),
		expiryRules(),
		tokenRules(),
		renewRules(),
		bulkRules(),
		releaseRules(),
		checkRules(),
		revokeRules(),
		replayRules(),
		replayRetentionRules(),
		reuseRules(),
		copiesRules(),
		queueRules(),
		presenceRules(),
		handoverRules(),
		readRules(),
		listRules(),
		historyRules(),
		watchRules(),
		lifecycleRules(),
		reopenRules(),
		concurrencyRules(),
	)
}

// Report is what RunRule saw.
type Report struct {
	Rule     Rule
	Backend  string
	Failed   bool
	Failures []string // what the rule said was wrong, first one first
	Logs     []string
	Took     time.Duration
}

// RunRule holds one store to one rule outside go test and reports what it saw.
// newHarness is called once; ctx interrupts the rule.
func RunRule(ctx context.Context, rule Rule, newHarness func(t TB) *Harness) Report {
	began := time.Now()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	report := Report{Rule: rule}
	r := &recorder{name: rule.ID, ctx: ctx}
	r.run(cancel, func() {
		h := newHarness(r)
		h.check(r)
		report.Backend = h.Name
		rule.run(r, h)
	})
	report.Failed, report.Failures, report.Logs = r.report()
	report.Took = time.Since(began)
	return report
}

// run holds the store behind h to the rule. What the rule started is over and
// what it opened is closed when run returns, also when it ends by FailNow.
func (r Rule) run(t TB, h *Harness) {
	e := newEnv(t, h, &r)
	defer e.finish()
	r.Func(e)
}
