package contracttest

import (
	"fmt"
	"math"
	"strings"

	"leased/contract"
)

func invalidReads(e *Env) {
	s := e.open()
	held := e.grant(s, e.key("held"), alice)
	invalidChecks(e, s, held)
	invalidGets(e, s, held)
	invalidRest(e, s)
	e.shows(s, held)
	invalidPages(e, s, held)
}

func invalidChecks(e *Env, s contract.Store, held contract.Lease) {
	type R = contract.CheckRequest
	cases := identityCases("namespace", contract.MaxNamespace, true, func(r *R, v string) { r.Namespace = v })
	// Zero, nothing or a wrapped negative number has passed for "any token" elsewhere.
	cases = append(cases, tokenCases("token", func(r *R, t contract.Token) { r.Token = t })...)
	cases = append(cases, invalidCase[R]{"missing", "key_id", func(r *R) { r.KeyID = contract.KeyID{} }})
	good := R{Namespace: e.ns, KeyID: held.KeyID, Token: held.Token}
	refusesEach(e, "check", good, cases, func(r *R) error {
		_, err := s.Check(e.ctx(), r)
		return err
	})
}

func invalidGets(e *Env, s contract.Store, held contract.Lease) {
	type byLease = contract.GetRequest
	cases := identityCases("namespace", contract.MaxNamespace, true, func(r *byLease, v string) { r.Namespace = v })
	cases = append(cases, invalidCase[byLease]{"missing", "lease_id", func(r *byLease) { r.LeaseID = contract.LeaseID{} }})
	refusesEach(e, "get", byLease{Namespace: e.ns, LeaseID: held.ID}, cases, func(r *byLease) error {
		_, err := s.Get(e.ctx(), r)
		return err
	})
	type byKey = contract.GetKeyRequest
	keys := identityCases("namespace", contract.MaxNamespace, true, func(r *byKey, v string) { r.Namespace = v })
	keys = append(keys, invalidCase[byKey]{"missing", "key_id", func(r *byKey) { r.KeyID = contract.KeyID{} }})
	refusesEach(e, "get key", byKey{Namespace: e.ns, KeyID: held.KeyID}, keys, func(r *byKey) error {
		_, err := s.GetKey(e.ctx(), r)
		return err
	})
}

// badCursors lists texts that no listing made; made is one that another method
// did, own one that this did. A decoder of base64 skips line ends: an own cursor
// with one in it is a second text of one place.
func badCursors(made, own string) []string {
	half := len(own) / 2
	return []string{
		"x", "0", "1", "-1", "AAAA", "!!!", "a b", "\x00", "é", strings.Repeat("A", 5000), made, made + "A",
		own + "\n", own[:half] + "\r\n" + own[half:],
	}
}

func invalidPages(e *Env, s contract.Store, held contract.Lease) {
	e.grant(s, e.key("another"), alice) // so that listing by pages of one makes a cursor
	e.end(s, held)
	again := e.grant(s, held.Key, alice)
	listed, err := s.List(e.ctx(), &contract.ListRequest{Namespace: e.ns, Limit: 1})
	if err != nil || listed.NextCursor == "" {
		e.Fatalf("list of two leases, one a page: cursor %q, error %v", listed.NextCursor, err)
	}
	told, err := s.History(e.ctx(), &contract.HistoryRequest{Namespace: e.ns, KeyID: held.KeyID, Limit: 1})
	if err != nil || told.NextCursor == "" {
		e.Fatalf("history of three events, one a page: cursor %q, error %v", told.NextCursor, err)
	}

	type listing = contract.ListRequest
	cases := identityCases("namespace", contract.MaxNamespace, true, func(r *listing, v string) { r.Namespace = v })
	for _, n := range []int{math.MinInt, -1, contract.MaxPage + 1, math.MaxInt} {
		cases = append(cases, invalidCase[listing]{"out of bounds", "limit", func(r *listing) { r.Limit = n }})
	}
	for _, state := range []contract.State{contract.StateFree, contract.StateRevoked + 1, 255} {
		cases = append(cases, invalidCase[listing]{"unknown", "state", func(r *listing) { r.State = state }})
	}
	for _, cursor := range badCursors(told.NextCursor, listed.NextCursor) {
		cases = append(cases, invalidCase[listing]{cursor, "cursor", func(r *listing) { r.Cursor = cursor }})
	}
	refusesEach(e, "list", listing{Namespace: e.ns}, cases, func(r *listing) error {
		_, err := s.List(e.ctx(), r)
		return err
	})

	type story = contract.HistoryRequest
	stories := identityCases("namespace", contract.MaxNamespace, true, func(r *story, v string) { r.Namespace = v })
	stories = append(stories, invalidCase[story]{"missing", "key_id", func(r *story) { r.KeyID = contract.KeyID{} }})
	for _, n := range []int{math.MinInt, -1, contract.MaxPage + 1, math.MaxInt} {
		stories = append(stories, invalidCase[story]{"out of bounds", "limit", func(r *story) { r.Limit = n }})
	}
	for _, cursor := range badCursors(listed.NextCursor, told.NextCursor) {
		stories = append(stories, invalidCase[story]{cursor, "cursor", func(r *story) { r.Cursor = cursor }})
	}
	refusesEach(e, "history", story{Namespace: e.ns, KeyID: held.KeyID}, stories, func(r *story) error {
		_, err := s.History(e.ctx(), r)
		return err
	})
	e.end(s, again)
}

func invalidRest(e *Env, s contract.Store) {
	type floor = contract.RaiseFloorRequest
	floors := identityCases("namespace", contract.MaxNamespace, true, func(r *floor, v string) { r.Namespace = v })
	floors = append(floors, tokenCases("above", func(r *floor, t contract.Token) { r.Above = t })...)
	refusesEach(e, "raise floor", floor{Namespace: e.ns, Above: 1}, floors, func(r *floor) error {
		return s.RaiseFloor(e.ctx(), r)
	})
	type health = contract.HealthRequest
	refusesEach(e, "health", health{Namespace: e.ns},
		identityCases("namespace", contract.MaxNamespace, true, func(r *health, v string) { r.Namespace = v }),
		func(r *health) error {
			_, err := s.Health(e.ctx(), r)
			return err
		})
	type watch = contract.WatchRequest
	cases := identityCases("namespace", contract.MaxNamespace, true, func(r *watch, v string) { r.Namespace = v })
	for _, cursor := range []string{"x", "!!!", "a b", "\x00", "é", strings.Repeat("A", 5000)} {
		cases = append(cases, invalidCase[watch]{cursor, "after", func(r *watch) { r.After = cursor }})
	}
	for _, kind := range []contract.EventKind{0, contract.EventGap, contract.EventGap + 1} {
		kinds := contract.KindsOf(contract.EventRevoked, kind)
		cases = append(cases, invalidCase[watch]{fmt.Sprintf("kind %d", kind), "event", func(r *watch) { r.Kinds = kinds }})
	}
	refusesEach(e, "watch", watch{Namespace: e.ns}, cases, func(r *watch) error {
		stream, err := s.Watch(e.ctx(), r)
		if err == nil {
			stream.Close()
		}
		return err
	})
}
