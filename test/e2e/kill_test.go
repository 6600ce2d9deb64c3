package e2e

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"leased/client"
	"leased/gateway/api"
	"leased/test/proc"
)

const (
	kills   = 20
	workers = 16
	// perLife bounds what a worker does before a kill, so that the checks after
	// it stay short.
	perLife = 400
)

// promise is something that the server acknowledged and must know ever after.
type promise struct {
	request client.AcquireRequest
	lease   api.Lease
	ended   bool // its release was acknowledged too
	unsure  bool // a release was sent and its answer lost
}

func (p *promise) release() client.ReleaseRequest {
	return client.ReleaseRequest{
		RequestID: "r-" + p.request.Instance, LeaseID: p.lease.LeaseID, Token: p.lease.Token, Instance: p.lease.Instance,
	}
}

// TestKill_LosesNothing kills the server with SIGKILL under load, again and
// again, and holds it to every answer it gave before: leases, tokens, history
// and replays.
func TestKill_LosesNothing(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	bin, dir := proc.Build(t, "leased/cmd/leased"), t.TempDir()
	highest := make(map[string]uint64) // token by key id
	var kept []*promise
	for life := range kills {
		s := proc.StartLeased(t, bin, dir)
		check(t, s.URL, kept, highest)
		if t.Failed() {
			t.Fatalf("after %d kills", life)
		}
		// Leases of earlier lives are held to their answers once more at the end;
		// until then a sample keeps the checks short.
		rng.Shuffle(len(kept), func(i, j int) { kept[i], kept[j] = kept[j], kept[i] })
		kept = append(kept[:min(len(kept), 300)], load(t, s, life, time.Duration(50+rng.IntN(250))*time.Millisecond)...)
	}
	s := proc.StartLeased(t, bin, dir)
	check(t, s.URL, kept, highest)
	t.Logf("%d kills; %d promises checked at the end", kills, len(kept))
}

// load works against the server until it is killed and returns what it promised.
func load(t *testing.T, s *proc.Server, life int, after time.Duration) []*promise {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var mu sync.Mutex
	var all []*promise
	started := make(chan struct{}, workers)
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			c := newClient(t, s.URL)
			defer c.Close()
			for i := range perLife {
				p, alive := cycle(ctx, c, fmt.Sprintf("l%d-w%d-%d", life, w, i), i%3 != 0)
				if p != nil {
					mu.Lock()
					all = append(all, p)
					mu.Unlock()
				}
				if i == 0 {
					started <- struct{}{}
				}
				if !alive {
					return
				}
			}
		})
	}
	for range workers {
		<-started
	}
	timer := time.NewTimer(after)
	defer timer.Stop()
	<-timer.C
	s.Kill()
	cancel() // nobody answers any more; do not let the client try on
	wg.Wait()
	if len(all) == 0 {
		t.Errorf("life %d: the server acknowledged nothing before it was killed", life)
	}
	return all
}

func newClient(t *testing.T, url string) *client.Client {
	t.Helper()
	c, err := client.New(client.Options{Servers: []string{url}, RetryFor: -1, Timeout: 20 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// request is the same for the same promise, so that it replays.
func request(name, keyID string) client.AcquireRequest {
	return client.AcquireRequest{
		RequestID: "a-" + name, Instance: name, TTL: time.Hour, JobID: "job-" + name,
		Key: api.Key{Tenant: "acme", Target: api.Target{Type: "name", ID: keyID}, Actor: "killer"},
	}
}

// cycle acquires a key, its own or one that others want too, and releases it or
// not. alive is false once the server does not answer.
func cycle(ctx context.Context, c *client.Client, name string, release bool) (p *promise, alive bool) {
	key := name
	if release {
		key = "shared-" + name[len(name)-1:]
	}
	p = &promise{request: request(name, key)}
	got, err := c.Acquire(ctx, p.request)
	if errors.Is(err, client.ErrConflict) {
		return nil, true // somebody else holds it
	}
	if err != nil {
		return nil, false
	}
	p.lease = *got.Lease
	if !release {
		return p, true
	}
	_, err = c.Release(ctx, p.release())
	p.ended, p.unsure = err == nil, err != nil
	return p, err == nil
}

// check holds the server to its promises.
func check(t *testing.T, url string, kept []*promise, highest map[string]uint64) {
	t.Helper()
	c := newClient(t, url)
	defer c.Close()
	for _, p := range kept {
		highest[p.lease.KeyID] = max(highest[p.lease.KeyID], p.lease.Token)
	}
	each(kept, func(p *promise) {
		if p.unsure {
			p.settle(t, c)
		}
		p.check(t, c, highest[p.lease.KeyID])
	})
	// Tokens never fall, whatever was lost with the answers.
	each(slices.Collect(maps.Keys(highest)), func(keyID string) {
		token := highest[keyID]
		key, err := c.GetKey(t.Context(), "default", keyID)
		if err != nil {
			t.Errorf("key %s, granted before: %v", keyID, err)
			return
		}
		if key.Lease == nil && key.Last.Token < token {
			t.Errorf("key %s shows token %d last; %d was granted", keyID, key.Last.Token, token)
		}
		if key.Lease != nil && key.Lease.Token < token {
			t.Errorf("key %s is held with token %d; %d was granted", keyID, key.Lease.Token, token)
		}
	})
}

// each calls f for all, a few at a time: each call waits for the server's disk.
func each[T any](all []T, f func(T)) {
	var next atomic.Int64
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for i := next.Add(1); int(i) <= len(all); i = next.Add(1) {
				f(all[i-1])
			}
		})
	}
	wg.Wait()
}

// settle repeats a release whose answer was lost: it must go through now, or
// have gone through then.
func (p *promise) settle(t *testing.T, c *client.Client) {
	t.Helper()
	if _, err := c.Release(t.Context(), p.release()); err != nil {
		t.Errorf("repeated release of %s: %v", p.lease.LeaseID, err)
	}
	p.unsure, p.ended = false, true
}

func (p *promise) check(t *testing.T, c *client.Client, highest uint64) {
	t.Helper()
	replay, err := c.Acquire(t.Context(), p.request)
	if p.ended {
		if !errors.Is(err, client.ErrReleased) {
			t.Errorf("replay of the acquire of %s, released since: %v, want %v", p.lease.LeaseID, err, client.ErrReleased)
		}
		again, err := c.Release(t.Context(), p.release())
		if err != nil || !again.Replayed || again.Lease.Token != p.lease.Token || again.Lease.State != "released" {
			t.Errorf("replay of the release of %s: %+v, %v", p.lease.LeaseID, again, err)
		}
	} else {
		if err != nil || !replay.Replayed || replay.Lease.LeaseID != p.lease.LeaseID || replay.Lease.Token != p.lease.Token {
			t.Errorf("replay of the acquire of %s, token %d: %+v, %v", p.lease.LeaseID, p.lease.Token, replay, err)
		}
		got, err := c.Get(t.Context(), "default", p.lease.LeaseID)
		if err != nil || got.State != "active" || got.Token != p.lease.Token || got.JobID != p.lease.JobID {
			t.Errorf("lease %s, acknowledged with token %d: %+v, %v", p.lease.LeaseID, p.lease.Token, got, err)
		}
	}
	// Older grants of a busy key may have left its history by its limit.
	if p.lease.Token == highest {
		p.checkHistory(t, c)
	}
}

func (p *promise) checkHistory(t *testing.T, c *client.Client) {
	t.Helper()
	h, err := c.History(t.Context(), client.HistoryRequest{KeyID: p.lease.KeyID})
	if err != nil {
		t.Errorf("history of key %s: %v", p.lease.KeyID, err)
		return
	}
	seen := make(map[string]int)
	for _, e := range h.Events {
		if e.LeaseID == p.lease.LeaseID {
			seen[e.Event]++
		}
	}
	want := map[string]int{"acquired": 1}
	if p.ended {
		want["released"] = 1
	}
	if !maps.Equal(seen, want) {
		t.Errorf("history of lease %s has %v, want %v", p.lease.LeaseID, seen, want)
	}
}
