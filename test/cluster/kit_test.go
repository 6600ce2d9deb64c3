package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"leased/client"
	"leased/gateway/api"
	"leased/test/proc"
)

// rounds returns how often to do something: long for make chaos.
func rounds(short, long int) int {
	if os.Getenv("LEASED_CHAOS") != "" {
		return long
	}
	return short
}

func acquireRequest(name string, ttl time.Duration) client.AcquireRequest {
	return client.AcquireRequest{
		RequestID: "a-" + name, Instance: "i-" + name, TTL: ttl,
		Key: api.Key{Tenant: "acme", Target: api.Target{Type: "name", ID: name}, Actor: "load"},
	}
}

func releaseRequest(l *api.Lease) client.ReleaseRequest {
	return client.ReleaseRequest{RequestID: "r-" + l.LeaseID, LeaseID: l.LeaseID, Token: l.Token, Instance: l.Instance}
}

// load acquires and releases as fast as it can, through all nodes, and keeps what
// it was promised.
type load struct {
	stop func()
	late *proc.Lateness

	mu       sync.Mutex
	grants   []time.Time
	leases   []*api.Lease // those that were not released
	released []*api.Lease // of those that were, some
	failures []error
}

// startLoad starts workers, each with a client of all nodes that calls another one
// first. attempts is how often a call is tried.
func startLoad(t *testing.T, c *proc.Cluster, workers, attempts int) *load {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	l := &load{late: proc.WatchLateness(t)}
	var wg sync.WaitGroup
	for w := range workers {
		servers := make([]*client.Client, len(c.Nodes))
		for i := range servers {
			servers[i] = once(t, c.Nodes[(w+i)%len(c.Nodes)])
		}
		wg.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				l.cycle(ctx, servers, attempts, fmt.Sprintf("%s-w%d-%d", t.Name(), w, i), i)
			}
		})
	}
	l.stop = func() { cancel(); wg.Wait() }
	t.Cleanup(l.stop)
	l.wait(t, workers)
	return l
}

// once returns a client of one node that tries once.
func once(t *testing.T, n *proc.Node) *client.Client {
	t.Helper()
	c, err := client.New(client.Options{Servers: []string{"http://" + n.Addr}, RetryFor: -1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// cycle acquires a key of its own and, but for every 16th, releases it.
func (l *load) cycle(ctx context.Context, servers []*client.Client, attempts int, name string, i int) {
	r := acquireRequest(name, time.Hour)
	got, err := try(ctx, servers, attempts, func(ctx context.Context, c *client.Client) (*client.Answer, error) { return c.Acquire(ctx, r) })
	if err == nil && i%16 > 0 {
		release := releaseRequest(got.Lease)
		l.note(nil, nil)
		_, err = try(ctx, servers, attempts, func(ctx context.Context, c *client.Client) (*client.Answer, error) { return c.Release(ctx, release) })
		if err == nil && i%16 == 1 {
			l.mu.Lock()
			l.released = append(l.released, got.Lease)
			l.mu.Unlock()
		}
	} else if err == nil {
		l.note(got.Lease, nil)
	}
	if err != nil && ctx.Err() == nil {
		l.note(nil, fmt.Errorf("%s: %w", name, err))
	}
}

func (l *load) note(kept *api.Lease, failure error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if failure != nil {
		l.failures = append(l.failures, failure)
		return
	}
	l.grants = append(l.grants, time.Now())
	if kept != nil {
		l.leases = append(l.leases, kept)
	}
}

// try calls one server after the other with the same request id, as the SDK does.
func try(ctx context.Context, servers []*client.Client, attempts int, call func(context.Context, *client.Client) (*client.Answer, error)) (*client.Answer, error) {
	var failed []error
	for i := range attempts {
		got, err := call(ctx, servers[i%len(servers)])
		if err == nil || ctx.Err() != nil {
			return got, err
		}
		failed = append(failed, err)
	}
	return nil, errors.Join(failed...)
}

// wait returns when so many more grants were given.
func (l *load) wait(t *testing.T, more int) {
	t.Helper()
	before := l.granted()
	proc.Until(t, "the load goes on", proc.Patience, func() bool { return l.granted() >= before+more })
}

func (l *load) granted() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.grants)
}

// longestPause returns the longest time without a grant since then, but for that in
// which the machine let its processes wait.
func (l *load) longestPause(since time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	grants := slices.Clone(l.grants)
	slices.SortFunc(grants, time.Time.Compare)
	longest, last := time.Duration(0), since
	for _, at := range grants {
		if at.After(last) {
			longest, last = max(longest, at.Sub(last)-l.late.Between(last, at)), at
		}
	}
	return longest
}

// check holds the cluster to every grant that was acknowledged, and to every
// release.
func (l *load) check(t *testing.T, c *client.Client) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, lease := range l.leases {
		got, err := c.Get(t.Context(), "", lease.LeaseID)
		if err != nil {
			t.Fatalf("lease %s with token %d was acknowledged; now: %v", lease.LeaseID, lease.Token, err)
		}
		sameLease(t, lease, got)
	}
	for _, lease := range l.released {
		if got, err := c.Get(t.Context(), "", lease.LeaseID); err != nil || got.State != "released" || got.Token != lease.Token {
			t.Fatalf("the release of lease %s was acknowledged; now: %+v, error %v", lease.LeaseID, got, err)
		}
	}
	for _, err := range l.failures {
		t.Errorf("not done after all attempts: %v", err)
	}
}

// sameLease compares a lease with what it was when it was acknowledged.
func sameLease(t *testing.T, want, got *api.Lease) {
	t.Helper()
	ends := cmpopts.IgnoreFields(api.Lease{}, "ExpiresInMS")
	if diff := cmp.Diff(want, got, ends, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("lease %s (-acknowledged +now):\n%s", want.LeaseID, diff)
	}
	if got.State == "active" && (got.ExpiresInMS <= 0 || got.ExpiresInMS > want.TTLMS) {
		t.Errorf("lease %s of %d ms ends in %d ms", got.LeaseID, want.TTLMS, got.ExpiresInMS)
	}
}

// historyOf returns all events of a key, newest first.
func historyOf(t *testing.T, c *client.Client, keyID string) []api.Event {
	t.Helper()
	var events []api.Event
	for cursor := ""; ; {
		page, err := c.History(t.Context(), client.HistoryRequest{KeyID: keyID, Cursor: cursor})
		if err != nil {
			t.Fatalf("history of %s: %v", keyID, err)
		}
		events = append(events, page.Events...)
		if cursor = page.NextCursor; cursor == "" {
			return events
		}
	}
}
