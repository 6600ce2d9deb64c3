package contracttest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"leased/contract"
)

func concurrencyRules() []Rule {
	return []Rule{
		{ID: "mutual-exclusion", Func: mutualExclusion,
			Sentence: "Whatever many callers do over several gateways, no two of them hold a key at the same time, tokens rise in the order of the grants, and each holder's token is current while it holds."},
		{ID: "reads-never-go-back", Func: readsNeverGoBack,
			Sentence: "What a read showed is never taken back: a later read on any gateway, also beside writes, shows as much or more."},
	}
}

// tenure is the time for which a caller certainly held a key: from the answer
// that granted it to the moment before anybody asked for its end.
type tenure struct {
	token    contract.Token
	sent     time.Time // the acquire
	from, to time.Time
}

// workload is what the callers of mutual-exclusion share.
type workload struct {
	e    *Env
	keys []contract.Key

	mu      sync.Mutex
	tenures map[contract.Key][]tenure
	// refused has the request ids of waiters that were answered without a grant.
	// One that crossed that answer is undone, so the history may have it.
	refused map[string]bool
}

func mutualExclusion(e *Env) {
	a, b := e.pair()
	w := &workload{e: e, tenures: map[contract.Key][]tenure{}, refused: map[string]bool{}}
	for i := range 3 {
		w.keys = append(w.keys, e.key(fmt.Sprint("key-", i)))
	}
	seed := rand.Uint64()
	e.Logf("seed %d", seed)
	began := time.Now()
	e.race(8, func(i int) {
		rnd := rand.New(rand.NewPCG(seed, uint64(i)))
		for range 40 {
			// A machine on which everything is slow makes fewer turns: that they are
			// not over in time is to mean that a call is not answered.
			if e.Failed() || time.Since(began) > watchdog/2 {
				return
			}
			w.turn(rnd, fmt.Sprint("owner-", i%5), pick(i, a, b), pick(i+1, a, b))
		}
	})
	if e.Failed() {
		return
	}
	for _, key := range w.keys {
		w.judge(key)
		w.matchHistory(a, key)
		e.free(b, key)
	}
}

// turn acquires a key, does a few things with it, and ends the lease.
func (w *workload) turn(rnd *rand.Rand, owner string, s, other contract.Store) {
	e := w.e
	r := e.newAcquire(w.keys[rnd.IntN(len(w.keys))], owner)
	r.Wait = []time.Duration{0, 2 * time.Millisecond, patience}[rnd.IntN(3)]
	r.Retention.HistoryPerKey = 4096
	held := tenure{sent: time.Now()}
	res, err := s.Acquire(e.ctx(), r)
	if r.Wait > 0 && (err != nil || res.Outcome != contract.OutcomeAcquired) {
		w.mu.Lock()
		w.refused[r.RequestID] = true
		w.mu.Unlock()
	}
	// A busy store may not know in time whether the turn came before the end of
	// the wait. The same request id finds out.
	for n := 0; contract.CodeOf(err) == contract.CodeOutcomeUnknown && r.Wait > 0 && n < 100; n++ {
		res, err = other.Acquire(e.ctx(), r)
	}
	held.from = time.Now()
	if err != nil || res.Lease == nil || (res.Outcome != contract.OutcomeAcquired && res.Outcome != contract.OutcomeConflict) {
		e.Errorf("acquire by %s: got %s, error %v", owner, describe(res), err)
		return
	}
	if res.Outcome == contract.OutcomeConflict {
		return
	}
	l := *res.Lease
	held.token = l.Token
	for range rnd.IntN(3) {
		w.use(rnd, l, pick(rnd.IntN(2), s, other))
	}
	held.to = time.Now()
	w.mu.Lock()
	w.tenures[r.Key] = append(w.tenures[r.Key], held)
	w.mu.Unlock()
	w.end(rnd, l, pick(rnd.IntN(2), s, other))
}

// use does what a holder may do, which must succeed while it holds.
func (w *workload) use(rnd *rand.Rand, l contract.Lease, s contract.Store) {
	e := w.e
	var res contract.Result
	var err error
	var op string
	want := contract.OutcomeCurrent
	switch rnd.IntN(3) {
	case 0:
		op = "check"
		res, err = s.Check(e.ctx(), &contract.CheckRequest{Namespace: e.ns, KeyID: l.KeyID, Token: l.Token})
	case 1:
		op, want = "renew", contract.OutcomeRenewed
		r := e.newRenew(l)
		r.Retention.HistoryPerKey = 4096
		res, err = s.Renew(e.ctx(), r)
	case 2:
		op, want = "get", contract.OutcomeFound
		res, err = s.Get(e.ctx(), &contract.GetRequest{Namespace: e.ns, LeaseID: l.ID})
	}
	if err != nil || res.Outcome != want || res.Lease == nil || res.Lease.State != contract.StateActive {
		e.Errorf("%s by the holder of token %d: got %s, error %v, want %s and active", op, l.Token, describe(res), err, want)
	}
}

func (w *workload) end(rnd *rand.Rand, l contract.Lease, s contract.Store) {
	e := w.e
	var res contract.Result
	var err error
	want := contract.OutcomeReleased
	if rnd.IntN(4) == 0 {
		want = contract.OutcomeRevoked
		r := e.newRevoke(l)
		r.Retention.HistoryPerKey = 4096
		res, err = s.Revoke(e.ctx(), r)
	} else {
		r := e.newRelease(l)
		r.Retention.HistoryPerKey = 4096
		res, err = s.Release(e.ctx(), r)
	}
	if err != nil || res.Outcome != want {
		e.Errorf("end of token %d: got %s, error %v, want %s", l.Token, describe(res), err, want)
	}
}

// judge wants the key's tenures apart and their tokens in order.
func (w *workload) judge(key contract.Key) {
	e := w.e
	e.Helper()
	all := w.tenures[key]
	slices.SortFunc(all, func(x, y tenure) int { return x.from.Compare(y.from) })
	for i := 1; i < len(all); i++ {
		x, y := all[i-1], all[i]
		if y.from.Before(x.to) {
			e.Fatalf("token %d was granted at %v, while token %d was held until %v at least", y.token, y.from, x.token, x.to)
		}
		if y.token <= x.token {
			e.Fatalf("token %d was granted after token %d", y.token, x.token)
		}
	}
}

// matchHistory wants the key's history to be those grants and ends in turns,
// and beside them at most grants that were undone.
func (w *workload) matchHistory(s contract.Store, key contract.Key) {
	e := w.e
	e.Helper()
	events := e.history(s, key.ID())
	slices.Reverse(events)
	var tokens []contract.Token
	for i, ev := range events {
		if acquired := ev.Kind == contract.EventAcquired; acquired != (i%2 == 0) {
			e.Fatalf("event %d of the key's history is %s: grants and ends must take turns", i, ev.Kind)
		}
		if i%2 == 1 && ev.LeaseID != events[i-1].LeaseID {
			e.Fatalf("event %d of the key's history ends a lease other than the one granted before it", i)
		}
	}
	var held []contract.Token
	for _, t := range w.tenures[key] {
		held = append(held, t.token)
	}
	for i := 0; i+1 < len(events); i += 2 {
		granted, end := events[i], events[i+1]
		undone := w.refused[granted.RequestID] && end.Kind == contract.EventReleased && !slices.Contains(held, granted.Token)
		if !undone {
			tokens = append(tokens, granted.Token)
		}
	}
	if len(events)%2 != 0 {
		last := events[len(events)-1]
		e.Fatalf("the key's history ends with the grant of token %d to %s under %s at %v, though every lease was ended",
			last.Token, last.Owner, last.RequestID, last.At)
	}
	if !slices.Equal(tokens, held) {
		e.Fatalf("the key's history has the grants %v, acknowledged were %v", tokens, held)
	}
}
