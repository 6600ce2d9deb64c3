package contracttest

import (
	"fmt"

	"github.com/google/go-cmp/cmp"

	"leased/contract"
)

func reopenKeepsCounts(e *Env) {
	s := e.open()
	quota := func(name, owner string) *contract.AcquireRequest {
		r := e.newAcquire(e.key(name), owner)
		r.Limits.LeasesPerOwner = 2
		return r
	}
	held := e.granted(s, quota("one", alice))
	e.granted(s, quota("two", alice))
	e.end(s, e.granted(s, quota("over", bob)))
	brief := quota("brief", bob)
	brief.TTL = e.short()
	over := e.granted(s, brief)
	waiter := e.park(s, e.newWaiter(held.Key, carol))

	s = e.reopen()
	waiter.cancel()
	e.finished(waiter)
	e.expire(e.get(s, over.ID))
	e.eventually("health counts the two leases that are held after the restart, and no waiter", func() bool {
		h := e.health(s)
		return h.Ready && h.ActiveLeases == 2 && h.Waiters == 0
	})
	// Alice has all she may have, and bob, whose leases are over, none of them.
	if res := e.acquire(s, quota("three", alice), contract.OutcomeQuotaExceeded); res.Limit != "leases_per_owner" {
		e.Errorf("the limit that was reached: got %q, want leases_per_owner", res.Limit)
	}
	for i := range 2 {
		e.granted(s, quota(fmt.Sprint("bob-", i), bob))
	}
	e.acquire(s, quota("bob-2", bob), contract.OutcomeQuotaExceeded)
	e.end(s, held)
	e.granted(s, quota("three", alice))
}

// reopenKeepsCursors restarts the store between two pages: the order in which a
// list goes does not change with time, and what a cursor named is still there.
func reopenKeepsCursors(e *Env) {
	s := e.open()
	key := e.key("often")
	for range 3 {
		e.end(s, e.grant(s, key, alice))
	}
	for i := range 5 {
		e.grant(s, e.key(fmt.Sprint("key-", i)), alice)
	}
	leases, events := e.list(s, contract.ListRequest{}), e.history(s, key.ID())
	listing := contract.ListRequest{Namespace: e.ns, Limit: 2}
	listed, err := s.List(e.ctx(), &listing)
	if err != nil || listed.NextCursor == "" {
		e.Fatalf("list of %d leases, two a page: cursor %q, error %v", len(leases), listed.NextCursor, err)
	}
	story := contract.HistoryRequest{Namespace: e.ns, KeyID: key.ID(), Limit: 2}
	told, err := s.History(e.ctx(), &story)
	if err != nil || told.NextCursor == "" {
		e.Fatalf("history of %d events, two a page: cursor %q, error %v", len(events), told.NextCursor, err)
	}

	s = e.reopen()
	listing.Cursor, listing.Limit = listed.NextCursor, 0
	rest, err := s.List(e.ctx(), &listing)
	if err != nil {
		e.Fatalf("list, continued after the restart: got error %v", err)
	}
	if diff := cmp.Diff(leaseIDs(append(listed.Leases, rest.Leases...)), leaseIDs(leases)); diff != "" {
		e.Errorf("list, continued after the restart: (-got +want)\n%s", diff)
	}
	story.Cursor, story.Limit = told.NextCursor, 0
	older, err := s.History(e.ctx(), &story)
	if err != nil {
		e.Fatalf("history, continued after the restart: got error %v", err)
	}
	if diff := cmp.Diff(eventIDs(append(told.Events, older.Events...)), eventIDs(events)); diff != "" {
		e.Errorf("history, continued after the restart: (-got +want)\n%s", diff)
	}
}

func leaseIDs(leases []contract.Lease) []string {
	var ids []string
	for _, l := range leases {
		ids = append(ids, l.ID.String())
	}
	return ids
}

func eventIDs(events []contract.Event) []string {
	var ids []string
	for _, ev := range events {
		ids = append(ids, ev.ID)
	}
	return ids
}
