package raftkv

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"leased/contract"
)

// entry is a command with the stamp it was given.
type entry struct {
	term   uint64 // of the log
	header header
	body   any
}

// driver feeds a state machine without a raft node.
type driver struct {
	t     testing.TB
	fsm   *FSM
	index uint64
	term  uint64
	now   int64
	keep  contract.Retention // of releases
}

func newDriver(tb testing.TB) *driver {
	tb.Helper()
	return &driver{t: tb, fsm: NewFSM(), term: 1, keep: testRetention()}
}

func (d *driver) log(e entry) *raft.Log {
	d.t.Helper()
	data, err := d.fsm.codec.encode(e.header, e.body)
	if err != nil {
		d.t.Fatalf("encode: %v", err)
	}
	d.index++
	return &raft.Log{Type: raft.LogCommand, Index: d.index, Term: e.term, Data: data}
}

// do applies one command at the driver's time.
func (d *driver) do(k kind, body any) any {
	d.t.Helper()
	return d.fsm.Apply(d.log(entry{term: d.term, header: header{kind: k, term: d.term, now: d.now}, body: body}))
}

// one applies a command of several items that has only one.
func (d *driver) one(k kind, body any) reply {
	d.t.Helper()
	all, ok := d.do(k, body).([]reply)
	if !ok || len(all) != 1 {
		d.t.Fatalf("%v is answered %v, want one reply", k, all)
	}
	return all[0]
}

func (d *driver) acquire(r *contract.AcquireRequest) reply {
	d.t.Helper()
	return d.do(kindAcquire, commandOf(r)).(reply)
}

// release releases a lease and returns the command, with which it is repeated.
func (d *driver) release(l *lease) *releaseCmd {
	d.t.Helper()
	c := &releaseCmd{
		Scope: contract.Scope{1, byte(d.index)}, Namespace: l.ns, Owner: l.owner, Instance: l.instance, RequestID: "release",
		LeaseID: l.leaseID(), Token: l.token, Keep: retentionOf(d.keep),
	}
	d.do(kindRelease, c)
	return c
}

func testRetention() contract.Retention {
	return contract.Retention{Idempotency: 10 * time.Minute, History: time.Hour, HistoryPerKey: 64}
}

func request(key, owner, id string) *contract.AcquireRequest {
	k, err := contract.Key{
		Tenant: "acme", Target: contract.Target{Type: contract.TargetName, ID: key}, Actor: "crawler",
	}.Normalize()
	if err != nil {
		panic(err)
	}
	return &contract.AcquireRequest{
		Namespace: "default", RequestID: id, Owner: owner, Instance: "i-" + owner, Key: k,
		TTL: 30 * time.Second, MaxLifetime: time.Hour, Retention: testRetention(),
	}
}

// snapshotBytes returns the snapshot that the state machine would write now.
func snapshotBytes(tb testing.TB, f *FSM) []byte {
	tb.Helper()
	s, err := f.Snapshot()
	if err != nil {
		tb.Fatalf("snapshot: %v", err)
	}
	defer s.Release()
	var buf bytes.Buffer
	if err := s.(*frozen).write(&buf); err != nil {
		tb.Fatalf("write snapshot: %v", err)
	}
	return buf.Bytes()
}

// workload makes a random but repeatable list of commands that meet each other:
// few keys, owners and request ids, and time that passes.
type workload struct {
	rng    *rand.Rand
	now    int64
	term   uint64
	leases []*lease  // every lease seen granted
	places []waiting // every place seen made
	// bulks says that renewals have the scopes of their request ids, as those of a store
	// do. The logs of releases have others.
	bulks bool
}

type waiting struct {
	cmd    *acquireCmd
	attach uint64
}

func newWorkload(seed uint64) *workload {
	return &workload{rng: rand.New(rand.NewPCG(seed, 1)), term: 1}
}

func (w *workload) next() entry {
	if w.rng.IntN(20) == 0 {
		w.now += int64(w.rng.IntN(int(20 * time.Second)))
	}
	w.now += int64(w.rng.IntN(int(50 * time.Millisecond)))
	if w.rng.IntN(200) == 0 {
		w.term++
		return w.stamped(kindTakeover, &takeoverCmd{Wall: 1e18 + w.now + int64(w.rng.IntN(1e9))})
	}
	keep := retention{Idempotency: int64(5 * time.Second), History: int64(20 * time.Second), HistoryPerKey: int32(2 + w.rng.IntN(6))}
	switch n := w.rng.IntN(100); {
	case n < 45 || len(w.leases) == 0:
		r := request(fmt.Sprintf("k%d", w.rng.IntN(4)), fmt.Sprintf("o%d", w.rng.IntN(3)), fmt.Sprintf("r%d", w.rng.IntN(400)))
		r.TTL = time.Duration(1+w.rng.IntN(10)) * time.Second
		r.Wait = time.Duration(w.rng.IntN(2)) * time.Second
		r.Metadata = map[string]string{"a": "1", "b": r.RequestID}
		r.Limits = contract.Limits{LeasesPerOwner: w.rng.IntN(4), WaitersPerKey: 6}
		c := commandOf(r)
		for i := range c.Nonce {
			c.Nonce[i] = byte(w.rng.Uint32())
		}
		c.Keep = keep
		return w.stamped(kindAcquire, c)
	case n < 60:
		l := w.lease()
		c := &renewCmd{Namespace: l.ns, Owner: l.owner, Instance: l.instance, RequestID: "rn", Keep: keep}
		for range 1 + w.rng.IntN(3) {
			l := w.lease()
			c.Items = append(c.Items, renewItem{
				Scope: w.scope(), LeaseID: l.leaseID(), Token: l.token, TTL: int64(w.rng.IntN(3)) * int64(time.Second),
			})
		}
		if w.bulks {
			w.attempt(c)
		}
		return w.stamped(kindRenew, c)
	case n < 78:
		l := w.lease()
		return w.stamped(kindRelease, &releaseCmd{
			Scope: w.scope(), Namespace: l.ns, Owner: l.owner, Instance: l.instance, RequestID: "rl",
			LeaseID: l.leaseID(), Token: l.token, Keep: keep,
		})
	case n < 82:
		l := w.lease()
		return w.stamped(kindRevoke, &revokeCmd{
			Scope: w.scope(), Namespace: l.ns, Principal: "boss", RequestID: "rv", LeaseID: l.leaseID(), Reason: "why", Keep: keep,
		})
	case n < 90 && len(w.places) > 0:
		// Mostly the newest places, which are the ones that are still there.
		c := &awayCmd{}
		for range 1 + w.rng.IntN(5) {
			p := w.places[len(w.places)-1-w.rng.IntN(min(len(w.places), 12))]
			c.Items = append(c.Items, awayOf(p.cmd, p.attach, w.rng.IntN(2) == 0))
		}
		return w.stamped(kindAway, c)
	case n < 91:
		return w.stamped(kindFloor, &floorCmd{Namespace: "default", Above: uint64(w.rng.IntN(1e6))})
	}
	return w.stamped(kindSweep, &sweepCmd{Wall: 1e18 + w.now, Max: int32(1 + w.rng.IntN(8))})
}

func (w *workload) stamped(k kind, body any) entry {
	h := header{kind: k, term: w.term, now: w.now}
	if w.rng.IntN(50) == 0 {
		h.term-- // made in an earlier term, on a clock that ran ahead
		h.now += int64(time.Hour)
	}
	return entry{term: w.term, header: h, body: body}
}

// lease returns one of the newest leases most of the time.
func (w *workload) lease() *lease {
	n := len(w.leases)
	return w.leases[n-1-w.rng.IntN(min(n, 6))]
}

// scope returns one of few scopes, so that some are used again.
func (w *workload) scope() contract.Scope { return contract.Scope{byte(w.rng.IntN(40)), 9} }

// attempt gives a renewal a request id that may come again, and the scopes of it.
func (w *workload) attempt(c *renewCmd) {
	c.RequestID = fmt.Sprint("rn", w.rng.IntN(10))
	for range w.rng.IntN(4) {
		l := w.lease()
		c.Items = append(c.Items, renewItem{LeaseID: l.leaseID(), Token: l.token})
	}
	for i := range c.Items {
		r := contract.RenewRequest{Namespace: c.Namespace, Owner: c.Owner, RequestID: c.RequestID, LeaseID: c.Items[i].LeaseID}
		c.Items[i].Scope = r.Scope()
	}
}

// saw learns from an answer what later commands can be about.
func (w *workload) saw(e entry, answer any) {
	r, ok := answer.(reply)
	if !ok {
		return
	}
	if r.outcome == contract.OutcomeAcquired {
		w.leases = append(w.leases, r.lease)
	}
	if c, ok := e.body.(*acquireCmd); ok && r.attach != 0 {
		w.places = append(w.places, waiting{cmd: c, attach: r.attach})
	}
}
