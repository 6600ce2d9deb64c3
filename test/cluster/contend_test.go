package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"leased/client"
	"leased/test/proc"
)

// contenders want the same few keys, and keep when each was sure to have one.
type contenders struct {
	stop func()

	mu       sync.Mutex
	grants   map[string][]grant // by key id
	failures []error
}

// grant is a time in which somebody had a key: from when it was told so until it
// gave the key back.
type grant struct {
	token       uint64
	leaseID     string
	from, until time.Time
}

// contend starts contenders for keys, each with a client of all nodes that calls
// another one first, and that tries each call so many times.
func contend(t *testing.T, c *proc.Cluster, keys, perKey, attempts int) *contenders {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	k := &contenders{grants: make(map[string][]grant)}
	var wg sync.WaitGroup
	k.stop = func() { cancel(); wg.Wait() }
	t.Cleanup(k.stop)
	for w := range keys * perKey {
		servers := make([]*client.Client, len(c.Nodes))
		for i := range servers {
			servers[i] = once(t, c.Nodes[(w+i)%len(c.Nodes)])
		}
		wg.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				r := acquireRequest(fmt.Sprintf("%s-k%d", t.Name(), w%keys), time.Hour)
				r.RequestID, r.Instance = fmt.Sprintf("c-%s-%d-%d", t.Name(), w, i), fmt.Sprintf("c-%d", w)
				r.Wait = time.Second
				if err := k.turn(ctx, servers, attempts, r); err != nil {
					k.mu.Lock()
					k.failures = append(k.failures, fmt.Errorf("%s: %w", r.RequestID, err))
					k.mu.Unlock()
				}
			}
		})
	}
	return k
}

// turn has a key once, unless another one holds it all the time.
func (k *contenders) turn(ctx context.Context, servers []*client.Client, attempts int, r client.AcquireRequest) error {
	got, err := try(ctx, servers, attempts, func(ctx context.Context, c *client.Client) (*client.Answer, error) {
		a, err := c.Acquire(ctx, r)
		if errors.Is(err, client.ErrConflict) {
			return nil, nil //nolint:nilnil // an answer: somebody else has it
		}
		return a, err
	})
	if got == nil && ctx.Err() != nil {
		err = nil // the end of the test
	}
	if err != nil || got == nil {
		return err
	}
	// It is given back also when the test is over: what was granted counts.
	ctx = context.WithoutCancel(ctx)
	g := grant{token: got.Lease.Token, leaseID: got.Lease.LeaseID, from: time.Now()}
	_, err = try(ctx, servers, attempts, func(ctx context.Context, c *client.Client) (*client.Answer, error) {
		return c.Check(ctx, client.CheckRequest{KeyID: got.Lease.KeyID, Token: got.Lease.Token})
	})
	if err != nil {
		return fmt.Errorf("check of a held key: %w", err)
	}
	g.until = time.Now()
	release := releaseRequest(got.Lease)
	_, err = try(ctx, servers, attempts, func(ctx context.Context, c *client.Client) (*client.Answer, error) { return c.Release(ctx, release) })
	k.mu.Lock()
	k.grants[got.Lease.KeyID] = append(k.grants[got.Lease.KeyID], g)
	k.mu.Unlock()
	return err
}

// check holds what was granted to there being one holder at a time, with rising
// tokens, and the history to having all of it.
func (k *contenders) check(t *testing.T, c *client.Client) {
	t.Helper()
	for _, err := range k.failures {
		t.Errorf("not done after all attempts: %v", err)
	}
	all := 0
	for keyID, grants := range k.grants {
		all += len(grants)
		slices.SortFunc(grants, func(a, b grant) int { return cmp.Compare(a.token, b.token) })
		for i, g := range grants[1:] {
			before := grants[i]
			if g.token == before.token {
				t.Errorf("token %d of key %s was granted twice: %+v and %+v", g.token, keyID, before, g)
			}
			if !g.from.After(before.until) {
				t.Errorf("key %s was granted with token %d, and with %d while its holder had it", keyID, g.token, before.token)
			}
		}
		recorded := make(map[uint64]string) // lease id by token
		events := historyOf(t, c, keyID)
		for i, e := range events {
			switch {
			case e.Event != "acquired" && e.Event != "released":
				t.Errorf("key %s: event %+v, want grants and releases only", keyID, e)
			case i > 0 && e.Event == events[i-1].Event:
				t.Errorf("key %s: two events %q in a row: %+v and %+v", keyID, e.Event, e, events[i-1])
			case e.Event == "acquired":
				recorded[e.Token] = e.LeaseID
			}
		}
		for _, g := range grants {
			if recorded[g.token] != g.leaseID {
				t.Errorf("key %s: the grant of lease %s with token %d is not in the history", keyID, g.leaseID, g.token)
			}
		}
	}
	t.Logf("%d grants of keys that are contended for", all)
	if all < 10 {
		t.Errorf("there were %d grants of contended keys, too few to tell anything", all)
	}
}
