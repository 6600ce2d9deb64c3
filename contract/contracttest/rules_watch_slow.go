package contracttest

import (
	"fmt"
	"sync"

	"leased/contract"
)

// floodLeases × floodRounds renewals are more events than a store should want
// to keep for a reader that does not read.
const (
	floodLeases = 100
	floodRounds = 60
)

// floodReader holds a stream to the flood: every round complete and in order,
// but where a gap was told.
type floodReader struct {
	rounds map[string]int // request id → round
	round  int            // being read; -1 before the first event of a stream that begins anywhere
	part   bool           // the round began within a gap
	gap    bool           // told since the last event
	seen   map[contract.LeaseID]bool
}

// read takes the next event and returns what is wrong with it, or "".
func (f *floodReader) read(ev contract.Event) string {
	if ev.Kind == contract.EventGap {
		f.gap = true
		return ""
	}
	round, ok := f.rounds[ev.RequestID]
	lost := f.gap || f.round < 0
	f.gap = false
	switch {
	case !ok:
		return fmt.Sprintf("an event of call %s, which is none of the flood", ev.RequestID)
	case round < f.round:
		return fmt.Sprintf("an event of round %d after one of round %d", round, f.round)
	case round > f.round && !lost && (round != f.round+1 || !f.complete()):
		return fmt.Sprintf("%d of %d events of round %d, then round %d, and no gap was told", len(f.seen), floodLeases, f.round, round)
	case round > f.round:
		f.round, f.part = round, lost
		clear(f.seen)
	case f.seen[ev.LeaseID]:
		return fmt.Sprintf("the same event of round %d twice", round)
	}
	f.part = f.part || lost
	f.seen[ev.LeaseID] = true
	return ""
}

func (f *floodReader) complete() bool { return f.part || len(f.seen) == floodLeases }

func watchSlowReader(e *Env) {
	a, b := e.pair()
	leases := e.many(a, b, floodLeases)
	slow, brisk := e.watch(a, contract.WatchRequest{}), e.watch(a, contract.WatchRequest{})

	rounds := map[string]int{}
	var floods []*contract.RenewBulkRequest
	for i := range floodRounds {
		r := e.newBulk(leases...)
		rounds[r.RequestID] = i
		floods = append(floods, r)
	}
	end := e.newRelease(leases[0])
	var reader sync.WaitGroup
	reader.Add(1)
	e.spawn(func() {
		defer reader.Done()
		e.readFlood("the brisk reader", brisk, &floodReader{rounds: rounds}, end.RequestID)
	})
	for _, r := range floods {
		if _, err := b.RenewBulk(e.ctx(), r); err != nil {
			e.Fatalf("bulk renew while a stream is not read: got error %v", err)
		}
	}
	e.release(b, end, contract.OutcomeReleased)
	done := make(chan struct{})
	go func() {
		reader.Wait()
		close(done)
	}()
	e.waitFor(done, "the reader who keeps up to see the last event")

	gap := e.readFlood("the slow reader", slow, &floodReader{rounds: rounds}, end.RequestID)
	if gap == nil {
		return // the store keeps that much
	}
	// A gap's id may be resumed from: what follows it is what followed it here.
	resumed := e.watch(b, contract.WatchRequest{After: gap.ID})
	again := e.readFlood("the reader who resumes at the gap", resumed, &floodReader{rounds: rounds, round: -1}, end.RequestID)
	if again != nil {
		e.Errorf("resuming at a gap, with nothing lost since, tells of a gap again")
	}
}

// readFlood reads to the event of the last call and returns the last gap that
// was told, or nil. It may run beside the rule.
func (e *Env) readFlood(who string, stream contract.Stream, f *floodReader, last string) *contract.Event {
	f.seen = map[contract.LeaseID]bool{}
	var gap *contract.Event
	for {
		ev, err := stream.Next(e.ctx())
		if err != nil {
			e.Errorf("%s: got error %v", who, err)
			return gap
		}
		if ev.RequestID == last {
			if !f.gap && (f.round != floodRounds-1 || !f.complete()) {
				e.Errorf("%s: %d of %d events of round %d, then the last event, and no gap was told", who, len(f.seen), floodLeases, f.round)
			}
			return gap
		}
		if wrong := f.read(ev); wrong != "" {
			e.Errorf("%s: %s", who, wrong)
			return gap
		}
		if ev.Kind == contract.EventGap {
			gap = &ev
		}
	}
}

// many grants n keys to alice, all at once.
func (e *Env) many(a, b contract.Store, n int) []contract.Lease {
	e.Helper()
	leases := make([]contract.Lease, n)
	e.race(n, func(i int) {
		res, err := pick(i, a, b).Acquire(e.ctx(), e.newAcquire(e.key(fmt.Sprint("many-", i)), alice))
		if err != nil || res.Outcome != contract.OutcomeAcquired || res.Lease == nil {
			e.Errorf("acquire: got %s, error %v, want acquired", describe(res), err)
			return
		}
		leases[i] = *res.Lease
	})
	if e.Failed() {
		e.FailNow()
	}
	return leases
}
