package raftkv

import (
	"testing"
	"time"

	"leased/contract"
)

// How long a history goes back is what the latest call said, whichever it was.
func TestFSM_HistoryKept(t *testing.T) {
	for _, latest := range []string{"acquire", "renew", "release", "revoke"} {
		t.Run(latest, func(t *testing.T) {
			d := newDriver(t)
			keep := func(what string) contract.Retention {
				d.keep = testRetention()
				d.keep.History = time.Hour
				if what == latest {
					d.keep.History = 2 * time.Hour
				}
				return d.keep
			}
			first := request("k", "a", "first")
			first.Retention = keep("acquire")
			l := d.acquire(first).lease
			if latest == "renew" {
				d.do(kindRenew, &renewCmd{
					Namespace: l.ns, Owner: l.owner, Instance: l.instance, RequestID: "renew", Keep: retentionOf(keep("renew")),
					Items: []renewItem{{Scope: contract.Scope{2}, LeaseID: l.leaseID(), Token: l.token}},
				})
			}
			keep(latest)
			switch latest {
			case "release":
				d.release(l)
			case "revoke":
				d.do(kindRevoke, &revokeCmd{
					Namespace: l.ns, Scope: contract.Scope{3}, LeaseID: l.leaseID(), Principal: "admin", Reason: "r", Keep: retentionOf(d.keep),
				})
			}
			if got, want := d.fsm.state.key(l.ident).keep, int64(2*time.Hour); got != want {
				t.Errorf("the history goes back %v, want %v", time.Duration(got), time.Duration(want))
			}
		})
	}
}
