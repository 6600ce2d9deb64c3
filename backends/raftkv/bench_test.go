package raftkv

import (
	"fmt"
	"testing"
	"time"

	"leased/contract"
)

// BenchmarkApply is the processor time of one acquire and its release in the
// state machine, decoding included.
func BenchmarkApply(b *testing.B) {
	for _, held := range []int{0, 100_000} {
		b.Run(fmt.Sprintf("held_%d", held), func(b *testing.B) {
			d := newDriver(b)
			for i := range held {
				d.acquire(request(fmt.Sprintf("held-%d", i), "a", fmt.Sprintf("h%d", i)))
			}
			b.ReportAllocs()
			b.ResetTimer()
			for i := range b.N {
				r := d.acquire(request(fmt.Sprintf("k%d", i%64), "a", fmt.Sprintf("r%d", i)))
				d.release(r.lease)
			}
		})
	}
}

// BenchmarkRenew is the processor time that a bulk renewal of a thousand leases takes
// in the state machine for each of them, decoding included, with a hundred holders.
// Answers are remembered for as long as a renewal's turn takes.
func BenchmarkRenew(b *testing.B) {
	const holders, each = 100, 1000
	d := newDriver(b)
	keep := retentionOf(d.keep)
	keep.Idempotency = int64(10 * time.Second)
	calls := make([]renewCmd, holders)
	for h := range calls {
		owner := fmt.Sprintf("holder-%d", h)
		calls[h] = renewCmd{Namespace: "default", Owner: owner, Instance: "i-" + owner, Keep: keep}
		for i := range each {
			l := d.acquire(request(fmt.Sprintf("held-%d-%d", h, i), owner, fmt.Sprintf("h%d-%d", h, i))).lease
			calls[h].Items = append(calls[h].Items, renewItem{LeaseID: l.leaseID(), Token: l.token})
		}
	}
	b.ReportAllocs()
	b.ResetTimer()
	for i := range b.N {
		c := &calls[i%holders]
		c.RequestID = fmt.Sprint("renew-", i)
		for k := range c.Items {
			r := contract.RenewRequest{Namespace: c.Namespace, Owner: c.Owner, RequestID: c.RequestID, LeaseID: c.Items[k].LeaseID}
			c.Items[k].Scope = r.Scope()
		}
		d.now += int64(100 * time.Millisecond)
		if got := d.do(kindRenew, c).([]reply); got[0].outcome != contract.OutcomeRenewed {
			b.Fatalf("a renewal is answered %v", got[0].outcome)
		}
		d.do(kindSweep, &sweepCmd{Max: 2 * each})
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*each), "ns/lease")
}
