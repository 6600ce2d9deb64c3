package etcd_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"leased/test/proc"
)

// lockPost calls etcd's own HTTP API.
func lockPost(b *testing.B, c *http.Client, url string, body any) map[string]any {
	b.Helper()
	text, err := json.Marshal(body)
	if err != nil {
		b.Error(err)
		return nil
	}
	res, err := c.Post(url, "application/json", bytes.NewReader(text))
	if err != nil {
		b.Error(err)
		return nil
	}
	defer func() { _ = res.Body.Close() }()
	var out map[string]any
	if err := json.NewDecoder(res.Body).Decode(&out); err != nil || res.StatusCode != http.StatusOK {
		b.Errorf("%s: %s, %v", url, res.Status, err)
	}
	return out
}

// lockCycle locks and unlocks a name.
func lockCycle(b *testing.B, c *http.Client, base, lease, name string) {
	b.Helper()
	out := lockPost(b, c, base+"/v3/lock/lock", map[string]any{"name": base64.StdEncoding.EncodeToString([]byte(name)), "lease": lease})
	lockPost(b, c, base+"/v3/lock/unlock", map[string]any{"key": out["key"]})
}

// etcdLocks runs callers of etcd's own lock, each with a lease of its own.
func etcdLocks(b *testing.B, keys, each int) {
	b.Helper()
	server := proc.StartEtcd(b, proc.EtcdOptions{})
	base := server.Endpoints()[0]
	client, err := clientv3.New(clientv3.Config{Endpoints: server.Endpoints()})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = client.Close() })
	c := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 256}, Timeout: time.Minute}
	var leases []string
	for range keys * each {
		resp, err := client.Grant(b.Context(), 600)
		if err != nil {
			b.Fatal(err)
		}
		leases = append(leases, fmt.Sprint(int64(resp.ID)))
	}
	var n atomic.Int64
	b.ResetTimer()
	var callers sync.WaitGroup
	for i := range keys * each {
		callers.Go(func() {
			for k := n.Add(1); k <= int64(b.N); k = n.Add(1) {
				lockCycle(b, c, base, leases[i], fmt.Sprint("key-", i%keys))
			}
		})
	}
	callers.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "cycles/s")
}

// BenchmarkEtcdLockCycle is BenchmarkCycle with etcd's own lock over HTTP.
func BenchmarkEtcdLockCycle(b *testing.B) { etcdLocks(b, 64, 1) }

// BenchmarkEtcdLockHandOver is BenchmarkHandOver with etcd's own lock.
func BenchmarkEtcdLockHandOver(b *testing.B) { etcdLocks(b, 4, 32) }
