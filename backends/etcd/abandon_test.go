package etcd

import (
	"context"
	"errors"
	"testing"
	"time"

	"leased/contract"
	"leased/test/proc"
)

// TestStore_abandon_holder has a wait end that etcd does not confirm in time. The
// call is told a conflict only with who was seen to hold the key since it began:
// an earlier call under its request id may have been granted it without knowing.
func TestStore_abandon_holder(t *testing.T) {
	a := waitingAttempt(t)
	other := &record{Owner: "bob", RequestID: a.req.RequestID, State: contract.StateActive, MaxLife: time.Hour, TTL: time.Hour}
	own := &record{Owner: a.req.Owner, RequestID: a.req.RequestID, State: contract.StateActive, MaxLife: time.Hour, TTL: time.Hour}
	other.id, own.id = newLeaseID(a.ref.id, 1), newLeaseID(a.ref.id, 2)
	before, after := a.began.Add(-time.Second), a.began.Add(time.Millisecond)
	s := new(Store)
	s.life, s.endLife = context.WithCancel(t.Context())
	defer s.endLife()
	for _, c := range []struct {
		name    string
		saw     *record
		holder  *record
		asked   time.Time
		pending bool
		blind   bool             // nobody has looked whether the attempt was answered before
		want    contract.Outcome // 0 for outcome_unknown
	}{
		{name: "nothing was seen"},
		{name: "the call itself saw somebody", saw: other, want: contract.OutcomeConflict},
		{name: "the line saw somebody since", holder: other, asked: after, want: contract.OutcomeConflict},
		{name: "the line saw somebody before", holder: other, asked: before},
		{name: "the line saw nobody since", saw: other, asked: after},
		{name: "the line saw a lease of the request's own", holder: own, asked: after},
		{name: "the line has not looked for the attempt's answer", holder: other, asked: after, blind: true},
		{name: "a grant is on its way", saw: other, holder: other, asked: after, pending: true},
	} {
		w := &waiter{ch: make(chan told, 1), since: a.began, saw: c.saw, looked: !c.blind}
		sp := &spot{a: a, calls: []*waiter{w}, pending: c.pending}
		l := &line{ref: a.ref, waiting: map[contract.Scope]*spot{a.scope: sp}, order: []contract.Scope{a.scope}, holder: c.holder, asked: c.asked}
		res, err := s.abandon(t.Context(), l, a, w, false)
		w.ch <- told{} // whoever waits for it
		if c.want == 0 && contract.CodeOf(err) == contract.CodeOutcomeUnknown {
			continue
		}
		if err != nil || res.Outcome != c.want || res.Lease == nil || res.Lease.ID != other.id {
			t.Errorf("%s: got %v, error %v, want outcome %v", c.name, res.Outcome, err, c.want)
		}
	}
}

// TestStore_abandon_closed: a store that has closed waits for no answer to a call that
// was given up while a grant was on its way to it.
func TestStore_abandon_closed(t *testing.T) {
	s, a := openInside(t), waitingAttempt(t)
	w := &waiter{ch: make(chan told), since: a.began}
	sp := &spot{a: a, calls: []*waiter{w}, pending: true}
	l := &line{s: s, ref: a.ref, waiting: map[contract.Scope]*spot{a.scope: sp}, order: []contract.Scope{a.scope}}
	if _, err := s.abandon(t.Context(), l, a, w, false); contract.CodeOf(err) != contract.CodeOutcomeUnknown {
		t.Fatalf("got %v, want outcome_unknown", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := s.Close(ctx); err != nil {
		t.Fatal(err)
	}
	select {
	case w.ch <- told{}:
		t.Error("somebody waits for the answer after Close")
	default:
	}
}

// TestLine_claimed has the wait of a copy end while its gateway claims the grant
// that another gateway was given for the same request. The copy is not told that
// it has none: once it is claimed nobody takes it back.
func TestLine_claimed(t *testing.T) {
	a := waitingAttempt(t)
	server := proc.StartEtcd(t, proc.EtcdOptions{})
	first := openAt(t, server)
	_, g := committed(t, first, a)
	s, copied := openAt(t, server), newAttempt(&a.req)
	l := &line{s: s, ref: a.ref, wake: make(chan struct{}, 1), waiting: map[contract.Scope]*spot{}}
	sp := &spot{a: copied}
	l.mu.Lock()
	l.join1(sp)
	l.mu.Unlock()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	st, err := s.load(ctx, copied.ref, copied.want())
	if err != nil || st.answer == nil {
		t.Fatalf("got no answer to claim, error %v", err)
	}
	turn := &turn{l: l, st: st, q: st.queue}
	lo := l.snapshot()[0]

	server.Pause(t, 0)
	claimed := make(chan error, 1)
	go func() { claimed <- turn.replay(ctx, lo, st.answer) }()
	proc.Until(t, "the claim is known to be on its way", 10*time.Second, func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return sp.pending
	})
	sp.calls[0].saw = &record{Owner: "bob", id: newLeaseID(copied.ref.id, 1)}
	if res, err := s.abandon(ctx, l, copied, sp.calls[0], false); contract.CodeOf(err) != contract.CodeOutcomeUnknown {
		t.Errorf("a wait that ends meanwhile: got %v, error %v, want outcome_unknown", res.Outcome, err)
	}
	server.Resume(0)
	if err := <-claimed; err != nil {
		t.Fatal(err)
	}
	if len(turn.answers) != 1 || turn.answers[0].msg.res.Outcome != contract.OutcomeAcquired || !turn.answers[0].msg.res.Replayed {
		t.Errorf("got %+v, want the grant replayed", turn.answers)
	}
	if ok, err := first.undo(ctx, a, &share{id: g.record.id, rev: g.record.rev}); err != nil || ok || !active(t, l) {
		t.Errorf("undo by who had it first: got %v, error %v, want it left to who claimed it", ok, err)
	}
}

// TestLine_claimed_forNobody leaves a grant to the gateway that has it where nobody
// is there to claim it for.
func TestLine_claimed_forNobody(t *testing.T) {
	s, a := openInside(t), waitingAttempt(t)
	_, g := committed(t, s, a)
	copied := newAttempt(&a.req)
	l := &line{s: s, ref: a.ref, wake: make(chan struct{}, 1), waiting: map[contract.Scope]*spot{}}
	sp := &spot{a: copied}
	l.waiting[copied.scope], l.order = sp, []contract.Scope{copied.scope}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	st, err := s.load(ctx, copied.ref, copied.want())
	if err != nil {
		t.Fatal(err)
	}
	turn := &turn{l: l, st: st, q: st.queue}
	lo := l.snapshot()[0]
	if err := turn.replay(ctx, lo, st.answer); err != nil {
		t.Fatal(err)
	}
	if len(turn.answers) != 0 || !lo.out {
		t.Errorf("got %d answers, out %v, want none and a spot that is left", len(turn.answers), lo.out)
	}
	if ok, err := s.undo(ctx, a, &share{id: g.record.id, rev: g.record.rev}); err != nil || !ok {
		t.Errorf("undo by who has it: got %v, error %v, want it undone", ok, err)
	}
}

// TestStore_claim_undone claims a grant that was taken back since it was seen.
func TestStore_claim_undone(t *testing.T) {
	s, a := openInside(t), waitingAttempt(t)
	_, g := committed(t, s, a)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	st, err := s.load(ctx, a.ref, a.want())
	if err != nil {
		t.Fatal(err)
	}
	if ok, err := s.undo(ctx, a, &share{id: g.record.id, rev: g.record.rev}); err != nil || !ok {
		t.Fatalf("undo: got %v, error %v", ok, err)
	}
	if _, ok, err := s.claim(ctx, st, newAttempt(&a.req), contract.Result{}); ok || !errors.Is(err, undoneError{}) {
		t.Errorf("claim: got %v, error %v, want it undone", ok, err)
	}
}

// TestTurn_replay_otherGuess claims a grant that another copy has claimed since it was
// seen, with a key that was read for another attempt's turn.
func TestTurn_replay_otherGuess(t *testing.T) {
	s, a := openInside(t), waitingAttempt(t)
	committed(t, s, a)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	st, err := s.load(ctx, a.ref, a.want())
	if err != nil {
		t.Fatal(err)
	}
	seen := *st.answer
	if _, ok, err := s.claim(ctx, st, newAttempt(&a.req), contract.Result{}); !ok || err != nil {
		t.Fatalf("claim: got %v, error %v", ok, err)
	}
	other := a.req
	other.RequestID = "other"
	if st, err = s.load(ctx, a.ref, newAttempt(&other).want()); err != nil {
		t.Fatal(err)
	}
	l := lineOfCopy(s, a)
	turn := &turn{l: l, st: st, q: st.queue}
	if err := turn.replay(ctx, l.snapshot()[0], &seen); err != nil {
		t.Fatal(err)
	}
	if len(turn.answers) != 1 || turn.answers[0].msg.res.Outcome != contract.OutcomeAcquired || !turn.answers[0].msg.res.Replayed {
		t.Errorf("got %+v, want the grant replayed", turn.answers)
	}
}

// TestTurn_replay_undone finds an answer that is taken back before its lease is read:
// nobody is told of a lease that ended so.
func TestTurn_replay_undone(t *testing.T) {
	s, a := openInside(t), waitingAttempt(t)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	before, err := s.load(ctx, a.ref, a.want())
	if err != nil {
		t.Fatal(err)
	}
	_, g := committed(t, s, a)
	st, err := s.load(ctx, a.ref, a.want())
	if err != nil {
		t.Fatal(err)
	}
	if ok, err := s.undo(ctx, a, &share{id: g.record.id, rev: g.record.rev}); !ok || err != nil {
		t.Fatalf("undo: got %v, error %v", ok, err)
	}
	l := lineOfCopy(s, a)
	turn := &turn{l: l, st: before, q: before.queue}
	seen := *st.answer
	if err := turn.replay(ctx, l.snapshot()[0], &seen); !errors.Is(err, undoneError{}) || len(turn.answers) != 0 {
		t.Errorf("got %+v, error %v, want it to be looked at again", turn.answers, err)
	}
}

// TestTurn_serve_pending wants a grant to be on its way until the calls are told of
// it: one whose wait ends in between must not be told that it has none.
func TestTurn_serve_pending(t *testing.T) {
	s, a := openInside(t), waitingAttempt(t)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	st, err := s.load(ctx, a.ref, a.want())
	if err != nil {
		t.Fatal(err)
	}
	l := &line{s: s, ref: a.ref, wake: make(chan struct{}, 1), waiting: map[contract.Scope]*spot{}}
	sp := &spot{a: a}
	l.mu.Lock()
	answer := l.join1(sp)
	l.mu.Unlock()
	turn := &turn{l: l, st: st, q: st.queue.clone(), locals: l.snapshot()}
	turn.late = turn.locals[0]

	lane := s.pool.commits
	lane.mu.Lock()
	lane.flying++
	lane.mu.Unlock()
	served := make(chan error, 1)
	go func() {
		_, err := turn.serve(ctx, turn.late)
		served <- err
	}()
	proc.Until(t, "the grant waits for its turn", 10*time.Second, func() bool {
		lane.mu.Lock()
		defer lane.mu.Unlock()
		return len(lane.queue) == 1
	})
	// What is done next to the line waits for the test, and the look at what it has
	// done waits behind it: a mutex that was waited for in vain is handed on in that
	// order. The pauses make the test stricter, no more.
	l.mu.Lock()
	lane.land()
	proc.Until(t, "the grant is stored", 10*time.Second, func() bool { return active(t, l) })
	<-time.After(20 * time.Millisecond)
	looked := make(chan bool, 1)
	go func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		looked <- l.waiting[a.scope] != sp || sp.pending
	}()
	for range 3 {
		<-time.After(20 * time.Millisecond)
		l.mu.Unlock()
		l.mu.Lock()
	}
	<-time.After(20 * time.Millisecond)
	l.mu.Unlock()
	if !<-looked {
		t.Error("a grant that nobody was told of is not on its way")
	}
	if err := <-served; err != nil {
		t.Fatal(err)
	}
	if got := <-answer; got.res.Outcome != contract.OutcomeAcquired {
		t.Errorf("got %v, error %v", got.res.Outcome, got.err)
	}
}

// lineOfCopy returns a line at which a copy of the attempt waits. It does not run.
func lineOfCopy(s *Store, a *attempt) *line {
	l := &line{s: s, ref: a.ref, wake: make(chan struct{}, 1), waiting: map[contract.Scope]*spot{}}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.join1(&spot{a: newAttempt(&a.req)})
	return l
}

// TestLine_unanswered: a call counts as looked for when a look that began after it
// found its attempt unanswered, and not by one that began before.
func TestLine_unanswered(t *testing.T) {
	began := time.Now()
	earlier, later := &waiter{since: began}, &waiter{since: began.Add(2 * time.Second)}
	new(line).unanswered(&spot{calls: []*waiter{earlier, later}}, began.Add(time.Second))
	if !earlier.looked || later.looked {
		t.Errorf("looked for the call before %v and after %v, want only the one before", earlier.looked, later.looked)
	}
}
