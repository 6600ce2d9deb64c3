package memstore

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"leased/contract"
)

// Rules that the suite holds every store to are left to it. Here is what only
// the model can show: exact instants, and what is forgotten when.

func TestModel_ExpiryIsExact(t *testing.T) {
	d := newDriver(t)
	l := d.grant("alice", "k")
	if a := d.advance(10*time.Second - 1); len(a.Events) != 0 {
		t.Fatalf("1 ns before the end: got events %+v, want none", a.Events)
	}
	if got := d.get(l).Lease; got.State != contract.StateActive || got.ExpiresIn != 1 {
		t.Fatalf("1 ns before the end: got %s with %v left, want active with 1ns", got.State, got.ExpiresIn)
	}
	a := d.advance(1)
	if len(a.Events) != 1 || a.Events[0].Kind != contract.EventExpired || a.Events[0].Late != 0 {
		t.Fatalf("at the end: got events %+v, want one expiry, not late", a.Events)
	}
	if got := d.get(l).Lease; got.State != contract.StateExpired || !got.EndedAt.Equal(l.ExpiresAt) {
		t.Fatalf("at the end: got %s at %v, want expired at %v", got.State, got.EndedAt, l.ExpiresAt)
	}
}

func TestModel_ExpiryRecordedLate(t *testing.T) {
	d := newDriver(t)
	l := d.grant("alice", "k")
	waiter := d.request("bob", "k")
	call := d.park(waiter)
	a := d.advance(13 * time.Second)
	if got, want := a.Events[0].Late, 3*time.Second; got != want || !a.Events[0].At.Equal(d.now) {
		t.Errorf("expiry: got %v late at %v, want %v at %v", got, a.Events[0].At, want, d.now)
	}
	if got := d.get(l).Lease.EndedAt; !got.Equal(l.ExpiresAt) {
		t.Errorf("ended at %v, want %v", got, l.ExpiresAt)
	}
	if len(a.Wakes) != 1 || a.Wakes[0].Call != call {
		t.Fatalf("wakes: got %v, want call %d", woken(a), call)
	}
	if got := a.Wakes[0].Result.Lease; !got.AcquiredAt.Equal(d.now) || got.ExpiresIn != waiter.TTL {
		t.Errorf("the waiter's lease: acquired at %v with %v left, want %v and %v", got.AcquiredAt, got.ExpiresIn, d.now, waiter.TTL)
	}
}

func TestModel_Renew(t *testing.T) {
	tests := []struct {
		name     string
		ttl      time.Duration // asked for
		at       time.Duration // after the grant, of 10 s in a lifetime of 60 s
		wantTTL  time.Duration
		wantLast bool // the maximum lifetime is reached
	}{
		{name: "same", at: 4 * time.Second, wantTTL: 10 * time.Second},
		{name: "longer", ttl: 30 * time.Second, at: 4 * time.Second, wantTTL: 30 * time.Second},
		{name: "shorter ends sooner", ttl: time.Second, at: 4 * time.Second, wantTTL: time.Second},
		{name: "up to the cap", ttl: 56 * time.Second, at: 4 * time.Second, wantTTL: 56 * time.Second, wantLast: true},
		{name: "past the cap", ttl: time.Hour, at: 4 * time.Second, wantTTL: 56 * time.Second, wantLast: true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			d := newDriver(t)
			l := d.grant("alice", "k")
			d.advance(tt.at)
			r := d.renewal(l)
			r.TTL = tt.ttl
			res := d.step(Renew{Request: r}).Result
			if res.Outcome != contract.OutcomeRenewed {
				t.Fatalf("got %s, want renewed", res.Outcome)
			}
			got := *res.Lease
			want := l
			want.TTL, want.ExpiresIn, want.Renewals = tt.wantTTL, tt.wantTTL, 1
			want.RenewedAt, want.ExpiresAt = d.now, d.now.Add(tt.wantTTL)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("renewed lease (-want +got):\n%s", diff)
			}
			if last := got.ExpiresAt.Equal(l.AcquiredAt.Add(l.MaxLifetime)); last != tt.wantLast {
				t.Errorf("at the maximum lifetime: got %v, want %v", last, tt.wantLast)
			}
		})
	}
}

func TestModel_RenewReplayCountsDownItsOwnExpiry(t *testing.T) {
	d := newDriver(t)
	l := d.grant("alice", "k")
	first := d.renewal(l)
	want := *d.step(Renew{Request: first}).Result.Lease
	d.advance(6 * time.Second)
	second := d.renewal(l)
	d.step(Renew{Request: second})
	for _, left := range []time.Duration{4 * time.Second, 0} {
		res := d.step(Renew{Request: first}).Result
		want.ExpiresIn = left
		if diff := cmp.Diff(contract.Result{Outcome: contract.OutcomeRenewed, Lease: &want, Replayed: true}, res); diff != "" {
			t.Errorf("replay (-want +got):\n%s", diff)
		}
		d.advance(9 * time.Second) // the second renewal still has a second left
	}
	if res := d.step(Renew{Request: first}).Result; res.Outcome != contract.OutcomeEndedExpired {
		t.Errorf("replay when the lease is over: got %s, want ended_expired", res.Outcome)
	}
}

func TestModel_UndoForgetsTheAnswer(t *testing.T) {
	d := newDriver(t)
	l := d.grant("alice", "k")
	gone, next := d.request("bob", "k"), d.request("carol", "k")
	d.park(gone)
	nextCall := d.park(next)
	grant := d.release(l).Wakes[0].Result.Lease

	a := d.step(Undo{Request: gone, LeaseID: grant.ID})
	if len(a.Wakes) != 1 || a.Wakes[0].Call != nextCall || a.Wakes[0].Result.Outcome != contract.OutcomeAcquired {
		t.Fatalf("undo: woke %v, want a grant for call %d", woken(a), nextCall)
	}
	if a.Result.Outcome != contract.OutcomeConflict || a.Result.Lease.Owner != "carol" {
		t.Errorf("undo answers %s, want the conflict with carol", a.Result.Outcome)
	}
	undone := d.get(*grant).Lease
	if undone.State != contract.StateReleased || undone.EndedBy != "bob" || undone.Reason != undoneReason {
		t.Errorf("undone lease: %s by %q: %q", undone.State, undone.EndedBy, undone.Reason)
	}
	if a := d.acquire(gone); a.Result.Outcome != contract.OutcomeConflict || a.Result.Replayed {
		t.Errorf("retry: got %s, replayed %v, want a fresh conflict", a.Result.Outcome, a.Result.Replayed)
	}
	d.release(*d.key().Lease)
	if again := d.granted(d.acquire(gone)); again.Token <= undone.Token || again.ID == undone.ID {
		t.Errorf("retry of a free key: token %d after %d, want a new grant", again.Token, undone.Token)
	}
}

func TestModel_Queue(t *testing.T) {
	d := newDriver(t)
	l := d.grant("alice", "k")
	away, lost, back, last := d.request("away", "k"), d.request("lost", "k"), d.request("back", "k"), d.request("last", "k")
	lostCall, backCall, lastCall := d.park(lost), d.park(back), d.park(last)
	awayCall := d.park(away)
	twin := d.park(back)

	want := func(a Answer, length, position int) {
		t.Helper()
		if diff := cmp.Diff(contract.Queue{Length: length, Position: position}, a.Result.Queue); diff != "" {
			t.Errorf("queue (-want +got):\n%s", diff)
		}
	}
	want(d.step(Leave{Call: lostCall}), 3, 1)
	want(d.step(Leave{Call: backCall}), 3, 1) // its twin still waits there
	want(d.step(Leave{Call: twin}), 2, 1)
	want(d.step(Leave{Call: awayCall}), 1, 2)

	look := back
	look.Wait = 0
	want(d.acquire(look), 1, 1) // looking does not bring it back
	other := back
	other.TTL++
	if a := d.acquire(other); a.Result.Outcome != contract.OutcomeRequestIDReused {
		t.Errorf("another request under a waiter's id: got %s, want request_id_reused", a.Result.Outcome)
	}
	backCall = d.park(back)
	twin = d.park(back)

	a := d.release(l)
	grant := a.Wakes[0].Result.Lease
	if len(a.Wakes) != 2 || a.Wakes[0].Call != backCall || a.Wakes[1].Call != twin ||
		a.Wakes[0].Result.Replayed || !a.Wakes[1].Result.Replayed || a.Wakes[1].Result.Lease.ID != grant.ID {
		t.Fatalf("release woke %v, want one grant for calls %d and %d", woken(a), backCall, twin)
	}
	if a := d.acquire(lost); a.Result.Queue.Position != 0 {
		t.Errorf("who was passed over: got position %d, want none", a.Result.Queue.Position)
	}
	a = d.release(*grant)
	if len(a.Wakes) != 1 || a.Wakes[0].Call != lastCall {
		t.Fatalf("release woke %v, want call %d", woken(a), lastCall)
	}
	a = d.release(*a.Wakes[0].Result.Lease)
	if now := d.key(); len(a.Wakes) != 0 || now.Lease != nil || now.Queue.Length != 0 {
		t.Errorf("with only waiters that are away: woke %v, holder %v, want a free key", woken(a), now.Lease)
	}
}

func TestModel_AwayPlaceIsDroppedInTime(t *testing.T) {
	d := newDriver(t)
	r := d.request("alice", "k")
	r.TTL, r.MaxLifetime = time.Hour, time.Hour
	d.granted(d.acquire(r))
	first, second := d.request("bob", "k"), d.request("carol", "k")
	d.step(Leave{Call: d.park(first)})
	d.park(second)
	d.advance(10 * time.Minute)
	first.Wait = 0
	if got := d.acquire(first).Result.Queue.Position; got != 1 {
		t.Errorf("after the retention: position %d, want 1", got)
	}
	d.advance(1)
	if got := d.acquire(first).Result.Queue.Position; got != 0 {
		t.Errorf("past the retention: position %d, want none", got)
	}
	if got := d.key().Queue.Length; got != 1 {
		t.Errorf("who is present waits for ever: got %d waiters, want 1", got)
	}
}

func TestModel_RestartLeavesPlacesAway(t *testing.T) {
	d := newDriver(t)
	l := d.grant("alice", "k")
	first, second := d.request("bob", "k"), d.request("carol", "k")
	d.park(first)
	d.park(second)
	d.step(Restart{})
	if got := d.key().Queue.Length; got != 0 {
		t.Errorf("after a restart %d wait, want 0", got)
	}
	secondCall := d.park(second)
	firstCall := d.park(first)
	a := d.release(l)
	if len(a.Wakes) != 1 || a.Wakes[0].Call != firstCall {
		t.Fatalf("woke %v, want call %d, which came first before the restart", woken(a), firstCall)
	}
	if a := d.release(*a.Wakes[0].Result.Lease); len(a.Wakes) != 1 || a.Wakes[0].Call != secondCall {
		t.Fatalf("woke %v, want call %d", woken(a), secondCall)
	}
}

func TestModel_QuotaAtTheTurn(t *testing.T) {
	d := newDriver(t)
	l := d.grant("alice", "k")
	r := d.request("bob", "k")
	r.Limits.LeasesPerOwner = 1
	call := d.park(r)
	next := d.park(d.request("carol", "k"))
	d.grant("bob", "other")
	a := d.release(l)
	want := []Wake{
		{Call: call, Result: contract.Result{Outcome: contract.OutcomeQuotaExceeded, Limit: "leases_per_owner"}},
		{Call: next, Result: contract.Result{Outcome: contract.OutcomeAcquired, Lease: d.key().Lease}},
	}
	if diff := cmp.Diff(want, a.Wakes); diff != "" {
		t.Errorf("wakes (-want +got):\n%s", diff)
	}
}
