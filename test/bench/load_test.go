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
	urls []string
	at   int // which of them it calls
	// attempt is how long it waits for a server before it tries the next one; 0
	// when it has only one and gives up.
	attempt time.Duration
	n       int
	id      int
}

func newClient(url string, id int) *client {
	return &client{
		http: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 1, MaxConnsPerHost: 1, DisableCompression: true}},
		urls: []string{url}, id: id,
	}
}

// newPatientClient returns a client that knows all servers of a cluster, calls
// one of them first and, whenever that fails it, the next one.
func newPatientClient(urls []string, id int) *client {
	c := newClient("", id)
	c.urls, c.at, c.attempt = urls, id%len(urls), 250*time.Millisecond
	return c
}

type granted struct {
	Lease struct {
		LeaseID string `json:"lease_id"`
		Token   uint64 `json:"token"`
	} `json:"lease"`
}

// post sends a request, with an id of its own, until it is answered as wanted or
// there is nobody else to ask.
func (c *client) post(ctx context.Context, path string, body []byte, want int) ([]byte, error) {
	c.n++
	id := fmt.Sprintf("bench-%d-%d", c.id, c.n)
	for {
		out, err := c.try(ctx, path, id, body, want)
		if err == nil || c.attempt == 0 || ctx.Err() != nil {
			return out, err
		}
		c.at = (c.at + 1) % len(c.urls)
		select {
		case <-ctx.Done():
		case <-time.After(10 * time.Millisecond): // not all of the processor for refused connections
		}
	}
}

func (c *client) try(ctx context.Context, path, id string, body []byte, want int) ([]byte, error) {
	if c.attempt > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.attempt)
		defer cancel()
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.urls[c.at]+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Idempotency-Key", id)
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

// cycles acquires and releases with all clients for a time, each on its own key
// and at the servers in turn, and returns requests per second.
func cycles(t *testing.T, urls []string, d time.Duration, round int) float64 {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var wg sync.WaitGroup
	counts := make([]int, clients)
	begin := time.Now()
	for i := range clients {
		wg.Go(func() {
			c := newClient(urls[i%len(urls)], i+1000*round)
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
