package contracttest_test

import (
	"sync"
	"time"

	"leased/contract"
	"leased/contract/contracttest"
	"leased/contract/memstore"
)

// A broken store is memstore with one fault. Most faults are a step function
// put in front of the right one: it changes what goes in or what comes out, or
// takes other steps than it was asked to, and everything around it (lock,
// parked calls, streams, clock) stays right.

// step is a step function over a right Model.
type step func(m *memstore.Model, now time.Time, op memstore.Op) memstore.Answer

// machine is a memstore.Machine with a wrong step.
type machine struct {
	*memstore.Model
	wrong step
}

func (m machine) Step(now time.Time, op memstore.Op) memstore.Answer {
	return m.wrong(m.Model, now, op)
}

// ring is what the suite's stores keep for streams: little, so that a rule which
// wants to see a gap need not write much.
const ring = 256

// inside returns the maker of a store whose step is wrong.
func inside(fault func() step) func(contracttest.TB) *contracttest.Harness {
	return func(t contracttest.TB) *contracttest.Harness {
		return harness(t, machine{memstore.NewModel(ring), fault()}, asItIs)
	}
}

// around returns the maker of a store that is right inside and wrapped wrongly.
// Each handle is wrapped by what fault returns, called once for each store.
func around(fault func() wrap) func(contracttest.TB) *contracttest.Harness {
	return func(t contracttest.TB) *contracttest.Harness {
		return harness(t, memstore.NewModel(ring), fault())
	}
}

// wrap puts something around a handle. The second result kills it.
type wrap func(t contracttest.TB, s *memstore.Store) (outer contract.Store, kill func())

func asItIs(_ contracttest.TB, s *memstore.Store) (contract.Store, func()) { return s, s.Kill }

// right makes the store that every rule must pass.
func right(t contracttest.TB) *contracttest.Harness {
	return harness(t, memstore.NewModel(ring), asItIs)
}

func harness(t contracttest.TB, m memstore.Machine, w wrap) *contracttest.Harness {
	t.Helper()
	b := memstore.New(memstore.Options{Machine: m})
	var mu sync.Mutex
	kills := map[contract.Store]func(){}
	return &contracttest.Harness{
		Name: "memstore",
		Open: func(contracttest.TB) contract.Store {
			outer, kill := w(t, b.Open())
			mu.Lock()
			defer mu.Unlock()
			kills[outer] = kill
			return outer
		},
		Kill: func(_ contracttest.TB, s contract.Store) {
			mu.Lock()
			kill := kills[s]
			mu.Unlock()
			kill()
		},
		Reopen:     func(contracttest.TB) { b.Restart() },
		Advance:    func(_ contracttest.TB, d time.Duration) { b.Advance(d) },
		Guarantees: memstore.Guarantees(),
	}
}

// eachResult calls f for every result in an answer.
func eachResult(a *memstore.Answer, f func(*contract.Result)) {
	if a.Result.Outcome != 0 {
		f(&a.Result)
	}
	for i := range a.Bulk.Items {
		f(&a.Bulk.Items[i].Result)
	}
	for i := range a.Wakes {
		if a.Wakes[i].Err == nil {
			f(&a.Wakes[i].Result)
		}
	}
}

// eachLease calls f for every lease in an answer, so that a fault shows the same
// wherever one looks.
func eachLease(a *memstore.Answer, f func(*contract.Lease)) {
	eachResult(a, func(res *contract.Result) {
		if res.Lease != nil {
			f(res.Lease)
		}
	})
	if a.Key.Lease != nil {
		f(a.Key.Lease)
	}
	if a.Key.Last != nil {
		f(a.Key.Last)
	}
	for i := range a.List.Leases {
		f(&a.List.Leases[i])
	}
}

// eachEvent calls f for every event in an answer.
func eachEvent(a *memstore.Answer, f func(*contract.Event)) {
	for i := range a.Events {
		f(&a.Events[i])
	}
	for i := range a.History.Events {
		f(&a.History.Events[i])
	}
	if a.Event != nil {
		f(a.Event)
	}
}

// holder returns the active lease of a key, or nil.
func holder(m *memstore.Model, now time.Time, namespace string, id contract.KeyID) *contract.Lease {
	return m.Step(now, memstore.GetKey{Request: contract.GetKeyRequest{Namespace: namespace, KeyID: id}}).Key.Lease
}

// lookup returns the lease with the id, or nil.
func lookup(m *memstore.Model, now time.Time, namespace string, id contract.LeaseID) *contract.Lease {
	return m.Step(now, memstore.Get{Request: contract.GetRequest{Namespace: namespace, LeaseID: id}}).Result.Lease
}

// revived returns a lease that has ended as if it had just been granted.
func revived(l contract.Lease, now time.Time) *contract.Lease {
	l.State, l.EndedAt, l.EndedBy, l.Reason = contract.StateActive, time.Time{}, "", ""
	l.ExpiresAt, l.ExpiresIn = now.Add(l.TTL), l.TTL
	return &l
}

// also adds what a further step caused to the answer of the first.
func also(a *memstore.Answer, more memstore.Answer) {
	a.Wakes = append(a.Wakes, more.Wakes...)
	a.Events = append(a.Events, more.Events...)
}
