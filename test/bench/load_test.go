//go:build bench

package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"
)

// client is one keep-alive connection.
type client struct {
	http *http.Client
	url  string
	n    int
	id   int
}

func newClient(url string, id int) *client {
	return &client{
		http: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 1, MaxConnsPerHost: 1, DisableCompression: true}},
		url:  url, id: id,
	}
}

type granted struct {
	Lease struct {
		LeaseID string `json:"lease_id"`
		Token   uint64 `json:"token"`
	} `json:"lease"`
}

func (c *client) post(ctx context.Context, path string, body []byte, want int) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	c.n++
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Idempotency-Key", fmt.Sprintf("bench-%d-%d", c.id, c.n))
	res, err := c.http.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	out, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode != want {
		err = fmt.Errorf("%s: status %d, want %d: %s", path, res.StatusCode, want, out)
	}
	return out, err
}

func (c *client) acquire(ctx context.Context, key string, ttl time.Duration) (granted, error) {
	return c.acquireWaiting(ctx, key, ttl, 0)
}

func (c *client) acquireWaiting(ctx context.Context, key string, ttl, wait time.Duration) (granted, error) {
	body := fmt.Sprintf(`{"key":{"tenant":"acme","program":"recon","target":{"type":"name","id":%q},`+
		`"actor":"crawler","workflow":"default","operation":"scan"},"instance":"worker-7","ttl_ms":%d,"wait_ms":%d,"job_id":"job-17",`+
		`"metadata":{"purpose":"nightly"}}`, key, ttl.Milliseconds(), wait.Milliseconds())
	var g granted
	out, err := c.post(ctx, "/v1/namespaces/default/leases", []byte(body), http.StatusCreated)
	if err == nil {
		err = json.Unmarshal(out, &g)
	}
	return g, err
}

func (c *client) release(ctx context.Context, g granted) error {
	body := fmt.Sprintf(`{"token":%d,"instance":"worker-7"}`, g.Lease.Token)
	_, err := c.post(ctx, "/v1/namespaces/default/leases/"+g.Lease.LeaseID+"/release", []byte(body), http.StatusOK)
	return err
}

// clients is how many clients there are in a comparison.
const clients = 64

// cycles acquires and releases with all clients for a time, each on its own key,
// and returns requests per second.
func cycles(t *testing.T, url string, d time.Duration, round int) float64 {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var wg sync.WaitGroup
	counts := make([]int, clients)
	begin := time.Now()
	for i := range clients {
		wg.Go(func() {
			c := newClient(url, i+1000*round)
			defer c.http.CloseIdleConnections()
			key := fmt.Sprintf("client-%d", i)
			for time.Since(begin) < d {
				g, err := c.acquire(ctx, key, 30*time.Second)
				if err == nil {
					err = c.release(ctx, g)
				}
				if err != nil {
					t.Errorf("client %d: %v", i, err)
					return
				}
				counts[i] += 2
			}
		})
	}
	wg.Wait()
	total := 0
	for _, c := range counts {
		total += c
	}
	return float64(total) / time.Since(begin).Seconds()
}

func median[T int64 | float64 | time.Duration](values []T) T {
	s := slices.Clone(values)
	slices.Sort(s)
	return s[len(s)/2]
}
