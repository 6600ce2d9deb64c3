package raftkv

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"leased/contract"
)

// TestFSM_Replay holds determinism: one log, applied one by one, in batches, and
// with a restart from a snapshot in the middle, gives equal bytes.
func TestFSM_Replay(t *testing.T) {
	t.Parallel()
	const entries = 3000
	for seed := range uint64(8) {
		t.Run(fmt.Sprintf("seed_%d", seed), func(t *testing.T) {
			t.Parallel()
			one := newDriver(t)
			w := newWorkload(seed)
			w.bulks = seed%2 == 1
			var logs []*raft.Log
			most := 0
			for range entries {
				e := w.next()
				l := one.log(e)
				logs = append(logs, l)
				w.saw(e, one.fsm.Apply(l))
				checkInvariants(t, one.fsm.state)
				most = max(most, one.fsm.state.bulked)
			}
			if w.bulks != (most > 0) {
				t.Errorf("at most %d answers are kept together", most)
			}
			want := snapshotBytes(t, one.fsm)

			batched := NewFSM()
			for i := 0; i < len(logs); i += 7 {
				batched.ApplyBatch(logs[i:min(i+7, len(logs))])
			}
			if got := snapshotBytes(t, batched); !bytes.Equal(got, want) {
				t.Errorf("applied in batches: the snapshot differs")
			}

			restarted := NewFSM()
			for i, l := range logs {
				if i%500 == 250 {
					next := NewFSM()
					if err := next.Restore(io.NopCloser(bytes.NewReader(snapshotBytes(t, restarted)))); err != nil {
						t.Fatalf("restore before entry %d: %v", l.Index, err)
					}
					restarted = next
					checkInvariants(t, restarted.state)
				}
				restarted.Apply(l)
			}
			if got := snapshotBytes(t, restarted); !bytes.Equal(got, want) {
				t.Errorf("restarted from snapshots on the way: the last snapshot differs")
			}
		})
	}
}

// checkInvariants holds what doc.go promises of the state.
func checkInvariants(t *testing.T, s *state) {
	t.Helper()
	active, places := 0, 0
	s.keys.Scan(func(ks *keyState) bool {
		n, present := int32(0), int32(0)
		s.queue.Ascend(&waiter{ident: ks.ident}, func(w *waiter) bool {
			if w.compare(ks.ident) != 0 {
				return false
			}
			n++
			if w.attach != 0 {
				present++
			}
			if got, ok := s.places.Get(w); !ok || got != w {
				t.Errorf("a place is in the queue and not among the scopes")
			}
			return true
		})
		if n != ks.places || present != ks.present {
			t.Errorf("queue has %d places, %d present; the key counts %d and %d", n, present, ks.places, ks.present)
		}
		if ks.active == nil && ks.places != 0 {
			t.Errorf("a free key has a queue of %d", ks.places)
		}
		places += int(n)
		visible := int32(0)
		s.eachVisible(ks, func(l *lease) bool { visible++; return true })
		if visible != ks.visible {
			t.Errorf("history shows %d ended leases; the key counts %d", visible, ks.visible)
		}
		if ks.active != nil {
			active++
			if ks.last != nil && ks.last.token >= ks.active.token {
				t.Errorf("token %d was granted after %d", ks.active.token, ks.last.token)
			}
			if got, ok := s.held.Get(ks.active); !ok || got != ks.active {
				t.Errorf("the active lease is not the one in the owners' index")
			}
			if _, ok := s.expiries.Get(due[*ident]{at: ks.active.expires, what: ks.ident}); !ok {
				t.Errorf("the active lease has no expiry on the agenda")
			}
		}
		return true
	})
	if s.held.Len() != active || s.expiries.Len() != active {
		t.Errorf("%d active leases, %d by owner, %d expiries", active, s.held.Len(), s.expiries.Len())
	}
	if s.places.Len() != places || s.queue.Len() != places {
		t.Errorf("%d places on keys, %d by scope, %d in the queue", places, s.places.Len(), s.queue.Len())
	}
	if s.ended.Len() != s.endedDrops.Len() {
		t.Errorf("%d ended leases, %d of them on the agenda", s.ended.Len(), s.endedDrops.Len())
	}
	var counted int64
	s.owners.Scan(func(o *ownerState) bool { counted += o.active; return true })
	if counted != int64(active) {
		t.Errorf("%d active leases; the owners' counts add up to %d", active, counted)
	}
	drops := 0
	s.answers.Scan(func(a answer) bool {
		l := s.current(a.g)
		if l == nil {
			t.Errorf("a stored answer outlived its lease")
			return true
		}
		at := a.drop
		if a.verb == contract.VerbAcquire && l.end != nil {
			at = l.end.when + l.keepAnswer
		}
		if at == 0 {
			return true // kept as long as its lease is active
		}
		drops++
		if _, ok := s.answerDrops.Get(due[contract.Scope]{at: at, what: a.scope}); !ok {
			t.Errorf("an answer of verb %d is not on the agenda for its end at %d", a.verb, at)
		}
		return true
	})
	checkBulks(t, s)
	if drops != s.answerDrops.Len() {
		t.Errorf("%d answers with an end, %d on the agenda", drops, s.answerDrops.Len())
	}
}

// A command stamped by a clock of an earlier term must not move this term's
// clock: that clock was ahead of it, and leases would end early.
func TestFSM_StampOfEarlierTerm(t *testing.T) {
	d := newDriver(t)
	d.now, d.term = int64(time.Second), 3
	granted := d.acquire(request("k", "a", "r1"))
	late := d.log(entry{term: 3, header: header{kind: kindSweep, term: 1, now: int64(time.Hour)}, body: &sweepCmd{Max: 10}})
	d.fsm.Apply(late)
	if got, want := d.fsm.state.now, int64(time.Second); got != want {
		t.Errorf("clock is at %d, want %d", got, want)
	}
	if got := d.fsm.state.find(d.fsm.state.key(granted.lease.ident), granted.lease.leaseID(), 0).state(); got != contract.StateActive {
		t.Errorf("lease is %v, want active", got)
	}
}

func TestFSM_UnknownEntryStops(t *testing.T) {
	valid, err := newCodec().encode(header{kind: kindSweep}, &sweepCmd{Max: 1})
	if err != nil {
		t.Fatal(err)
	}
	later := bytes.Clone(valid)
	later[0] = CommandVersion + 1
	strange := bytes.Clone(valid)
	strange[1] = 200
	for name, data := range map[string][]byte{
		"empty": {}, "short": valid[:headerLen-1], "later version": later, "unknown kind": strange,
		"cut body": valid[:len(valid)-1], "trailing": append(bytes.Clone(valid), 0),
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if r := recover(); r == nil || !strings.Contains(fmt.Sprint(r), "log entry 7") {
					t.Errorf("recovered %v, want a panic that names entry 7", r)
				}
			}()
			NewFSM().Apply(&raft.Log{Type: raft.LogCommand, Index: 7, Term: 1, Data: data})
		})
	}
}

// TestSnapshot_Damaged flips every byte of a snapshot in turn: none may pass.
func TestSnapshot_Damaged(t *testing.T) {
	d := newDriver(t)
	for i := range 5 {
		r := d.acquire(request(fmt.Sprintf("k%d", i), "a", fmt.Sprintf("r%d", i)))
		if i%2 == 0 {
			d.release(r.lease)
		}
	}
	whole := snapshotBytes(t, d.fsm)
	restore := func(b []byte) error { return NewFSM().Restore(io.NopCloser(bytes.NewReader(b))) }
	if err := restore(whole); err != nil {
		t.Fatalf("whole snapshot: %v", err)
	}
	for i := range whole {
		b := bytes.Clone(whole)
		b[i] ^= 0x40
		if restore(b) == nil {
			t.Fatalf("a snapshot with byte %d changed was restored", i)
		}
	}
	for n := range whole {
		if restore(whole[:n]) == nil {
			t.Fatalf("a snapshot cut after %d bytes was restored", n)
		}
	}
}

// A record under another key's id would be granted over that key.
func TestSnapshot_ForeignKeyID(t *testing.T) {
	d := newDriver(t)
	c := commandOf(request("k", "a", "r"))
	c.KeyID[0] ^= 1
	d.do(kindAcquire, c)
	err := NewFSM().Restore(io.NopCloser(bytes.NewReader(snapshotBytes(t, d.fsm))))
	if err == nil || !strings.Contains(err.Error(), "id of another key") {
		t.Errorf("restore: %v, want a refusal for the foreign key id", err)
	}
}

// TestSnapshot_Frozen writes a snapshot while entries are applied: what it holds
// is the moment at which it was taken.
func TestSnapshot_Frozen(t *testing.T) {
	d := newDriver(t)
	w := newWorkload(42)
	step := func() {
		e := w.next()
		w.saw(e, d.fsm.Apply(d.log(e)))
	}
	for range 500 {
		step()
	}
	want := snapshotBytes(t, d.fsm)
	taken, err := d.fsm.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	for range 500 {
		step()
	}
	var wg sync.WaitGroup
	var got bytes.Buffer
	wg.Go(func() {
		if err := taken.(*frozen).write(&got); err != nil {
			t.Errorf("write: %v", err)
		}
	})
	for range 500 {
		step()
	}
	wg.Wait()
	if !bytes.Equal(got.Bytes(), want) {
		t.Errorf("the snapshot shows entries applied after it was taken")
	}
}

// An answer is kept as long as promised also on a key whose history is short.
func TestFSM_AnswerOutlivesHistory(t *testing.T) {
	d := newDriver(t)
	d.keep.HistoryPerKey = 2
	first := request("k", "a", "first")
	first.Retention.HistoryPerKey = 2
	granted := d.acquire(first)
	d.release(granted.lease)
	for i := range 50 {
		r := request("k", "a", fmt.Sprintf("again-%d", i))
		r.Retention.HistoryPerKey = 2
		d.release(d.acquire(r).lease)
	}
	d.now += int64(10*time.Minute) - 1
	d.do(kindSweep, &sweepCmd{Max: 1000})
	got := d.acquire(first)
	if got.outcome != contract.OutcomeEndedReleased || got.lease.token != granted.lease.token {
		t.Errorf("replay of the first grant: %v, want ended_released with token %d", got.outcome, granted.lease.token)
	}
	if n := len(d.fsm.state.events(d.fsm.state.key(got.lease.ident), 0)); n != 2 {
		t.Errorf("history shows %d events, want 2", n)
	}
	d.now += 2
	d.do(kindSweep, &sweepCmd{Max: 1000})
	if n := d.fsm.state.answers.Len(); n > 1 {
		t.Errorf("%d answers are kept after their time", n)
	}
	if n := d.fsm.state.ended.Len(); n > 2 {
		t.Errorf("%d ended leases are kept after their time", n)
	}
}

// An answer has its lease for as long as it is kept itself, also when all other
// answers about the lease were to be kept for less and the history shows nothing.
func TestFSM_AnswerOutlivesTheOthers(t *testing.T) {
	for _, long := range []string{"acquire", "renew", "release"} {
		t.Run(long, func(t *testing.T) {
			d := newDriver(t)
			keep := func(what string) contract.Retention {
				d.keep = testRetention()
				d.keep.History = 0
				if what != long {
					d.keep.Idempotency = time.Minute
				}
				return d.keep
			}
			first := request("k", "a", "first")
			first.Retention = keep("acquire")
			l := d.acquire(first).lease
			renew := &renewCmd{
				Namespace: l.ns, Owner: l.owner, Instance: l.instance, RequestID: "renew", Keep: retentionOf(keep("renew")),
				Items: []renewItem{{Scope: contract.Scope{2}, LeaseID: l.leaseID(), Token: l.token}},
			}
			d.do(kindRenew, renew)
			keep("release")
			release := d.release(l)
			d.now += int64(testRetention().Idempotency) - 1
			for range 3 { // what one makes due the next one forgets
				d.do(kindSweep, &sweepCmd{Max: 1000})
			}
			var got reply
			want := contract.OutcomeEndedReleased
			switch long {
			case "acquire":
				got = d.acquire(first)
			case "renew":
				got = d.one(kindRenew, renew)
			case "release":
				got, want = d.do(kindRelease, release).(reply), contract.OutcomeReleased
			}
			if got.outcome != want || !got.replayed || got.lease == nil || got.lease.token != l.token {
				t.Errorf("replay of the %s: %+v, want %v with the lease of token %d as it ended", long, got, want, l.token)
			}
		})
	}
}

// A key that shows nothing any more is kept as long as an answer refers to one
// of its leases, also through a snapshot.
func TestSnapshot_AnswerOfForgottenKey(t *testing.T) {
	d := newDriver(t)
	first := request("k", "a", "first")
	first.Retention = contract.Retention{Idempotency: time.Hour, HistoryPerKey: 2}
	d.keep = first.Retention
	d.release(d.acquire(first).lease)
	d.keep.Idempotency = time.Minute
	for i := range 5 {
		r := request("k", "a", fmt.Sprintf("again-%d", i))
		r.Retention = d.keep
		d.release(d.acquire(r).lease)
	}
	d.now += int64(10 * time.Minute)
	d.do(kindSweep, &sweepCmd{Max: 1000})
	restored := NewFSM()
	if err := restored.Restore(io.NopCloser(bytes.NewReader(snapshotBytes(t, d.fsm)))); err != nil {
		t.Fatalf("restore: %v", err)
	}
	d.fsm = restored
	if got := d.acquire(first); got.outcome != contract.OutcomeEndedReleased {
		t.Errorf("replay of the first grant: %v, want ended_released", got.outcome)
	}
}

// A key that was held and let go thousands of times within the time that answers
// are kept has as many rows: they survive a snapshot, and so does the order.
func TestSnapshot_BusyKey(t *testing.T) {
	d := newDriver(t)
	for i := range 5000 {
		d.now += int64(time.Millisecond)
		d.release(d.acquire(request("k", "a", fmt.Sprint("r-", i))).lease)
	}
	whole := snapshotBytes(t, d.fsm)
	restored := NewFSM()
	if err := restored.Restore(io.NopCloser(bytes.NewReader(whole))); err != nil {
		t.Fatalf("restore: %v", err)
	}
	if !bytes.Equal(snapshotBytes(t, restored), whole) {
		t.Error("the restored state writes another snapshot")
	}
	d.fsm = restored
	if got := d.acquire(request("k", "a", "r-0")); got.outcome != contract.OutcomeEndedReleased {
		t.Errorf("replay of the first grant: %v, want ended_released", got.outcome)
	}
}
