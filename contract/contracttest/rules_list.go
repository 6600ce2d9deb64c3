package contracttest

import (
	"fmt"
	"slices"
	"time"

	"leased/contract"
)

func listRules() []Rule {
	return []Rule{
		{ID: "list-active-only", Func: listActiveOnly,
			Sentence: "Without a state only active leases are listed, with one only those in it; an expired lease is no longer active, swept or not."},
		{ID: "list-filters-literal", Func: listFiltersLiteral,
			Sentence: "Each filter selects exactly the leases whose text is equal to it: no character is a pattern, and no prefix or other case matches."},
		{ID: "list-filters-combined", Func: listFiltersCombined,
			Sentence: "Filters are combined with \"and\", and an empty one matches everything."},
		{ID: "list-expires-before", Func: listExpiresBefore,
			Sentence: "Expires-before selects the leases that end before the instant and not at it, as renewals have moved their ends."},
		{ID: "list-pages", Func: listPages,
			Sentence: "Pages have at most as many leases as asked for, or the default, in an order that is the same on every walk and every gateway, and end without a cursor."},
		{ID: "list-stable-under-change", Func: listStableUnderChange,
			Sentence: "While others come, go and are renewed, following the cursors shows every lease that is held throughout exactly once, and none twice."},
	}
}

func listActiveOnly(e *Env) {
	a, b := e.pair()
	endings := e.eachEnding(a)
	brief := e.newAcquire(e.key("brief"), alice)
	brief.TTL = e.short()
	expires := e.granted(a, brief)
	held := e.grant(b, e.key("held"), alice)
	// Listing is the first thing that happens after the end.
	e.expire(expires)
	listed := e.list(a, contract.ListRequest{})
	if len(listed) != 1 || listed[0].ID != held.ID {
		e.Fatalf("list: got %d leases, want the one that is held", len(listed))
	}
	counts := map[contract.State]int{
		contract.StateActive: 1, contract.StateExpired: 2, contract.StateReleased: 1, contract.StateRevoked: 1,
	}
	for state, want := range counts {
		for _, s := range []contract.Store{a, b} {
			listed := e.list(s, contract.ListRequest{State: state})
			if len(listed) != want {
				e.Errorf("list of %s: got %d leases, want %d", state, len(listed), want)
			}
			for _, l := range listed {
				if wrong := leaseShape(l); wrong != "" || l.State != state {
					e.Errorf("list of %s: shows a %s lease: %s", state, l.State, wrong)
				}
			}
		}
	}
	for _, o := range endings {
		e.shows(b, o.lease)
	}
}

// lookalikes are texts that a pattern, a prefix search or a comparison without
// case would take for each other.
func lookalikes() []string {
	return []string{"a_b", "aXb", "a%b", "a*b", "ab", "AB", "a", "*", "%", "_", "?", ".*", "[ab]", "a\\b", "{a}", "a:b", "a/b", "'a'", "ä"}
}

func listFiltersLiteral(e *Env) {
	a, b := e.pair()
	texts := lookalikes()
	held := map[string]contract.LeaseID{}
	for i, text := range texts {
		// Every part of a lease has the text, so that each filter must find it.
		r := e.newAcquire(e.normal(contract.Key{
			Tenant: text, Program: text, Target: contract.Target{Type: contract.TargetName, ID: text}, Actor: text,
		}), text)
		r.Instance, r.JobID = text, text
		held[text] = e.granted(pick(i, a, b), r).ID
	}
	filters := map[string]func(*contract.ListRequest, string){
		"owner":    func(r *contract.ListRequest, v string) { r.Owner = v },
		"instance": func(r *contract.ListRequest, v string) { r.Instance = v },
		"tenant":   func(r *contract.ListRequest, v string) { r.Tenant = v },
		"program":  func(r *contract.ListRequest, v string) { r.Program = v },
		"target": func(r *contract.ListRequest, v string) {
			r.Target = contract.Target{Type: contract.TargetName, ID: v}
		},
		"actor":  func(r *contract.ListRequest, v string) { r.Actor = v },
		"job id": func(r *contract.ListRequest, v string) { r.JobID = v },
	}
	for name, set := range filters {
		for i, text := range append(texts, "nobody", "b", "a_", "**") {
			var r contract.ListRequest
			set(&r, text)
			listed := e.list(pick(i, b, a), r)
			want, ok := held[text]
			switch {
			case !ok && len(listed) != 0:
				e.Errorf("%s %q: got %d leases, want none", name, text, len(listed))
			case ok && (len(listed) != 1 || listed[0].ID != want):
				e.Errorf("%s %q: got %d leases, want the one that has it", name, text, len(listed))
			}
		}
	}
}

func listFiltersCombined(e *Env) {
	s := e.open()
	ids := map[contract.LeaseID]string{}
	for _, owner := range []string{alice, bob} {
		for _, tenant := range []string{"acme", "umbrella"} {
			for _, job := range []string{"", "job-1"} {
				r := e.newAcquire(e.normal(contract.Key{
					Tenant: tenant, Target: contract.Target{Type: contract.TargetDomain, ID: owner + job + ".example"}, Actor: "crawler",
				}), owner)
				r.JobID = job
				ids[e.granted(s, r).ID] = owner + " " + tenant + " " + job
			}
		}
	}
	for _, c := range []struct {
		what string
		r    contract.ListRequest
		want int
	}{
		{"nothing", contract.ListRequest{}, 8},
		{"owner", contract.ListRequest{Owner: alice}, 4},
		{"owner, tenant", contract.ListRequest{Owner: alice, Tenant: "acme"}, 2},
		{"owner, tenant, job", contract.ListRequest{Owner: alice, Tenant: "acme", JobID: "job-1"}, 1},
		{"job", contract.ListRequest{JobID: "job-1"}, 4},
		{"target", contract.ListRequest{Target: contract.Target{Type: contract.TargetDomain, ID: "bob.example"}}, 2},
		{"target of another type", contract.ListRequest{Target: contract.Target{Type: contract.TargetName, ID: "bob.example"}}, 0},
		{"target, owner who is not there", contract.ListRequest{Owner: alice, Target: contract.Target{Type: contract.TargetDomain, ID: "bob.example"}}, 0},
		{"actor, tenant, instance", contract.ListRequest{Actor: "crawler", Tenant: "umbrella", Instance: "bob-1"}, 2},
		{"owner of another's instance", contract.ListRequest{Owner: alice, Instance: "bob-1"}, 0},
		{"everything, active", contract.ListRequest{Owner: bob, Tenant: "acme", Program: "default", Actor: "crawler", State: contract.StateActive}, 2},
		{"everything, released", contract.ListRequest{Owner: bob, Tenant: "acme", State: contract.StateReleased}, 0},
	} {
		if listed := e.list(s, c.r); len(listed) != c.want {
			e.Errorf("list by %s: got %d leases, want %d", c.what, len(listed), c.want)
		}
	}
}

func listExpiresBefore(e *Env) {
	a, b := e.pair()
	grant := func(name string, ttl time.Duration) contract.Lease {
		r := e.newAcquire(e.key(name), alice)
		r.TTL, r.MaxLifetime = ttl, 100*e.long()
		return e.granted(a, r)
	}
	soon, later := grant("soon", e.ttl(time.Minute)), grant("later", e.long())
	between := func(want ...contract.LeaseID) {
		e.Helper()
		middle := soon.ExpiresAt.Add(later.ExpiresAt.Sub(soon.ExpiresAt) / 2)
		for what, c := range map[string]struct {
			before time.Time
			n      int
		}{
			"before all":              {soon.AcquiredAt, 0},
			"at the end of one":       {soon.ExpiresAt, 0},
			"just after that":         {soon.ExpiresAt.Add(time.Millisecond), len(want)},
			"in between":              {middle, len(want)},
			"at the end of the other": {later.ExpiresAt, len(want)},
			"after all":               {later.ExpiresAt.Add(10 * e.long()), 2},
			"in another zone":         {middle.In(time.FixedZone("UTC+14", 14*3600)), len(want)},
		} {
			listed := e.list(b, contract.ListRequest{ExpiresBefore: c.before})
			if len(listed) != c.n {
				e.Errorf("list of what expires before an instant %s: got %d leases, want %d", what, len(listed), c.n)
			}
		}
		for _, l := range e.list(b, contract.ListRequest{ExpiresBefore: middle}) {
			if !slices.Contains(want, l.ID) {
				e.Errorf("list of what expires before %v: shows one that expires at %v", middle, l.ExpiresAt)
			}
		}
	}
	between(soon.ID)
	renew := e.newRenew(soon)
	renew.TTL = 2 * e.long()
	e.renew(b, renew, contract.OutcomeRenewed)
	between()
}

// walk follows the cursors in pages of the given size and wants none bigger.
func (e *Env) walk(s contract.Store, limit int, between func()) []contract.LeaseID {
	e.Helper()
	var ids []contract.LeaseID
	r := &contract.ListRequest{Namespace: e.ns, Limit: limit}
	most := limit
	if limit == 0 {
		most = contract.DefaultPage
	}
	for range 1000 {
		page, err := s.List(e.ctx(), r)
		if err != nil {
			e.Fatalf("list: got error %v", err)
		}
		if len(page.Leases) > most {
			e.Fatalf("list: got a page of %d leases, want at most %d", len(page.Leases), most)
		}
		for _, l := range page.Leases {
			if slices.Contains(ids, l.ID) {
				e.Fatalf("list: shows the lease of %s twice", l.Key.Target.ID)
			}
			ids = append(ids, l.ID)
		}
		if page.NextCursor == "" {
			return ids
		}
		r.Cursor = page.NextCursor
		between()
	}
	e.Fatalf("list: no end after 1,000 pages of %d leases in all", len(ids))
	return nil
}

func listPages(e *Env) {
	a, b := e.pair()
	const n = contract.DefaultPage + 7
	var grants [n]contract.Lease
	var errs [n]error
	e.race(n, func(i int) {
		var res contract.Result
		res, errs[i] = pick(i, a, b).Acquire(e.ctx(), e.newAcquire(e.key(fmt.Sprint("key-", i)), alice))
		if errs[i] == nil && res.Lease != nil {
			grants[i] = *res.Lease
		}
	})
	want := e.walk(a, contract.MaxPage, func() {})
	if len(want) != n {
		e.Fatalf("list in one page: got %d leases, want %d", len(want), n)
	}
	for i, l := range grants {
		if errs[i] != nil || !slices.Contains(want, l.ID) {
			e.Fatalf("list: lease %d of %d is missing, error %v", i, n, errs[i])
		}
	}
	for i, limit := range []int{1, 3, 50, n - 1, n, n + 1, 0} {
		if got := e.walk(pick(i, b, a), limit, func() {}); !slices.Equal(got, want) {
			e.Errorf("list in pages of %d: got %d leases in another order, want %d", limit, len(got), n)
		}
	}
}

func listStableUnderChange(e *Env) {
	a, b := e.pair()
	var stay, leave []contract.Lease
	for i := range 12 {
		stay = append(stay, e.grant(a, e.key(fmt.Sprint("stays-", i)), alice))
		leave = append(leave, e.grant(b, e.key(fmt.Sprint("goes-", i)), bob))
	}
	for round := range 3 {
		step := 0
		seen := e.walk(pick(round, a, b), 3, func() {
			// A few leave, one comes back under a new lease, another is new, and
			// those that stay are renewed.
			i := step % len(leave)
			e.end(b, leave[i])
			if step%2 == 0 {
				leave[i] = e.grant(a, leave[i].Key, carol)
			} else {
				leave[i] = e.grant(a, e.key(e.id("comes")), carol)
			}
			j := (step * 5) % len(stay)
			stay[j] = *e.renew(b, e.newRenew(stay[j]), contract.OutcomeRenewed).Lease
			step++
		})
		for _, l := range stay {
			if !slices.Contains(seen, l.ID) {
				e.Fatalf("list: misses %s, which was held throughout", l.Key.Target.ID)
			}
		}
	}
}
