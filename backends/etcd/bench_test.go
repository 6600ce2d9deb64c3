package etcd_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"leased/backends/etcd"
	"leased/contract"
	"leased/test/proc"
)

func benchStores(b *testing.B, n int) []*etcd.Store {
	b.Helper()
	server := proc.StartEtcd(b, proc.EtcdOptions{})
	var stores []*etcd.Store
	for range n {
		s, err := etcd.Open(b.Context(), etcd.Config{Endpoints: server.Endpoints()})
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { _ = s.Close(context.Background()) })
		stores = append(stores, s)
	}
	return stores
}

func benchAcquire(b *testing.B, name, request string) *contract.AcquireRequest {
	b.Helper()
	key, err := contract.Key{Tenant: "acme", Target: contract.Target{Type: contract.TargetName, ID: name}, Actor: "bench"}.Normalize()
	if err != nil {
		b.Fatal(err)
	}
	return &contract.AcquireRequest{
		Namespace: "bench", RequestID: request, Owner: "owner", Instance: "owner-1", Key: key,
		TTL: 30 * time.Second, MaxLifetime: time.Hour,
		Retention: contract.Retention{Idempotency: 10 * time.Minute, History: 24 * time.Hour, HistoryPerKey: 64},
		Limits:    contract.Limits{WaitersPerKey: 10_000}, // as a gateway has it by default
	}
}

func benchRelease(l *contract.Lease, request string) *contract.ReleaseRequest {
	return &contract.ReleaseRequest{
		Namespace: l.Namespace, RequestID: request, Owner: l.Owner, Instance: l.Instance, LeaseID: l.ID, Token: l.Token,
		Retention: contract.Retention{Idempotency: 10 * time.Minute, History: 24 * time.Hour, HistoryPerKey: 64},
	}
}

func cycle(b *testing.B, s contract.Store, r *contract.AcquireRequest) {
	b.Helper()
	res, err := s.Acquire(b.Context(), r)
	if err != nil || res.Outcome != contract.OutcomeAcquired {
		b.Errorf("acquire: %v, %v", res.Outcome, err)
		return
	}
	if res, err := s.Release(b.Context(), benchRelease(res.Lease, r.RequestID)); err != nil || res.Outcome != contract.OutcomeReleased {
		b.Errorf("release: %v, %v", res.Outcome, err)
	}
}

// BenchmarkCycle acquires and releases keys of its own with 64 callers.
func BenchmarkCycle(b *testing.B) {
	s := benchStores(b, 1)[0]
	var n atomic.Int64
	b.ResetTimer()
	var callers sync.WaitGroup
	for i := range 64 {
		callers.Go(func() {
			for k := n.Add(1); k <= int64(b.N); k = n.Add(1) {
				cycle(b, s, benchAcquire(b, fmt.Sprint("key-", i), fmt.Sprint("r-", k)))
			}
		})
	}
	callers.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "cycles/s")
}

// BenchmarkHandOver passes four keys on among 32 waiters each, over two stores.
func BenchmarkHandOver(b *testing.B) {
	stores := benchStores(b, 2)
	var n atomic.Int64
	b.ResetTimer()
	var callers sync.WaitGroup
	for key := range 4 {
		for i := range 32 {
			callers.Go(func() {
				for k := n.Add(1); k <= int64(b.N); k = n.Add(1) {
					r := benchAcquire(b, fmt.Sprint("key-", key), fmt.Sprint("r-", k))
					r.Wait = time.Minute
					cycle(b, stores[i%2], r)
				}
			})
		}
	}
	callers.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "handovers/s")
}
