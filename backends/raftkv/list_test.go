package raftkv_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"leased/contract"
)

// TestStore_List_longAndShort lists few of many leases and all of them, which goes
// different ways: each lease is shown once, whatever the pages.
func TestStore_List_longAndShort(t *testing.T) {
	s := newNode(t).handle()
	const all, few = 700, 50
	var workers sync.WaitGroup
	for w := range 10 {
		workers.Go(func() {
			for i := w; i < all; i += 10 {
				key, err := contract.Key{Tenant: "acme", Target: contract.Target{Type: contract.TargetName, ID: fmt.Sprint("key-", i)}, Actor: "test"}.Normalize()
				if err != nil {
					t.Error(err)
					return
				}
				owner := "many"
				if i < few {
					owner = "few"
				}
				res, err := s.Acquire(t.Context(), &contract.AcquireRequest{
					Namespace: "default", RequestID: fmt.Sprint("acquire-", i), Owner: owner, Instance: "1", Key: key, TTL: time.Hour, MaxLifetime: time.Hour,
					Retention: contract.Retention{Idempotency: time.Hour, History: time.Hour, HistoryPerKey: 16},
				})
				if err != nil || res.Outcome != contract.OutcomeAcquired {
					t.Errorf("acquire: got %v, error %v", res.Outcome, err)
				}
			}
		})
	}
	workers.Wait()
	for _, c := range []struct {
		owner       string
		limit, want int
	}{
		{"few", 1000, few}, {"few", 7, few}, {"many", 1000, all - few}, {"many", 100, all - few}, {"many", 300, all - few}, {"", 1000, all}, {"", 255, all}, {"nobody", 10, 0},
	} {
		seen := map[contract.LeaseID]bool{}
		for cursor, pages := "", 0; cursor != "" || pages == 0; pages++ {
			got, err := s.List(t.Context(), &contract.ListRequest{Namespace: "default", Owner: c.owner, Limit: c.limit, Cursor: cursor})
			if err != nil || len(got.Leases) > c.limit {
				t.Fatalf("list of %q, at most %d: got %d, error %v", c.owner, c.limit, len(got.Leases), err)
			}
			for i := range got.Leases {
				if l := &got.Leases[i]; seen[l.ID] || c.owner != "" && l.Owner != c.owner {
					t.Fatalf("list of %q, at most %d: a lease of %s, shown before: %v", c.owner, c.limit, l.Owner, seen[l.ID])
				}
				seen[got.Leases[i].ID] = true
			}
			cursor = got.NextCursor
		}
		if len(seen) != c.want {
			t.Errorf("list of %q, at most %d: %d leases, want %d", c.owner, c.limit, len(seen), c.want)
		}
	}
}

// TestStore_cursorMadeUp: what is wrong with a cursor is told in the words of the other
// stores: who calls does not know which one it is, nor what a cursor is made of.
func TestStore_cursorMadeUp(t *testing.T) {
	s := newNode(t).handle()
	_, list := s.List(t.Context(), &contract.ListRequest{Namespace: "default", Limit: 1, Cursor: "made-up"})
	_, history := s.History(t.Context(), &contract.HistoryRequest{Namespace: "default", KeyID: contract.KeyID{1}, Limit: 1, Cursor: "made-up"})
	for of, err := range map[string]error{"list": list, "history": history} {
		if want := contract.Invalid("cursor", "is not one that %s gave", of); err == nil || err.Error() != want.Error() {
			t.Errorf("%s: got %v, want %v", of, err, want)
		}
	}
}
