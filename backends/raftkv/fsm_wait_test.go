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
			got := d.do(kindRenew, &renewCmd{
				Namespace: l.ns, Owner: l.owner, Instance: l.instance, RequestID: "renew", Keep: retentionOf(d.keep),
				Items: []renewItem{{Scope: contract.Scope{2}, LeaseID: l.leaseID(), Token: l.token}},
			}).([]reply)[0]
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
			got := d.do(kindAway, &awayCmd{Items: []awayItem{
				{Namespace: c.Namespace, KeyID: c.KeyID, Scope: c.Scope, Attach: parked.attach, Undo: true},
			}}).([]reply)[0]
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
