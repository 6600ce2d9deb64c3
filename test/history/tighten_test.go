package history

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"leased/contract"
	"leased/contract/memstore"
)

// TestCheck_unheard: of grants that nobody was told of there can be many, each of which
// could have happened at any time if its token did not say when.
func TestCheck_unheard(t *testing.T) {
	var s script
	for i := range int64(60) {
		at, token := 100*i, uint64(2*i+1)
		unheard, heard := fmt.Sprint("u", i), fmt.Sprint("h", i)
		s.acquire(at, at+10, unheard, Answer{Outcome: Unknown})
		s.event("acquired", unheard, unheard, token)
		s.event("released", unheard, unheard, token)
		s.grant(at+20, at+30, heard, token+1)
		for range 3 {
			s.conflict(at+35, at+60, "other", heard)
		}
		s.release(at+50, at+70, heard, token+1, Released)
	}
	began := time.Now()
	for _, v := range s.h.Check(promise()) {
		t.Error(v)
	}
	t.Logf("judged in %v", time.Since(began))
}

// TestTighten_undone: of two leases of one request it does not take one for the other.
func TestTighten_undone(t *testing.T) {
	var s script
	s.acquire(0, 10, "a", Answer{Outcome: Unknown}).WaitMS = 500
	s.event("acquired", "first", "a", 1)
	s.event("released", "first", "a", 1)
	s.event("acquired", "a", "a", 2)
	s.acquire(50, 60, "a", acquired("a", 2)).WaitMS = 500
	s.conflict(30, 70, "b", "a")
	s.conflict(200, 210, "b", "a")
	leases := s.h.leases()
	steps := s.h.settle("k", leases)
	tighten(steps, leases)
	for _, st := range steps {
		if st.what == release && st.ends > 60*millisecond {
			t.Errorf("%v of %d to %d: want it before the grant that followed", st, st.called, st.ends)
		}
	}
	if got := order(steps); got != porcupine.Ok {
		t.Errorf("there is an order, got %v", got)
	}
}

// TestTighten_sameVerdict: whether there is an order does not depend on it, neither for
// what is right nor after something in it was changed.
func TestTighten_sameVerdict(t *testing.T) {
	key, err := contract.Key{Tenant: "acme", Target: contract.Target{Type: contract.TargetName, ID: "k"}, Actor: "a"}.Normalize()
	if err != nil {
		t.Fatal(err)
	}
	verdicts := map[porcupine.CheckResult]int{}
	for seed := range uint64(1000) {
		s := &simulation{
			rng: rand.New(rand.NewPCG(seed, 1)), model: memstore.NewModel(16), key: key, parked: map[memstore.CallID]*parked{},
		}
		s.run(3, 40)
		changed := ""
		if seed%4 != 0 {
			o := &s.h.Ops[s.rng.IntN(len(s.h.Ops))]
			outcomes := []string{Conflict, Renewed, Released, Current, EndedExpired, EndedReleased, EndedRevoked, StaleToken, Lost}
			changed = o.ID + " was answered " + o.Answer.Outcome
			if o.Answer.Outcome = outcomes[s.rng.IntN(len(outcomes))]; seed%2 == 0 {
				// or at another time
				late := s.some(1000)
				o.CalledNS, o.ReturnedNS = o.CalledNS+late, max(o.ReturnedNS, 1)+late
			}
		}
		leases := s.h.leases()
		steps := s.h.settle("k", leases)
		want := order(steps)
		tighten(steps, leases)
		got := order(steps)
		if verdicts[got]++; got != want && got != porcupine.Unknown && want != porcupine.Unknown {
			t.Errorf("seed %d (%s): %v, and %v before the steps were tightened", seed, changed, got, want)
		}
	}
	t.Logf("verdicts: %v", verdicts)
	if verdicts[porcupine.Ok] < 100 || verdicts[porcupine.Illegal] < 100 {
		t.Errorf("verdicts are %v, want many of both", verdicts)
	}
}

func order(steps []*step) porcupine.CheckResult {
	var ops []porcupine.Operation
	for i, s := range steps {
		ops = append(ops, porcupine.Operation{ClientId: i, Input: s, Call: s.called, Return: s.ends})
	}
	return porcupine.CheckOperationsTimeout(model(), ops, time.Second)
}
