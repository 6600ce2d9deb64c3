package history

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"leased/contract"
	"leased/contract/memstore"
)

// simulation has workers call memstore's step function, on a clock of its own. Each
// call is carried out at some instant between when it was made and when it was
// answered, and some answers are lost.
type simulation struct {
	rng   *rand.Rand
	model *memstore.Model
	key   contract.Key
	h     History
	calls int
	// parked has the calls that wait.
	parked map[memstore.CallID]*parked
	due    []*worker
	// granted has the leases that anybody was told of.
	granted []*contract.Lease
}

type parked struct {
	w      *worker
	o      *Op
	leaves int64
}

type worker struct {
	name    string
	at      int64 // when its next call is carried out
	made    int64 // when it was made
	next    func() memstore.Op
	grant   *contract.Lease
	request contract.AcquireRequest
	op      *Op
	waits   bool
}

func (s *simulation) instant(ns int64) time.Time { return time.Unix(1_800_000_000, ns) }

// some returns up to so many milliseconds, in nanoseconds.
func (s *simulation) some(ms int64) int64 { return s.rng.Int64N(ms*millisecond) + 1 }

func (s *simulation) retention() contract.Retention {
	return contract.Retention{Idempotency: time.Hour, History: time.Hour, HistoryPerKey: 1 << 16}
}

// plan makes w's next call, at some time after its last answer.
func (s *simulation) plan(w *worker, answered int64) {
	s.calls++
	w.made = answered + s.some(60)
	if s.rng.IntN(20) == 0 { // beyond the end of what it holds
		w.made += s.some(2000)
	}
	w.at = w.made + s.some(20)
	o := &Op{ID: fmt.Sprint(w.name, "-", s.calls), Client: w.name, Key: "k", CalledNS: w.made}
	w.op = o
	switch l := w.grant; {
	case l == nil || s.rng.IntN(6) == 0: // a new request, or the last one again
		if l == nil || s.rng.IntN(3) == 0 {
			w.request = contract.AcquireRequest{
				Namespace: "n", RequestID: o.ID, Owner: "o", Instance: "i" + o.ID, Key: s.key, TTL: time.Second, MaxLifetime: time.Hour,
				JobID: "j", Retention: s.retention(),
			}
		}
		r := w.request
		if r.Wait = 0; s.rng.IntN(2) == 0 {
			r.Wait = time.Duration(s.some(700))
		}
		o.Verb, o.Request, o.Instance, o.Job = Acquire, r.RequestID, r.Instance, r.JobID
		o.TTLMS, o.WaitMS = r.TTL.Milliseconds(), r.Wait.Milliseconds()
		op := memstore.Acquire{Request: r, Call: memstore.CallID(s.calls)}
		binary.BigEndian.PutUint64(op.Nonce[:], uint64(s.calls))
		w.next = func() memstore.Op { return op }
	default:
		o.Verb, o.Instance, o.Lease, o.Token = []string{Renew, Release, Check, Renew, Release, Check, Revoke}[s.rng.IntN(7)], l.Instance, l.ID.String(), uint64(l.Token)
		if o.Verb == Revoke {
			// Somebody else's as well, and the same revocation again.
			l = s.granted[s.rng.IntN(len(s.granted))]
			o.Instance, o.Lease, o.Token, o.Reason = "", l.ID.String(), 0, "because"
			if o.Request = "revoke." + o.Lease; s.rng.IntN(2) == 0 {
				o.Request = o.ID
			}
			w.next = func() memstore.Op { return s.use(o, l) }
			return
		}
		if s.rng.IntN(10) == 0 {
			o.Token++
		}
		o.Request = o.ID
		w.next = func() memstore.Op { return s.use(o, l) }
	}
}

func (s *simulation) use(o *Op, l *contract.Lease) memstore.Op {
	token := contract.Token(o.Token)
	switch o.Verb {
	case Renew:
		return memstore.Renew{Request: contract.RenewRequest{Namespace: "n", RequestID: o.Request, Owner: "o", Instance: l.Instance, LeaseID: l.ID, Token: token, Retention: s.retention()}}
	case Release:
		return memstore.Release{Request: contract.ReleaseRequest{Namespace: "n", RequestID: o.Request, Owner: "o", Instance: l.Instance, LeaseID: l.ID, Token: token, Retention: s.retention()}}
	}
	if o.Verb == Revoke {
		return memstore.Revoke{Request: contract.RevokeRequest{
			Namespace: "n", RequestID: o.Request, Principal: "operator", LeaseID: l.ID, Mode: contract.RevokeRight, Reason: o.Reason, Retention: s.retention(),
		}}
	}
	return memstore.Check{Request: contract.CheckRequest{Namespace: "n", KeyID: s.key.ID(), Token: token}}
}

// tell answers w's call, or loses the answer, and plans the next.
func (s *simulation) tell(w *worker, o *Op, at int64, res contract.Result) {
	returned := at + s.some(20)
	o.ReturnedNS = returned
	if s.rng.IntN(8) == 0 {
		o.Answer = Answer{Outcome: Lost}
		if s.rng.IntN(2) == 0 {
			o.ReturnedNS = 0
		}
	} else {
		o.Answer = Answer{Outcome: res.Outcome.String(), Replayed: res.Replayed}
		if l := res.Lease; l != nil && res.Outcome == contract.OutcomeConflict {
			o.Answer.Holder = l.Instance
		} else if l != nil {
			o.Answer.Lease, o.Answer.Token = l.ID.String(), uint64(l.Token)
			o.Answer.TTLMS, o.Answer.ExpiresInMS = l.TTL.Milliseconds(), l.ExpiresIn.Milliseconds()
			if o.Verb == Acquire {
				w.grant = l
				s.granted = append(s.granted, l)
			}
		}
	}
	if o.Verb == Release && s.rng.IntN(2) == 0 {
		w.grant = nil // else it goes on to use what is over
	}
	s.h.Ops = append(s.h.Ops, *o)
	w.waits = false
	s.plan(w, returned)
}

// step takes the model a step, and tells those who waited.
func (s *simulation) step(at int64, op memstore.Op) memstore.Answer {
	a := s.model.Step(s.instant(at), op)
	for _, e := range a.Events {
		if e.Kind != contract.EventRenewed {
			s.h.Events = append(s.h.Events, Event{Key: "k", Event: e.Kind.String(), Lease: e.LeaseID.String(), Token: uint64(e.Token), Request: e.RequestID, Reason: e.Reason})
		}
	}
	for _, wake := range a.Wakes {
		p := s.parked[wake.Call]
		delete(s.parked, wake.Call)
		s.tell(p.w, p.o, at, wake.Result)
	}
	return a
}

// run makes so many calls.
func (s *simulation) run(workers, calls int) {
	for i := range workers {
		w := &worker{name: fmt.Sprint("w", i)}
		s.plan(w, s.some(100))
		s.due = append(s.due, w)
	}
	for s.calls < calls {
		// What is next: a worker, the end of a wait, or the end of a lease.
		w := slices.MinFunc(s.due, func(a, b *worker) int {
			return cmp.Or(cmp.Compare(boolInt(a.waits), boolInt(b.waits)), cmp.Compare(a.at, b.at))
		})
		at := int64(never)
		if !w.waits {
			at = w.at
		}
		var leaves memstore.CallID
		for id, p := range s.parked {
			if p.leaves < at {
				at, leaves = p.leaves, id
			}
		}
		if end, ok := s.model.NextExpiry(); ok && end.Before(s.instant(at)) {
			s.step(end.Sub(s.instant(0)).Nanoseconds(), memstore.Tick{})
			continue
		}
		if p := s.parked[leaves]; p != nil {
			a := s.step(at, memstore.Leave{Call: leaves})
			delete(s.parked, leaves)
			s.tell(p.w, p.o, at, a.Result)
			continue
		}
		op := w.next()
		if a := s.step(at, op); a.Parked {
			w.waits = true
			s.parked[memstore.CallID(s.number(w.op))] = &parked{w, w.op, at + w.op.WaitMS*millisecond}
		} else {
			s.tell(w, w.op, at, a.Result)
		}
	}
}

// number is what the call's id ends with.
func (s *simulation) number(o *Op) (n uint64) {
	_, _ = fmt.Sscanf(o.ID[len(o.Client)+1:], "%d", &n) // made by plan
	return n
}

func boolInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

// TestCheck_memstore: whatever the store does that is the law in the simplest code is
// accepted, over many seeds.
func TestCheck_memstore(t *testing.T) {
	for seed := range uint64(50) {
		key, err := contract.Key{Tenant: "acme", Target: contract.Target{Type: contract.TargetName, ID: "k"}, Actor: "a"}.Normalize()
		if err != nil {
			t.Fatal(err)
		}
		s := &simulation{
			rng: rand.New(rand.NewPCG(seed, 0)), model: memstore.NewModel(16), key: key, parked: map[memstore.CallID]*parked{},
		}
		s.run(2+int(seed%6), 400)
		slices.SortFunc(s.h.Ops, func(a, b Op) int { return cmp.Compare(a.CalledNS, b.CalledNS) })
		for _, v := range s.h.Check(Promise{Slack: time.Millisecond}) {
			t.Errorf("seed %d: %v", seed, v)
		}
		if t.Failed() {
			for i := range s.h.Ops {
				t.Log(s.h.Ops[i].String())
			}
			return
		}
	}
}
