//go:build bench

package bench

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"
)

// call posts to etcd's HTTP gateway, which takes bytes in base64.
func (c *client) call(ctx context.Context, path string, in, out any) error {
	body, err := json.Marshal(in)
	if err != nil {
		return err
	}
	text, err := c.post(ctx, path, body, http.StatusOK)
	if err != nil {
		return err
	}
	return json.Unmarshal(text, out)
}

// etcdLease returns a lease that a client keeps for all its locks: then a cycle
// is etcd's two lock calls and nothing else, which is the most that can be asked
// of it.
func (c *client) etcdLease(ctx context.Context) (string, error) {
	var granted struct {
		ID string `json:"ID"` //nolint:tagliatelle // as etcd spells it
	}
	err := c.call(ctx, "/v3/lease/grant", map[string]any{"TTL": 600}, &granted)
	return granted.ID, err
}

// etcdLock acquires a lock and returns what it is released with. The name is in
// base64, as etcd's gateway takes bytes.
func (c *client) etcdLock(ctx context.Context, name, lease string) (string, error) {
	var locked struct {
		Key string `json:"key"`
	}
	err := c.call(ctx, "/v3/lock/lock", map[string]any{"name": name, "lease": lease}, &locked)
	return locked.Key, err
}

func (c *client) etcdUnlock(ctx context.Context, key string) error {
	return c.call(ctx, "/v3/lock/unlock", map[string]any{"key": key}, &struct{}{})
}

// etcdCycle locks and unlocks.
func (c *client) etcdCycle(ctx context.Context, name, lease string) error {
	key, err := c.etcdLock(ctx, name, lease)
	if err != nil {
		return err
	}
	return c.etcdUnlock(ctx, key)
}

// etcdName is the lock of one client.
func etcdName(i int) string {
	return base64.StdEncoding.EncodeToString(fmt.Appendf(nil, "client-%d", i))
}

// etcdCycles locks and unlocks with all clients for a time, each its own name
// and at the members in turn, and returns cycles per second.
func etcdCycles(t *testing.T, urls []string, d time.Duration) float64 {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var wg sync.WaitGroup
	counts := make([]int, clients)
	begin := time.Now()
	for i := range clients {
		wg.Go(func() {
			c := newClient(urls[i%len(urls)], i)
			defer c.http.CloseIdleConnections()
			lease, err := c.etcdLease(ctx)
			name := etcdName(i)
			for err == nil && time.Since(begin) < d {
				if err = c.etcdCycle(ctx, name, lease); err == nil {
					counts[i]++
				}
			}
			if err != nil {
				t.Errorf("client %d: %v", i, err)
			}
		})
	}
	wg.Wait()
	total := 0
	for _, n := range counts {
		total += n
	}
	return float64(total) / time.Since(begin).Seconds()
}
