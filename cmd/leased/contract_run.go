package main

import (
	"context"
	"errors"
	"sync"
	"time"

	"leased/contract"
	"leased/contract/contracttest"
)

// readyTimeout is how long a store may take to say that it can serve. It covers
// the election of a raft node and a connection that fails once.
const readyTimeout = 5 * time.Second

// holdToContract runs the rules, so many at a time and the timed ones alone, and
// tells the report of each as it ends. It fails with a brokenError or a
// notReadyError.
func holdToContract(ctx context.Context, s *openSubject, rules []contracttest.Rule, parallel int, report *contractReport) error {
	if err := checkReady(ctx, s, report); err != nil {
		report.notRun(rules, err.Error())
		return err
	}
	report.begin(s)
	var timed, others []contracttest.Rule
	for _, rule := range rules {
		if rule.Timed {
			timed = append(timed, rule)
		} else {
			others = append(others, rule)
		}
	}
	left := runRules(ctx, s, timed, 1, report)
	left = append(left, runRules(ctx, s, others, parallel, report)...)
	if len(left) > 0 {
		report.notRun(left, endedBecause(ctx))
	}
	return report.end()
}

// runRules runs rules until ctx ends and returns those that it did not run to their
// end: one that fails after that was ended by it, as far as anybody can tell.
func runRules(ctx context.Context, s *openSubject, rules []contracttest.Rule, parallel int, report *contractReport) []contracttest.Rule {
	jobs := make(chan contracttest.Rule)
	var (
		workers sync.WaitGroup
		mu      sync.Mutex
		cut     []contracttest.Rule
	)
	for range min(parallel, len(rules)) {
		workers.Go(func() {
			for rule := range jobs {
				if ctx.Err() == nil {
					got := contracttest.RunRule(ctx, rule, s.harness(rule))
					if !got.Failed || ctx.Err() == nil {
						report.add(got)
						continue
					}
				}
				mu.Lock()
				cut = append(cut, rule)
				mu.Unlock()
			}
		})
	}
	started := 0
	for _, rule := range rules {
		select {
		case jobs <- rule:
			started++
			continue
		case <-ctx.Done():
		}
		break
	}
	close(jobs)
	workers.Wait()
	return append(cut, rules[started:]...)
}

func endedBecause(ctx context.Context) string {
	if context.Cause(ctx) == context.DeadlineExceeded { //nolint:errorlint // nobody wraps a cause
		return "the time of --timeout is over"
	}
	return "interrupted"
}

// checkReady asks the store for its health on the path that the rules will use,
// until it is ready or readyTimeout is over: a suite on a server that cannot
// serve would be a failure for each rule that all mean the same.
func checkReady(ctx context.Context, s *openSubject, report *contractReport) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	began := time.Now()
	store, err := s.store()
	if err != nil {
		return err
	}
	defer func() { _ = store.Close(context.WithoutCancel(ctx)) }() // the rules open their own
	var last contract.Health
	for {
		look, stop := context.WithTimeout(ctx, 2*time.Second)
		h, err := store.Health(look, &contract.HealthRequest{Namespace: scratchNamespace})
		stop()
		switch {
		case err == nil && h.Ready:
			report.ready(time.Since(began))
			return nil
		case err == nil:
			last = h
		case ctx.Err() != nil && last.Detail != "":
			// This look was cut off; why the store is not ready an earlier one has said.
		default:
			last.Detail = detailOf(err)
		}
		timer := time.NewTimer(200 * time.Millisecond)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return &notReadyError{why: last.Detail}
		}
	}
}

// detailOf returns what an error says that may be shown.
func detailOf(err error) string {
	if e, ok := errors.AsType[*contract.Error](err); ok && e.Detail != "" {
		return e.Detail
	}
	return contract.CodeOf(err).String()
}
