package memstore

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"leased/contract"
)

func TestModel_HistoryKeepsTheNewest(t *testing.T) {
	d := newDriver(t)
	r := d.request("alice", "k")
	r.Retention.HistoryPerKey = 3
	first := d.granted(d.acquire(r))
	d.step(Renew{Request: d.renewal(first)}) // restores 8 for this key, and adds nothing
	d.release(first)
	second := d.request("bob", "k")
	second.Retention.HistoryPerKey = 3
	l := d.granted(d.acquire(second))
	if diff := cmp.Diff([]string{"acquired", "released", "acquired"}, d.history()); diff != "" {
		t.Errorf("history (-want +got):\n%s", diff)
	}
	d.revoke(l) // with the 8 of its own request
	third := d.request("carol", "k")
	third.Retention.HistoryPerKey = 2
	d.granted(d.acquire(third))
	if diff := cmp.Diff([]string{"acquired", "revoked"}, d.history()); diff != "" {
		t.Errorf("history (-want +got):\n%s", diff)
	}
	if got := d.get(first).Outcome; got != contract.OutcomeNotFound {
		t.Errorf("a lease without an event: got %s, want not_found", got)
	}
	if got := d.get(l).Outcome; got != contract.OutcomeFound {
		t.Errorf("a lease with one event left: got %s, want found", got)
	}
}

// TestModel_AnswersOutliveHistory holds the retention of answers against
// the shortest history there can be.
func TestModel_AnswersOutliveHistory(t *testing.T) {
	d := newDriver(t)
	r := d.request("alice", "k")
	r.Retention.History = 0
	l := d.granted(d.acquire(r))
	d.advance(10 * time.Second)
	if got := d.key().Outcome; got != contract.OutcomeNotFound {
		t.Fatalf("key with nothing remembered: got %s, want not_found", got)
	}
	if got := d.get(l).Outcome; got != contract.OutcomeNotFound {
		t.Errorf("get: got %s, want not_found", got)
	}
	if got := d.step(Renew{Request: d.renewal(l)}).Result.Outcome; got != contract.OutcomeNotFound {
		t.Errorf("renew: got %s, want not_found", got)
	}
	d.advance(10*time.Minute - 10*time.Second)
	a := d.acquire(r)
	if a.Result.Outcome != contract.OutcomeEndedExpired || !a.Result.Replayed || a.Result.Lease.ID != l.ID {
		t.Fatalf("replay at the end of the retention: got %+v, want ended_expired, replayed", a.Result)
	}
	d.advance(1)
	if again := d.granted(d.acquire(r)); again.Token <= l.Token {
		t.Errorf("past the retention: token %d, want one above %d", again.Token, l.Token)
	}
}

func TestModel_ForgetsEverythingInTheEnd(t *testing.T) {
	d := newDriver(t)
	for _, key := range []string{"a", "b"} {
		l := d.grant("alice", key)
		d.step(Renew{Request: d.renewal(l)})
		d.step(Leave{Call: d.park(d.request("bob", key))})
		d.release(l)
	}
	d.advance(time.Hour)
	if keys, answers := len(d.m.keys), len(d.m.answers); keys != 0 || answers != 0 {
		t.Errorf("after every retention: %d keys and %d answers are left", keys, answers)
	}
	if got := d.grant("alice", "a").Token; got != 3 {
		t.Errorf("token of a forgotten key: got %d, want 3", got)
	}
}

func TestModel_TokenSpaceEnds(t *testing.T) {
	d := newDriver(t)
	d.step(RaiseFloor{Request: contract.RaiseFloorRequest{Namespace: namespace, Above: contract.MaxToken - 1}})
	l := d.grant("alice", "k")
	if l.Token != contract.MaxToken {
		t.Fatalf("token: got %d, want %d", l.Token, contract.MaxToken)
	}
	call := d.park(d.request("bob", "k"))
	a := d.release(l)
	if len(a.Wakes) != 1 || a.Wakes[0].Call != call || contract.CodeOf(a.Wakes[0].Err) != contract.CodeInternal {
		t.Fatalf("a waiter without a token left: woke %v, want an internal error for call %d", woken(a), call)
	}
	before := d.m.Clone()
	if a := d.acquire(d.request("carol", "k")); contract.CodeOf(a.Err) != contract.CodeInternal {
		t.Errorf("acquire without a token left: got %s, error %v, want internal", a.Result.Outcome, a.Err)
	}
	if !d.m.Equal(before) {
		t.Error("the refusal changed the model")
	}
	other := d.request("alice", "k")
	other.Namespace = "other"
	if got := d.granted(d.acquire(other)).Token; got != 1 {
		t.Errorf("token in another namespace: got %d, want 1", got)
	}
}

func TestModel_StreamGap(t *testing.T) {
	d := newDriver(t) // a ring of 16
	l := d.grant("alice", "k")
	for range 20 {
		d.step(Renew{Request: d.renewal(l)})
	}
	watch := contract.WatchRequest{Namespace: namespace}
	read := func(cursor uint64) (kinds []string, end uint64) {
		for {
			a := d.step(Read{Request: watch, Cursor: cursor})
			if cursor = a.Cursor; a.Event == nil {
				return kinds, cursor
			}
			kinds = append(kinds, a.Event.Kind.String()+" "+a.Event.ID[14:])
		}
	}
	kinds, end := read(1)
	if len(kinds) != 17 || kinds[0] != "gap 05" || kinds[1] != "renewed 06" || end != 21 {
		t.Errorf("from before the ring: got %v to %d, want a gap up to 05 and 16 renewals to 21", kinds, end)
	}
	if kinds, _ := read(5); len(kinds) != 16 || kinds[0] != "renewed 06" {
		t.Errorf("from the last that was dropped: got %v, want 16 renewals and no gap", kinds)
	}
	other := contract.WatchRequest{Namespace: "other"}
	if a := d.step(Read{Request: other, Cursor: 1}); a.Event != nil {
		t.Errorf("another namespace: got %+v, want no event", a.Event)
	}
	for _, bad := range []string{"0000000000000016", "1", "x", "000000000000000F", "-000000000000001", "0x00000000000001"} {
		watch.After = bad
		if a := d.step(Watch{Request: watch}); contract.CodeOf(a.Err) != contract.CodeInvalid {
			t.Errorf("watch after %q: got cursor %d, want invalid", bad, a.Cursor)
		}
	}
}
