package contracttest

import (
	"leased/contract"
)

// watchResumesInTraffic resumes again and again while events come. Where a
// store shows what it kept first and goes over to what happens now, the events
// of that moment are the ones to be lost or shown twice.
func watchResumesInTraffic(e *Env) {
	a, b := e.pair()
	l := e.grant(a, e.key("busy"), alice)
	stream := e.watch(a, contract.WatchRequest{})
	const renewals = 120 // no more than any store can be expected to keep
	requests := make([]*contract.RenewRequest, renewals)
	for i := range requests {
		requests[i] = e.newRenew(l)
	}
	sent := make(chan struct{})
	e.spawn(func() {
		defer close(sent)
		for i, r := range requests {
			if _, err := pick(i, a, b).Renew(e.ctx(), r); err != nil {
				if !e.Failed() { // else the rule is over and took its calls along
					e.Errorf("renewal %d: got error %v", i, err)
				}
				return
			}
		}
	})
	for i, r := range requests {
		ev := e.next(stream)
		if ev.Kind != contract.EventRenewed || ev.RequestID != r.RequestID {
			e.Fatalf("event %d, read after %d resumptions: got %s, want renewed by %s", i, i/3, describeEvent(ev), r.RequestID)
		}
		if i%3 == 2 {
			stream.Close()
			stream = e.watch(pick(i, b, a), contract.WatchRequest{After: ev.ID})
		}
	}
	// The last event may be read before its call is answered, and the end of the
	// rule would cut that call off.
	e.waitFor(sent, "the renewals to be answered")
}
