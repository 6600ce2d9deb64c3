package memstore

import (
	"encoding/binary"
	"fmt"
	"time"

	"leased/contract"
)

// tb is what *testing.T and *rapid.T have in common.
type tb interface {
	Helper()
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

// driver runs operations on a Model at an instant of its own.
type driver struct {
	t     tb
	m     *Model
	now   time.Time
	calls CallID
	ids   int
}

const namespace = "test"

func newDriver(t tb) *driver {
	return &driver{t: t, m: NewModel(16), now: time.Date(2026, time.January, 1, 0, 0, 0, 0, time.UTC)}
}

func (d *driver) step(op Op) Answer { return d.m.Step(d.now, op) }

func (d *driver) advance(by time.Duration) Answer {
	d.now = d.now.Add(by)
	return d.step(Tick{})
}

func (d *driver) id() string {
	d.ids++
	return fmt.Sprint("id-", d.ids)
}

func testKey(t tb, name string) contract.Key {
	t.Helper()
	k, err := contract.Key{
		Tenant: "acme", Target: contract.Target{Type: contract.TargetName, ID: name}, Actor: "crawler",
	}.Normalize()
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func keep() contract.Retention {
	return contract.Retention{Idempotency: 10 * time.Minute, History: time.Hour, HistoryPerKey: 8}
}

func (d *driver) request(owner, key string) contract.AcquireRequest {
	d.t.Helper()
	return contract.AcquireRequest{
		Namespace: namespace, RequestID: d.id(), Owner: owner, Instance: owner + "-1", Key: testKey(d.t, key),
		TTL: 10 * time.Second, MaxLifetime: time.Minute, Retention: keep(),
	}
}

// acquire sends r, valid as a store would have made sure.
func (d *driver) acquire(r contract.AcquireRequest) Answer {
	d.t.Helper()
	if err := r.Validate(); err != nil {
		d.t.Fatalf("the test's own request: %v", err)
	}
	d.calls++
	op := Acquire{Request: r, Call: d.calls}
	binary.BigEndian.PutUint64(op.Nonce[:], uint64(d.calls))
	return d.step(op)
}

// grant acquires a free key.
func (d *driver) grant(owner, key string) contract.Lease {
	d.t.Helper()
	return d.granted(d.acquire(d.request(owner, key)))
}

func (d *driver) granted(a Answer) contract.Lease {
	d.t.Helper()
	if a.Err != nil || a.Result.Outcome != contract.OutcomeAcquired {
		d.t.Fatalf("acquire: got %s, parked %v, error %v, want acquired", a.Result.Outcome, a.Parked, a.Err)
	}
	return *a.Result.Lease
}

// park sends r, which must have to wait, and returns its call.
func (d *driver) park(r contract.AcquireRequest) CallID {
	d.t.Helper()
	r.Wait = time.Second
	if a := d.acquire(r); !a.Parked {
		d.t.Fatalf("acquire: got %s, error %v, want to be parked", a.Result.Outcome, a.Err)
	}
	return d.calls
}

func (d *driver) renewal(l contract.Lease) contract.RenewRequest {
	return contract.RenewRequest{
		Namespace: namespace, RequestID: d.id(), Owner: l.Owner, Instance: l.Instance,
		LeaseID: l.ID, Token: l.Token, Retention: keep(),
	}
}

func (d *driver) release(l contract.Lease) Answer {
	return d.step(Release{Request: contract.ReleaseRequest{
		Namespace: namespace, RequestID: d.id(), Owner: l.Owner, Instance: l.Instance,
		LeaseID: l.ID, Token: l.Token, Retention: keep(),
	}})
}

func (d *driver) revoke(l contract.Lease) Answer {
	return d.step(Revoke{Request: contract.RevokeRequest{
		Namespace: namespace, RequestID: d.id(), Principal: "root", LeaseID: l.ID,
		Mode: contract.RevokeRight, Reason: "gone", Retention: keep(),
	}})
}

func (d *driver) get(l contract.Lease) contract.Result {
	return d.step(Get{Request: contract.GetRequest{Namespace: namespace, LeaseID: l.ID}}).Result
}

// key returns what is known of the key "k".
func (d *driver) key() contract.KeyResult {
	d.t.Helper()
	return d.step(GetKey{Request: contract.GetKeyRequest{Namespace: namespace, KeyID: testKey(d.t, "k").ID()}}).Key
}

// history returns the kinds of the events of the key "k".
func (d *driver) history() []string {
	d.t.Helper()
	var kinds []string
	for _, ev := range d.step(History{Request: contract.HistoryRequest{
		Namespace: namespace, KeyID: testKey(d.t, "k").ID(),
	}}).History.Events {
		kinds = append(kinds, ev.Kind.String())
	}
	return kinds
}

// woken returns who was told what, in order.
func woken(a Answer) []string {
	var told []string
	for _, w := range a.Wakes {
		s := fmt.Sprintf("%d %s", w.Call, w.Result.Outcome)
		if w.Result.Replayed {
			s += " replayed"
		}
		if w.Err != nil {
			s = fmt.Sprintf("%d %s", w.Call, contract.CodeOf(w.Err))
		}
		told = append(told, s)
	}
	return told
}
