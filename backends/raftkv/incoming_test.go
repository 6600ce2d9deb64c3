package raftkv

import (
	"bytes"
	"errors"
	"io"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
	"github.com/tidwall/btree"

	"leased/contract"
)

// restoreEntries puts the parts of a restore of s into the driver's log, as the
// leader of the driver's term does, and applies none. base is how much more the
// driver's state counts than its log.
func (d *driver) restoreEntries(id byte, s *state, size int) []*raft.Log {
	d.t.Helper()
	part := uint32(0)
	put := func(c *restoreCmd) *raft.Log {
		c.ID, c.Part = [16]byte{id}, part
		part++
		return d.log(entry{term: d.term, header: header{kind: kindRestore, term: d.term, now: d.now}, body: c})
	}
	logs := []*raft.Log{put(&restoreCmd{Above: s.index})}
	s.index = max(s.index+1, d.index+d.fsm.state.base)
	s.endAll()
	var whole bytes.Buffer
	if err := (&frozen{codec: d.fsm.codec, state: s}).write(&whole); err != nil {
		d.t.Fatal(err)
	}
	for whole.Len() > 0 {
		logs = append(logs, put(&restoreCmd{Data: bytes.Clone(whole.Next(size))}))
	}
	return append(logs, put(&restoreCmd{End: restoreDone, Floor: 1e6}))
}

// backedUp returns the state of another log, which was longer and in which a lease of
// the key "backup" was active.
func backedUp(t *testing.T) *state {
	t.Helper()
	d := newDriver(t)
	d.index = 5000
	d.do(kindTakeover, &takeoverCmd{Wall: 1e18})
	d.acquire(request("backup", "bob", "b"))
	return d.fsm.state
}

func (d *driver) holder(key string) *lease {
	ks := d.fsm.state.key(&ident{ns: "default", id: commandOf(request(key, "", "")).KeyID})
	if ks == nil {
		return nil
	}
	return ks.active
}

// TestFSM_restore_allOrNothing: a restore that ends after any of its parts, for the
// node that leads is gone, changes nothing, also when the rest is in a later term's
// log; and a whole one comes through after it.
func TestFSM_restore_allOrNothing(t *testing.T) {
	for cut := 0; ; cut++ {
		d := newDriver(t)
		d.do(kindTakeover, &takeoverCmd{Wall: 1e18})
		d.acquire(request("live", "alice", "a"))
		parts := d.restoreEntries(1, backedUp(t), 300)
		if cut == len(parts) {
			if cut < 4 {
				t.Fatalf("%d parts: too few", cut)
			}
			return
		}
		for _, l := range parts[:cut] {
			d.fsm.Apply(l)
		}
		if blocked := cut > 0; d.fsm.SnapshotBlocked() != blocked {
			t.Errorf("after %d parts a snapshot is blocked: %v", cut, !blocked)
		}
		if _, err := d.fsm.Snapshot(); (cut > 0) != errors.Is(err, errRestoring) {
			t.Errorf("after %d parts: snapshot: %v", cut, err)
		}
		d.term++
		for i, l := range parts[cut:] {
			if i == 1 {
				d.do(kindTakeover, &takeoverCmd{Wall: 1e18})
			}
			again := *l
			d.index++
			again.Index, again.Term = d.index, d.term // stamped by the leader before
			if r := d.fsm.Apply(&again).(restoreReply); r.taken {
				t.Errorf("cut after %d parts: part %d of another term was taken", cut, cut+i)
			}
		}
		d.do(kindTakeover, &takeoverCmd{Wall: 1e18})
		if d.holder("live") == nil || d.fsm.state.keys.Len() != 1 {
			t.Errorf("cut after %d parts: the state has changed", cut)
		}
		if d.fsm.SnapshotBlocked() {
			t.Errorf("cut after %d parts: no snapshot can be taken", cut)
		}
		parts = d.restoreEntries(2, backedUp(t), 300)
		d.fsm.ApplyBatch(parts)
		checkRestoredState(t, d)
	}
}

func checkRestoredState(t *testing.T, d *driver) {
	t.Helper()
	checkInvariants(t, d.fsm.state)
	if d.holder("live") != nil || d.holder("backup") != nil || d.fsm.state.ended.Len() != 1 {
		t.Errorf("the state is not the backup's with its lease ended:\n%s", stateText(t, d.fsm.state))
	}
	r := d.acquire(request("fresh", "alice", "f"))
	if r.lease == nil || r.lease.token <= 1e6 || r.lease.at.index <= 5002 {
		t.Errorf("a lease after the restore: %+v, want a token above 1e6 and a place above 5002", r)
	}
}

// TestFSM_restore_closed: who reads a state of which the rest does not come ends with
// the node.
func TestFSM_restore_closed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // which ends when all in it has
		d := newDriver(t)
		d.do(kindTakeover, &takeoverCmd{Wall: 1e18})
		d.do(kindRestore, &restoreCmd{})
		d.do(kindRestore, &restoreCmd{Part: 1, Data: []byte(snapshotMagic)})
		if err := d.fsm.Close(); err != nil {
			t.Error(err)
		}
	})
}

// TestFSM_restore_replay: the log of a restore gives equal states in batches, one by
// one, and after a restart from a snapshot before or behind it.
func TestFSM_restore_replay(t *testing.T) {
	d := newDriver(t)
	var logs []*raft.Log
	add := func(k kind, body any) {
		d.now += int64(time.Second)
		logs = append(logs, d.log(entry{term: 1, header: header{kind: k, term: 1, now: d.now}, body: body}))
	}
	add(kindTakeover, &takeoverCmd{Wall: 1e18})
	add(kindAcquire, commandOf(request("live", "alice", "a")))
	before := len(logs)
	logs = append(logs, d.restoreEntries(1, backedUp(t), 100)...)
	behind := len(logs)
	add(kindAcquire, commandOf(request("fresh", "alice", "f")))
	add(kindFloor, &floorCmd{Namespace: "other", Above: 2e6})

	d.fsm.ApplyBatch(logs)
	want := stateText(t, d.fsm.state)
	if d.holder("fresh") == nil {
		t.Errorf("the entry behind the restore is missing:\n%s", want)
	}
	for _, at := range []int{0, before, behind} {
		f := NewFSM()
		for _, l := range logs[:at] {
			f.Apply(l)
		}
		next := NewFSM()
		if err := next.Restore(io.NopCloser(bytes.NewReader(snapshotBytes(t, f)))); err != nil {
			t.Fatal(err)
		}
		for _, l := range logs[at:] {
			next.Apply(l)
		}
		if got := stateText(t, next.state); got != want {
			t.Errorf("restarted from a snapshot after %d entries:\n%s\nwant:\n%s", at, got, want)
		}
	}
}

// TestFSM_restore_damaged: parts that are no state change nothing and say so, and
// nobody waits for them.
func TestFSM_restore_damaged(t *testing.T) {
	d := newDriver(t)
	d.acquire(request("live", "alice", "a"))
	for part := range uint32(100) {
		d.do(kindRestore, &restoreCmd{Part: part, Data: bytes.Repeat([]byte("no state "), 10)})
	}
	r := d.do(kindRestore, &restoreCmd{Part: 100, End: restoreDone}).(restoreReply)
	if !r.taken || r.err == nil || d.holder("live") == nil || d.fsm.SnapshotBlocked() {
		t.Errorf("got %+v, want an error and the state as it was", r)
	}
	// A part that is missing, one of another restore, and one that is given up.
	for _, last := range []*restoreCmd{{Part: 2, End: restoreDone}, {ID: [16]byte{1}, Part: 1, End: restoreDone}} {
		d.do(kindRestore, &restoreCmd{})
		if r := d.do(kindRestore, last).(restoreReply); r.taken {
			t.Errorf("%+v was taken", last)
		}
	}
	d.do(kindRestore, &restoreCmd{})
	d.do(kindRestore, &restoreCmd{ID: [16]byte{1}, End: restoreGivenUp})
	if !d.fsm.SnapshotBlocked() {
		t.Error("another restore was given up")
	}
	d.do(kindRestore, &restoreCmd{End: restoreGivenUp})
	if d.fsm.SnapshotBlocked() || d.holder("live") == nil {
		t.Error("the restore was not given up")
	}
}

// TestFSM_restore_unreadableSnapshot: a snapshot that cannot be read, between the
// parts of a restore, changes nothing: the other nodes, which have the same log,
// carry the restore out.
func TestFSM_restore_unreadableSnapshot(t *testing.T) {
	d := newDriver(t)
	logs := []*raft.Log{d.log(entry{term: 1, header: header{kind: kindTakeover, term: 1}, body: &takeoverCmd{Wall: 1e18}})}
	logs = append(logs, d.restoreEntries(1, backedUp(t), 300)...)
	var states [2]string
	for i := range states {
		f := NewFSM()
		for at, l := range logs {
			if i == 1 && at == len(logs)/2 {
				if err := f.Restore(io.NopCloser(strings.NewReader("torn"))); err == nil {
					t.Fatal("a torn snapshot was read")
				}
			}
			f.Apply(l)
		}
		states[i] = stateText(t, f.state)
	}
	if states[0] != states[1] || !strings.Contains(states[0], restoredReason) {
		t.Errorf("with the snapshot:\n%s\nwithout:\n%s", states[1], states[0])
	}
}

// TestFSM_restore_floors: the tokens of a namespace are above all that it had, and
// one that has used up its tokens leaves the others theirs.
func TestFSM_restore_floors(t *testing.T) {
	const most = uint64(contract.MaxToken)
	d := newDriver(t)
	d.do(kindTakeover, &takeoverCmd{Wall: 1e18})
	for ns, above := range map[string]uint64{"full": most, "high": 5e9, "in both": 3e9} {
		d.do(kindFloor, &floorCmd{Namespace: ns, Above: above})
	}
	backup := backedUp(t)
	backup.namespaces.Set(&nsState{name: "old", floor: 7e9})
	backup.namespaces.Set(&nsState{name: "in both", floor: 4e9})
	entries := d.restoreEntries(1, backup, 300)
	var floor uint64
	for _, l := range entries {
		floor = d.fsm.Apply(l).(restoreReply).floor
	}
	for ns, above := range map[string]uint64{"full": most, "high": 5e9, "old": 7e9, "in both": 4e9, "default": 1e6, "new": 1e6} {
		r := request("key", "alice", "after")
		r.Namespace = ns
		got := d.acquire(r)
		switch {
		case ns == "full":
			if got.lease != nil {
				t.Errorf("%s: a token after the last: %+v", ns, got)
			}
		case got.lease == nil || got.lease.token <= above || got.lease.token <= floor || got.lease.token > above+1e5:
			t.Errorf("%s: got %+v, want a token a little above %d, and above %d", ns, got, above, floor)
		}
	}
}

// TestReadBackup_bounds: a backup above which no tokens are left is refused.
func TestReadBackup_bounds(t *testing.T) {
	const most = uint64(contract.MaxToken)
	for name, c := range map[string]struct {
		index, floor uint64
		ok           bool
	}{
		"the last of both": {most, most, true}, "an index above": {most + 1, 0, false}, "the largest": {math.MaxUint64, 0, false},
		"a floor above": {7, most + 1, false},
	} {
		s := newState()
		s.index = c.index
		s.namespaces.Set(&nsState{name: "a", floor: c.floor})
		var backup bytes.Buffer
		if err := writeBackup(newWire(), &BackupHead{Index: c.index}, &frozen{codec: newCodec(), state: s}, &backup); err != nil {
			t.Fatal(err)
		}
		if _, _, err := readBackup(newCodec(), newWire(), &backup); (err == nil) != c.ok {
			t.Errorf("%s: got error %v, want it read: %v", name, err, c.ok)
		}
	}
}

// TestFrozen_shift: a state with its clock moved there and back is the same state,
// and moved there alone each instant of it is.
func TestFrozen_shift(t *testing.T) {
	const by = int64(time.Hour)
	d := newDriver(t)
	for w, n := newWorkload(7), 0; n < 500; n++ {
		e := w.next()
		w.saw(e, d.fsm.Apply(d.log(e)))
	}
	s := d.fsm.state
	moved := func(s *state, shift int64) *state {
		t.Helper()
		var b bytes.Buffer
		if err := (&frozen{codec: newCodec(), state: s, shift: shift}).write(&b); err != nil {
			t.Fatal(err)
		}
		out, err := readSnapshot(newCodec(), newInterner(), &b)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	there := moved(s, by)
	checkInvariants(t, there)
	if there.now != s.now+by || there.wall() != s.wall() {
		t.Errorf("the clock stands at %d and shows %d, want %d and %d", there.now, there.wall(), s.now+by, s.wall())
	}
	for name, got := range map[string][2]int64{
		"expiry": {first(t, s.expiries), first(t, there.expiries)}, "answer": {first(t, s.answerDrops), first(t, there.answerDrops)},
		"record": {first(t, s.endedDrops), first(t, there.endedDrops)},
	} {
		if got[1] != got[0]+by {
			t.Errorf("the first %s is due at %d, want %d", name, got[1], got[0]+by)
		}
	}
	if got, want := stateText(t, moved(there, -by)), stateText(t, s); got != want {
		t.Errorf("there and back:\n%s\nwant:\n%s", got, want)
	}
}

// first returns when the first thing of an agenda is due.
func first[T any](t *testing.T, agenda *btree.BTreeG[due[T]]) int64 {
	t.Helper()
	d, ok := agenda.Min()
	if !ok {
		t.Fatal("the workload left nothing to do")
	}
	return d.at
}
