package cluster

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"leased/client"
	"leased/gateway/api"
	"leased/test/proc"
)

// With both followers paused nothing can be granted: every call is answered in
// time, none leaves anything behind in the leader, and once they are back each
// request id has exactly one result.
func TestCluster_pausedFollowers(t *testing.T) {
	c := proc.StartLeasedCluster(t, proc.Build(t, "leased/cmd/leased"), 3, "")
	leader, followers := c.Leader(t, c.Nodes[0])
	all := c.Client(t)
	if _, err := all.Acquire(t.Context(), acquireRequest("warm", time.Hour)); err != nil {
		t.Fatal(err)
	}
	before := goroutines(t, leader)
	const calls, timeout = 50, 300 * time.Millisecond
	// How long as many calls take for which nothing has to be waited, on this machine
	// with what else it does: a call that has to wait takes as much longer than that.
	busy := longest(burst(t, leader, "before", calls, proc.Patience))
	for _, f := range followers {
		f.Pause(t)
	}
	answers := burst(t, leader, "paused", calls, timeout)
	proc.Until(t, "what the calls used is given back", proc.Patience, func() bool { return goroutines(t, leader) <= before+10 })
	for _, f := range followers {
		f.Resume(t)
	}
	c.Healthy(t)
	busy = max(busy, longest(burst(t, leader, "after", calls, proc.Patience)))
	t.Logf("calls for which nothing has to be waited take up to %v, those that wait up to %v", busy, longest(answers))
	for _, a := range answers {
		if code := client.CodeOf(a.err); code != api.CodeUnavailable && code != api.CodeOutcomeUnknown && code != api.CodeTimeout {
			t.Errorf("%s: got error %v, want that it is not granted or not known", a.name, a.err)
		}
		if limit := timeout + 200*time.Millisecond + busy; a.took > limit {
			t.Errorf("%s: answered after %v, more than %v", a.name, a.took, limit)
		}
	}
	for i := range calls {
		name := fmt.Sprint("paused-", i)
		first, err := all.Acquire(t.Context(), acquireRequest(name, time.Hour))
		if err != nil {
			t.Fatalf("%s again: %v", name, err)
		}
		second, err := all.Acquire(t.Context(), acquireRequest(name, time.Hour))
		if err != nil || !second.Replayed || second.Lease.LeaseID != first.Lease.LeaseID {
			t.Fatalf("%s once more: got %+v, error %v, want the same grant, replayed", name, second, err)
		}
		history, err := all.History(t.Context(), client.HistoryRequest{KeyID: first.Lease.KeyID})
		if err != nil || len(history.Events) != 1 {
			t.Fatalf("%s: got the history %+v, error %v, want one grant", name, history, err)
		}
	}
}

// timed is the answer to a call, and how long it took.
type timed struct {
	name string
	took time.Duration
	err  error
}

// burst acquires so many keys at once.
func burst(t *testing.T, n *proc.Node, name string, calls int, timeout time.Duration) []timed {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*proc.Patience) // that something is answered at all
	defer cancel()
	answers := make([]timed, calls)
	var all sync.WaitGroup
	for i := range answers {
		all.Go(func() {
			a := &answers[i]
			a.name = fmt.Sprintf("%s-%d", name, i)
			start := time.Now()
			a.err = acquireOver(ctx, n, a.name, timeout)
			a.took = time.Since(start)
		})
	}
	all.Wait()
	return answers
}

func longest(answers []timed) time.Duration {
	return slices.MaxFunc(answers, func(a, b timed) int { return cmp.Compare(a.took, b.took) }).took
}

// acquireOver acquires with a bound that the server keeps, and waits for its
// answer longer than that.
func acquireOver(ctx context.Context, n *proc.Node, name string, timeout time.Duration) error {
	body := fmt.Sprintf(`{"key":{"tenant":"acme","target":{"type":"name","id":%q},"actor":"load"},"instance":"i-%s","ttl_ms":3600000}`, name, name)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost,
		"http://"+n.Addr+"/v1/namespaces/default/leases?timeout="+timeout.String(), strings.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", api.MediaType)
	req.Header.Set(api.HeaderIdempotencyKey, "a-"+name)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode == http.StatusCreated {
		return nil
	}
	failed := new(client.Error)
	if err := json.NewDecoder(res.Body).Decode(&failed.Problem); err != nil {
		return fmt.Errorf("%s without a problem: %w", res.Status, err)
	}
	return failed
}

// goroutines returns how many the process has.
func goroutines(t *testing.T, n *proc.Node) int {
	t.Helper()
	count := int(proc.Metric(t, "http://"+n.Addr, "go_goroutines"))
	if count == 0 {
		t.Fatal("there is no go_goroutines in /metrics")
	}
	return count
}

// TestCluster_vanishedGateway pauses a node at which a call waits, as a node without
// power or network is gone, without a word. The call stops counting, and the next in
// line is served in its place.
func TestCluster_vanishedGateway(t *testing.T) {
	c := proc.StartLeasedCluster(t, proc.Build(t, "leased/cmd/leased"), 3, "")
	leader, followers := c.Leader(t, c.Nodes[0])
	at, late := leader.Only(t), proc.WatchLateness(t)
	held, err := at.Acquire(t.Context(), acquireRequest("k", time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	queued := func(length int) time.Time {
		t.Helper()
		proc.Until(t, fmt.Sprintf("%d wait", length), proc.Patience, func() bool {
			key, err := at.GetKey(t.Context(), "", held.Lease.KeyID)
			return err == nil && key.Queue.Length == length
		})
		return time.Now()
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	wait := func(n *proc.Node, id string) <-chan error {
		r := acquireRequest("k", time.Minute)
		r.RequestID, r.Instance, r.Wait = id, id, time.Minute
		got := make(chan error, 1)
		one := once(t, n)
		go func() {
			_, err := one.Acquire(ctx, r)
			got <- err
		}()
		return got
	}
	first := wait(followers[0], "first")
	queued(1)
	second := wait(leader, "second")
	queued(2)
	followers[0].Pause(t)
	paused := time.Now()
	until := queued(1)
	gone := until.Sub(paused) - late.Between(paused, until)
	t.Logf("the waiter stopped counting %v after its node was gone", gone)
	if gone > 3*time.Second {
		t.Errorf("the waiter counted for %v after its node was gone, want 2 s on a machine that is not busy", gone)
	}
	if _, err := at.Release(t.Context(), releaseRequest(held.Lease)); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-second:
		if err != nil {
			t.Errorf("the second waiter: %v", err)
		}
	case <-time.After(proc.Patience):
		t.Error("the second waiter was not served")
	}
	followers[0].Resume(t)
	cancel()
	if err := <-first; err == nil {
		t.Error("the waiter that had gone was served")
	}
}
