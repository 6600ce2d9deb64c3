package raftkv

import (
	"testing"
	"time"

	"leased/contract"
)

// A grant that crosses the end of its wait is undone, but not under the hands of
// somebody who has it: of a copy of the request that was told of it, or of a
// holder who renewed it.
func TestFSM_UndoneOnlyUntaken(t *testing.T) {
	for name, test := range map[string]struct {
		take  func(d *driver, waiter *contract.AcquireRequest, l *lease)
		stays bool
	}{
		"by nobody": {func(*driver, *contract.AcquireRequest, *lease) {}, false},
		"by a copy": {func(d *driver, waiter *contract.AcquireRequest, _ *lease) {
			if got := d.acquire(waiter); got.outcome != contract.OutcomeAcquired || !got.replayed {
				d.t.Errorf("the copy is answered %+v, want the grant replayed", got)
			}
		}, true},
		"by its holder": {func(d *driver, _ *contract.AcquireRequest, l *lease) {
			got := d.one(kindRenew, &renewCmd{
				Namespace: l.ns, Owner: l.owner, Instance: l.instance, RequestID: "renew", Keep: retentionOf(d.keep),
				Items: []renewItem{{Scope: contract.Scope{2}, LeaseID: l.leaseID(), Token: l.token}},
			})
			if got.outcome != contract.OutcomeRenewed {
				d.t.Errorf("the renewal is answered %+v", got)
			}
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDriver(t)
			holder := d.acquire(request("k", "a", "holder"))
			waiter := request("k", "b", "waiter")
			waiter.Wait = time.Minute
			c := commandOf(waiter)
			parked := d.do(kindAcquire, c).(reply)
			d.release(holder.lease)
			granted := d.fsm.state.key(holder.lease.ident).active
			if granted == nil || granted.owner != "b" {
				t.Fatalf("the key is %+v's after the release, want the waiter's", granted)
			}
			test.take(d, waiter, granted)
			got := d.one(kindAway, &awayCmd{Items: []awayItem{
				{Namespace: c.Namespace, KeyID: c.KeyID, Scope: c.Scope, Attach: parked.attach, Undo: true},
			}})
			now := d.fsm.state.key(holder.lease.ident).active
			if stays := now != nil && now.token == granted.token; stays != test.stays {
				t.Errorf("the waiter's leaving is answered %v and the grant stays: %v, want %v", got.outcome, stays, test.stays)
			}
			if want := map[bool]contract.Outcome{true: contract.OutcomeAcquired, false: contract.OutcomeConflict}[test.stays]; got.outcome != want {
				t.Errorf("the waiter's leaving is answered %v, want %v", got.outcome, want)
			}
		})
	}
}

// Copies whose waits end as their turn comes are told of a grant that another copy was
// served: one call is told that it is new, however many are.
func TestFSM_LeaversReplay(t *testing.T) {
	d := newDriver(t)
	holder := d.acquire(request("k", "a", "holder"))
	waiter := request("k", "b", "waiter")
	waiter.Wait = time.Minute
	c := commandOf(waiter)
	d.do(kindAcquire, c)
	d.release(holder.lease)
	leave := func(attach uint64) reply {
		return d.one(kindAway, &awayCmd{Items: []awayItem{{Namespace: c.Namespace, KeyID: c.KeyID, Scope: c.Scope, Attach: attach}}})
	}
	for i := range 3 {
		if got := leave(0); got.outcome != contract.OutcomeAcquired || !got.replayed {
			t.Errorf("copy %d, which leaves while another is at the place, is answered %v, replayed %v, want the grant replayed", i, got.outcome, got.replayed)
		}
	}
	d = newDriver(t)
	holder = d.acquire(request("k", "a", "holder"))
	parked := d.do(kindAcquire, c).(reply)
	d.release(holder.lease)
	if got := leave(parked.attach); got.outcome != contract.OutcomeAcquired || got.replayed {
		t.Errorf("the last at the place, which was served, is answered %v, replayed %v, want a new grant", got.outcome, got.replayed)
	}
}

// A place is kept for the retention of its request after its caller has left or
// its leader has gone, and no longer.
func TestFSM_PlaceKept(t *testing.T) {
	for name, leave := range map[string]func(d *driver, c *acquireCmd, attach uint64){
		"after leaving": func(d *driver, c *acquireCmd, attach uint64) {
			d.do(kindAway, &awayCmd{Items: []awayItem{{Namespace: c.Namespace, KeyID: c.KeyID, Scope: c.Scope, Attach: attach}}})
		},
		"after a take-over": func(d *driver, _ *acquireCmd, _ uint64) { d.do(kindTakeover, &takeoverCmd{}) },
	} {
		t.Run(name, func(t *testing.T) {
			d := newDriver(t)
			holder := request("k", "a", "holder")
			holder.TTL = time.Hour
			held := d.acquire(holder).lease
			waiter := request("k", "b", "waiter")
			waiter.Wait = time.Minute
			c := commandOf(waiter)
			leave(d, c, d.do(kindAcquire, c).(reply).attach)
			places := func() int {
				d.do(kindSweep, &sweepCmd{Max: 1000})
				return int(d.fsm.state.key(held.ident).places)
			}
			d.now += int64(waiter.Retention.Idempotency) - 1
			if n := places(); n != 1 {
				t.Errorf("the key has %d places just before the end of the retention, want the one of who left", n)
			}
			d.now += 2
			if n := places(); n != 0 {
				t.Errorf("the key has %d places after the end of the retention, want none", n)
			}
		})
	}
}
