package cluster

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"leased/client"
	"leased/gateway/api"
	"leased/test/proc"
)

const (
	shortTTL   = 5 * time.Second
	renewEvery = 1500 * time.Millisecond
	killEvery  = 4 * time.Second
	// mostLate is how much later than its TTL and the time without a leader a lease
	// may be recorded as expired.
	mostLate = 2 * time.Second
)

// Through a leader that is killed every 4 s no lease is lost that is renewed in
// time, and each that is not ends: not before its TTL, and after it no later than
// the time without a leader explains.
func TestCluster_renewalsAndExpiries(t *testing.T) {
	c := proc.StartLeasedCluster(t, proc.Build(t, "leased/cmd/leased"), 3, "namespaces: {default: {ttl: {min: 1s}}}\n")
	h := hold(t, c, 100)
	left := abandon(t, c)
	var kills []time.Time
	at := c.Nodes[0]
	for range rounds(3, 15) {
		next := time.Now().Add(killEvery)
		leader, followers := c.Leader(t, at)
		at = followers[0]
		left.add(t, 20) // before each kill: those of the issue, once for each
		kills = append(kills, time.Now())
		leader.Kill()
		c.Launch(t, leader)
		leader.WaitReady(t)
		c.Healthy(t)
		<-time.After(time.Until(next)) // how often it is killed is what is tested
	}
	left.wait()
	h.stop()
	pauses := h.pauses(t, kills)
	t.Logf("after each kill no renewal for %v; %d renewals", pauses, len(h.renewals))
	left.check(t, kills, pauses)
	h.check(t, c.Client(t))
}

// held are leases that are renewed.
type held struct {
	stop func()

	mu       sync.Mutex
	leases   []*api.Lease // as renewed last
	renewals []renewal
}

type renewal struct{ sent, answered time.Time }

// hold acquires leases, through each of the nodes, and renews each every 1.5 s.
func hold(t *testing.T, c *proc.Cluster, leases int) *held {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	h := &held{leases: make([]*api.Lease, leases)}
	var wg sync.WaitGroup
	h.stop = func() { cancel(); wg.Wait() }
	t.Cleanup(h.stop)
	for i := range leases {
		at := c.Client(t, c.Nodes[i%len(c.Nodes)])
		got, err := at.Acquire(t.Context(), acquireRequest(fmt.Sprint("held-", i), shortTTL))
		if err != nil {
			t.Fatal(err)
		}
		h.leases[i] = got.Lease
		ends := got.SentAt.Add(shortTTL)
		wg.Go(func() {
			for ctx.Err() == nil {
				select {
				case <-time.After(time.Until(ends.Add(renewEvery - shortTTL))):
				case <-ctx.Done():
					return
				}
				ends = h.renew(t, at, i, ends)
			}
		})
	}
	return h
}

// renew renews a lease, which its holder takes to end at ends, and returns when it
// takes it to end then.
func (h *held) renew(t *testing.T, at *client.Client, i int, ends time.Time) time.Time {
	t.Helper()
	h.mu.Lock()
	l := h.leases[i]
	h.mu.Unlock()
	// Also when the test is about to end: a renewal that is on its way counts.
	ctx, cancel := context.WithDeadline(context.WithoutCancel(t.Context()), ends)
	defer cancel()
	sent := time.Now()
	got, err := at.Renew(ctx, client.RenewRequest{LeaseID: l.LeaseID, Token: l.Token, Instance: l.Instance})
	if err != nil {
		t.Errorf("lease %d was not renewed before its end: %v", i, err)
		return ends.Add(time.Hour) // say it once
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.leases[i] = got.Lease
	h.renewals = append(h.renewals, renewal{sent, time.Now()})
	return got.SentAt.Add(shortTTL)
}

// pauses returns how long after each kill the first renewal was answered that was
// sent after it.
func (h *held) pauses(t *testing.T, kills []time.Time) []time.Duration {
	t.Helper()
	pauses := make([]time.Duration, len(kills))
	for i, kill := range kills {
		first := slices.MinFunc(h.renewals, func(a, b renewal) int {
			// Those of before the kill come last.
			if a.sent.Before(kill) != b.sent.Before(kill) {
				if a.sent.Before(kill) {
					return 1
				}
				return -1
			}
			return a.answered.Compare(b.answered)
		})
		if first.sent.Before(kill) {
			t.Fatalf("there was no renewal after kill %d", i)
		}
		pauses[i] = first.answered.Sub(kill)
	}
	return pauses
}

// check holds the cluster to each lease as it was renewed last: none was lost, and
// each renewal was counted once. Now that nobody renews them they may end meanwhile,
// when they are due.
func (h *held) check(t *testing.T, c *client.Client) {
	t.Helper()
	for i, want := range h.leases {
		got, err := c.Get(t.Context(), "", want.LeaseID)
		if err != nil {
			t.Errorf("lease %d: %v", i, err)
			continue
		}
		events := slices.DeleteFunc(historyOf(t, c, want.KeyID), func(e api.Event) bool { return e.Event == "expired" && !e.At.Before(want.ExpiresAt.Time) })
		if len(events) != 1 || events[0].Event != "acquired" {
			t.Errorf("lease %d has the history %+v, want its grant only", i, events)
		}
		due := *want
		if got.State == "expired" && !got.EndedAt.Before(want.ExpiresAt.Time) {
			due.State, due.EndedAt = got.State, got.EndedAt
		}
		sameLease(t, &due, got)
	}
	count := uint64(0)
	for _, l := range h.leases {
		count += l.Renewals
	}
	if count != uint64(len(h.renewals)) {
		t.Errorf("the leases have %d renewals, %d were acknowledged", count, len(h.renewals))
	}
}

// abandoned are leases that nobody renews.
type abandoned struct {
	client *client.Client
	late   *proc.Lateness
	over   sync.WaitGroup
	ends   []*ending
}

// ending is what was seen of the end of a lease.
type ending struct {
	lease              *api.Lease
	sent, granted, end time.Time
}

func abandon(t *testing.T, c *proc.Cluster) *abandoned {
	t.Helper()
	a := &abandoned{client: c.Client(t), late: proc.WatchLateness(t)}
	t.Cleanup(a.wait)
	return a
}

// add acquires so many leases and looks for their ends.
func (a *abandoned) add(t *testing.T, count int) {
	t.Helper()
	for range count {
		got, err := a.client.Acquire(t.Context(), acquireRequest(fmt.Sprint("left-", len(a.ends)), shortTTL))
		if err != nil {
			t.Fatal(err)
		}
		e := &ending{lease: got.Lease, sent: got.SentAt, granted: time.Now()}
		a.ends = append(a.ends, e)
		a.over.Go(func() { e.follow(t, a.client) })
	}
}

func (a *abandoned) wait() { a.over.Wait() }

// follow looks for the end from shortly before it is due.
func (e *ending) follow(t *testing.T, c *client.Client) {
	t.Helper()
	due := e.sent.Add(shortTTL)
	select {
	case <-time.After(time.Until(due.Add(-200 * time.Millisecond))): // when it ends is what is tested
	case <-t.Context().Done():
	}
	for {
		asked := time.Now()
		page, err := c.History(t.Context(), client.HistoryRequest{KeyID: e.lease.KeyID})
		now := time.Now()
		switch {
		case t.Context().Err() != nil:
			return // the test has failed already
		case err != nil:
			t.Errorf("history of %s: %v", e.lease.LeaseID, err)
			return
		case len(page.Events) > 1 && now.Before(due):
			t.Errorf("lease %s ended %v before its TTL: %+v", e.lease.LeaseID, due.Sub(now), page.Events[0])
			return
		case len(page.Events) > 1:
			e.end = asked
			return
		case now.After(due.Add(proc.Patience)):
			t.Errorf("lease %s did not end within %v of its TTL", e.lease.LeaseID, proc.Patience)
			return
		}
		<-time.After(20 * time.Millisecond)
	}
}

// check holds each end to its time, and to what is recorded of it.
func (a *abandoned) check(t *testing.T, kills []time.Time, pauses []time.Duration) {
	t.Helper()
	latest := time.Duration(0)
	for _, e := range a.ends {
		allowed := mostLate
		for i, kill := range kills {
			if kill.After(e.granted) && kill.Before(e.end) {
				allowed += pauses[i]
			}
		}
		due := e.granted.Add(shortTTL)
		late := e.end.Sub(due) - a.late.Between(due, e.end)
		latest = max(latest, late)
		if late > allowed {
			t.Errorf("lease %s ended %v after its TTL, want at most %v", e.lease.LeaseID, late, allowed)
		}
		events := historyOf(t, a.client, e.lease.KeyID)
		want := []string{"expired", "acquired"}
		got := make([]string, len(events))
		for i, event := range events {
			got[i] = event.Event
			if event.LeaseID != e.lease.LeaseID || event.Token != e.lease.Token {
				t.Errorf("event %+v is not of lease %s", event, e.lease.LeaseID)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("history of %s (-want +got):\n%s", e.lease.LeaseID, diff)
		}
		last, err := a.client.Get(t.Context(), "", e.lease.LeaseID)
		if err != nil || last.State != "expired" || last.Token != e.lease.Token || last.Renewals != 0 {
			t.Errorf("the abandoned lease: got %+v, error %v, want it expired", last, err)
		}
	}
	t.Logf("of %d leases that nobody renewed the last ended %v after its TTL", len(a.ends), latest)
}
