package memstore

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"leased/contract"
)

// TestModel_Invariants drives a Model with random operations and looks, after
// every step, for what doc.go promises.
func TestModel_Invariants(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := &walk{
			driver: newDriver(t), rt: t,
			seen: map[contract.LeaseID]contract.Lease{}, parked: map[CallID]contract.AcquireRequest{},
		}
		t.Repeat(map[string]func(*rapid.T){
			"":        func(t *rapid.T) { w.rt = t; w.check() },
			"acquire": func(t *rapid.T) { w.rt = t; w.randomAcquire() },
			"retry":   func(t *rapid.T) { w.rt = t; w.retry() },
			"leave":   func(t *rapid.T) { w.rt = t; w.leave() },
			"undo":    func(t *rapid.T) { w.rt = t; w.undo() },
			"renew":   func(t *rapid.T) { w.rt = t; w.renew() },
			"release": func(t *rapid.T) { w.rt = t; w.releaseSome() },
			"revoke":  func(t *rapid.T) { w.rt = t; w.revokeSome() },
			"tick":    func(t *rapid.T) { w.rt = t; w.tick() },
			"restart": func(t *rapid.T) { w.rt = t; clear(w.parked); w.do(Restart{}) },
			"floor":   func(t *rapid.T) { w.rt = t; w.floor() },
		})
	})
}

type walk struct {
	*driver
	rt     *rapid.T
	sent   []contract.AcquireRequest
	seen   map[contract.LeaseID]contract.Lease // the latest view of each lease
	order  []contract.LeaseID                  // of the grants
	parked map[CallID]contract.AcquireRequest  // who waits, as the caller sees it
	top    contract.Token                      // the highest granted, or the floor
	live   int                                 // grants minus ends, by the events
}

// do runs op on the Model and on a copy of it, which must agree, and books what
// came of it.
func (w *walk) do(op Op) Answer {
	w.step(Tick{}) // what time alone does is not the operation's doing
	before, twin := w.m.Clone(), w.m.Clone()
	a := w.step(op)
	if diff := cmp.Diff(a, twin.Step(w.now, op)); diff != "" {
		w.rt.Fatalf("%T: a copy answers otherwise (-model +copy):\n%s", op, diff)
	}
	if !twin.Equal(w.m) {
		w.rt.Fatalf("%T: a copy is in another state afterwards", op)
	}
	if o := a.Result.Outcome; o != 0 && !a.Parked && (!o.OK() || a.Result.Replayed) {
		switch op.(type) {
		case Leave, Undo: // their conflict is about the caller, not about the operation
		default:
			if !w.m.Equal(before) {
				w.rt.Fatalf("%T: answered %s, replayed %v, and changed the model", op, o, a.Result.Replayed)
			}
		}
	}
	w.book(a)
	return a
}

func (w *walk) book(a Answer) {
	for _, wake := range a.Wakes {
		if _, ok := w.parked[wake.Call]; !ok {
			w.rt.Fatalf("call %d is woken, which does not wait", wake.Call)
		}
		delete(w.parked, wake.Call)
		if wake.Err != nil || wake.Result.Outcome != contract.OutcomeAcquired {
			w.rt.Fatalf("call %d was told %s, error %v", wake.Call, wake.Result.Outcome, wake.Err)
		}
	}
	for _, ev := range a.Events {
		switch ev.Kind {
		case contract.EventAcquired:
			if ev.Token <= w.top {
				w.rt.Fatalf("token %d was granted after %d", ev.Token, w.top)
			}
			w.top = ev.Token
			w.live++
			w.order = append(w.order, ev.LeaseID)
		case contract.EventReleased, contract.EventExpired, contract.EventRevoked:
			w.live--
		}
	}
}

func (w *walk) check() {
	active, waiting := 0, 0
	for ref, k := range w.m.keys {
		for i := range k.leases {
			w.checkLease(k, i)
		}
		if k.active() != nil {
			active++
		} else if len(k.queue) > 0 {
			w.rt.Fatalf("key %s is free and %d wait", ref.id, len(k.queue))
		}
		for _, p := range k.queue {
			waiting += len(p.calls)
		}
	}
	if active != w.live {
		w.rt.Fatalf("%d leases are active; the events say %d", active, w.live)
	}
	if waiting != len(w.parked) {
		w.rt.Fatalf("%d calls wait, want %d", waiting, len(w.parked))
	}
}

func (w *walk) checkLease(k *keyState, i int) {
	l := k.leases[i]
	last := i == len(k.leases)-1
	switch {
	case l.State == contract.StateActive && (!last || !l.ExpiresAt.After(w.m.now)):
		w.rt.Fatalf("lease %d of %d is active, expires at %v, now %v", i+1, len(k.leases), l.ExpiresAt, w.m.now)
	case l.ExpiresAt.After(l.AcquiredAt.Add(l.MaxLifetime)):
		w.rt.Fatalf("lease acquired at %v expires at %v, beyond %v", l.AcquiredAt, l.ExpiresAt, l.MaxLifetime)
	case !last && l.Token >= k.leases[i+1].Token:
		w.rt.Fatalf("token %d is followed by %d", l.Token, k.leases[i+1].Token)
	}
	if old, ok := w.seen[l.ID]; ok && old.State.Terminal() {
		if diff := cmp.Diff(old, l); diff != "" {
			w.rt.Fatalf("a lease that had ended changed (-old +new):\n%s", diff)
		}
	}
	w.seen[l.ID] = l
}

func (w *walk) randomAcquire() {
	r := w.request(
		rapid.SampledFrom([]string{"alice", "bob", "carol"}).Draw(w.rt, "owner"),
		rapid.SampledFrom([]string{"a", "b"}).Draw(w.rt, "key"))
	r.Wait = time.Duration(rapid.IntRange(0, 1).Draw(w.rt, "wait"))
	r.TTL = time.Duration(rapid.IntRange(1, 20).Draw(w.rt, "ttl")) * time.Second
	r.Limits.WaitersPerKey = rapid.IntRange(0, 4).Draw(w.rt, "waiters")
	r.Limits.LeasesPerOwner = 0 // a waiter refused at its turn has a test of its own
	r.Retention.HistoryPerKey = rapid.IntRange(2, 5).Draw(w.rt, "history")
	w.sent = append(w.sent, r)
	w.send(r)
}

// retry repeats a request, sometimes as another one under the same id.
func (w *walk) retry() {
	if len(w.sent) == 0 {
		return
	}
	r := rapid.SampledFrom(w.sent).Draw(w.rt, "request")
	r.Wait = time.Duration(rapid.IntRange(0, 1).Draw(w.rt, "wait"))
	if rapid.IntRange(0, 4).Draw(w.rt, "other") == 0 {
		r.JobID = "other"
	}
	w.send(r)
}

func (w *walk) send(r contract.AcquireRequest) {
	if err := r.Validate(); err != nil {
		w.rt.Fatal(err)
	}
	w.calls++
	call := w.calls
	w.parked[call] = r
	op := Acquire{Request: r, Call: call, Nonce: [16]byte{byte(call >> 8), byte(call)}}
	if a := w.do(op); !a.Parked {
		delete(w.parked, call)
	}
}

func (w *walk) leave() {
	calls := make([]CallID, 0, len(w.parked))
	for call := range w.parked {
		calls = append(calls, call)
	}
	if len(calls) == 0 {
		return
	}
	slices.Sort(calls)
	call := rapid.SampledFrom(calls).Draw(w.rt, "call")
	delete(w.parked, call)
	if a := w.do(Leave{Call: call}); a.Result.Outcome != contract.OutcomeConflict || a.Result.Queue.Position == 0 {
		w.rt.Fatalf("leave: got %s at position %d, want a conflict and the place kept", a.Result.Outcome, a.Result.Queue.Position)
	}
}

// lease picks one that was ever granted, also ended and forgotten ones.
func (w *walk) lease() (contract.Lease, bool) {
	if len(w.order) == 0 {
		return contract.Lease{}, false
	}
	id := rapid.SampledFrom(w.order).Draw(w.rt, "lease")
	l, ok := w.seen[id]
	return l, ok
}

// undo takes back only what a Backend would: a grant that its caller has not
// gone on with, so with the answer still stored.
func (w *walk) undo() {
	l, ok := w.lease()
	if !ok {
		return
	}
	for _, r := range w.sent {
		if r.RequestID == l.RequestID {
			w.do(Undo{Request: r, LeaseID: l.ID})
		}
	}
}

func (w *walk) renew() {
	if l, ok := w.lease(); ok {
		r := w.renewal(l)
		r.TTL = time.Duration(rapid.IntRange(0, 90).Draw(w.rt, "ttl")) * time.Second
		r.Token += contract.Token(rapid.IntRange(0, 1).Draw(w.rt, "token"))
		w.do(Renew{Request: r})
		w.do(Renew{Request: r})
	}
}

func (w *walk) releaseSome() {
	if l, ok := w.lease(); ok {
		r := contract.ReleaseRequest{
			Namespace: namespace, RequestID: w.id(), Owner: l.Owner, Instance: l.Instance,
			LeaseID: l.ID, Token: l.Token, Retention: keep(),
		}
		w.do(Release{Request: r})
		w.do(Release{Request: r})
	}
}

func (w *walk) revokeSome() {
	if l, ok := w.lease(); ok {
		w.do(Revoke{Request: contract.RevokeRequest{
			Namespace: namespace, RequestID: w.id(), Principal: "root", LeaseID: l.ID,
			Mode: contract.RevokeRight, Reason: fmt.Sprint("reason ", w.ids), Retention: keep(),
		}})
	}
}

func (w *walk) tick() {
	seconds := rapid.SampledFrom([]int{1, 5, 10, 60, 601, 3601}).Draw(w.rt, "seconds")
	w.now = w.now.Add(time.Duration(seconds) * time.Second)
	w.book(w.step(Tick{}))
}

func (w *walk) floor() {
	above := contract.Token(rapid.IntRange(1, 1000).Draw(w.rt, "above"))
	w.do(RaiseFloor{Request: contract.RaiseFloorRequest{Namespace: namespace, Above: above}})
	w.top = max(w.top, above)
}
