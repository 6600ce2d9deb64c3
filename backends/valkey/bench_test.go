package valkey_test

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"leased/contract"
	"leased/test/proc"
)

// benchTB lets a benchmark start servers.
type benchTB struct{ *testing.B }

func acquireOf(key string, n int64) *contract.AcquireRequest {
	return &contract.AcquireRequest{
		Namespace: "bench", RequestID: fmt.Sprint("acquire-", n), Owner: "alice", Instance: "alice-1",
		Key: contract.Key{
			Tenant: "acme", Program: "default", Target: contract.Target{Type: contract.TargetName, ID: key},
			Actor: "crawler", Workflow: "default", Operation: "default",
		},
		TTL: time.Minute, MaxLifetime: time.Hour,
		Retention: contract.Retention{Idempotency: 10 * time.Minute, History: time.Hour, HistoryPerKey: 64},
	}
}

func releaseOf(l *contract.Lease, n int64) *contract.ReleaseRequest {
	return &contract.ReleaseRequest{
		Namespace: l.Namespace, RequestID: fmt.Sprint("release-", n), Owner: l.Owner, Instance: l.Instance,
		LeaseID: l.ID, Token: l.Token,
		Retention: contract.Retention{Idempotency: 10 * time.Minute, History: time.Hour, HistoryPerKey: 64},
	}
}

// BenchmarkCycle is an acquire and a release, by 64 callers on a key each.
func BenchmarkCycle(b *testing.B) {
	v := proc.StartValkey(benchTB{b})
	cfg := (&deployment{servers: []*proc.Valkey{v}, prefix: "bench:"}).config()
	s := open(benchTB{b}, cfg)
	defer func() { _ = s.Close(context.Background()) }()
	var n, caller atomic.Int64
	b.SetParallelism(32)
	before := cpu(b, v)
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		key := fmt.Sprint("key-", caller.Add(1))
		for pb.Next() {
			i := n.Add(1)
			res, err := s.Acquire(b.Context(), acquireOf(key, i))
			if err != nil || res.Outcome != contract.OutcomeAcquired {
				b.Errorf("acquire: %v, %v", res.Outcome, err)
				return
			}
			if res, err := s.Release(b.Context(), releaseOf(res.Lease, i)); err != nil || res.Outcome != contract.OutcomeReleased {
				b.Errorf("release: %v, %v", res.Outcome, err)
				return
			}
		}
	})
	b.StopTimer()
	// What the server itself spent on a cycle, whatever else the machine did.
	b.ReportMetric(float64((cpu(b, v)-before).Microseconds())/float64(b.N), "server-µs/op")
	if os.Getenv("COMMANDSTATS") != "" {
		fmt.Fprintln(os.Stderr, v.Do(benchTB{b}, "INFO", "commandstats"))
	}
}

// cpu returns the processor time that the server has used.
func cpu(b *testing.B, v *proc.Valkey) time.Duration {
	b.Helper()
	var sum time.Duration
	for line := range strings.Lines(v.Do(benchTB{b}, "INFO", "cpu")) {
		for _, name := range []string{"used_cpu_user:", "used_cpu_sys:"} {
			if rest, ok := strings.CutPrefix(strings.TrimSpace(line), name); ok {
				s, err := strconv.ParseFloat(rest, 64)
				if err != nil {
					b.Fatal(err)
				}
				sum += time.Duration(s * float64(time.Second))
			}
		}
	}
	return sum
}

// BenchmarkListOwner lists one owner's 50 leases among 50,000, on a server with
// 200,000 keys of others.
func BenchmarkListOwner(b *testing.B) {
	v := proc.StartValkey(benchTB{b}, "enable-debug-command", "local")
	v.Do(benchTB{b}, "DEBUG", "POPULATE", "200000", "foreign", "64")
	s := open(benchTB{b}, (&deployment{servers: []*proc.Valkey{v}, prefix: "bench:"}).config())
	defer func() { _ = s.Close(context.Background()) }()
	const leases, each = 50_000, 50
	var all sync.WaitGroup
	for part := range 64 {
		all.Go(func() {
			for i := part; i < leases; i += 64 {
				r := acquireOf(fmt.Sprint("key-", i), int64(i))
				r.Owner, r.TTL = fmt.Sprint("owner-", i/each), time.Hour
				if res, err := s.Acquire(b.Context(), r); err != nil || res.Outcome != contract.OutcomeAcquired {
					b.Errorf("acquire: %v, %v", res.Outcome, err)
					return
				}
			}
		})
	}
	all.Wait()
	var worst time.Duration
	n := 0
	for b.Loop() {
		began := time.Now()
		res, err := s.List(b.Context(), &contract.ListRequest{Namespace: "bench", Owner: fmt.Sprint("owner-", n%(leases/each))})
		worst = max(worst, time.Since(began))
		if err != nil || len(res.Leases) != each || res.NextCursor != "" {
			b.Fatalf("list: %d leases, cursor %q, error %v", len(res.Leases), res.NextCursor, err)
		}
		n++
	}
	b.ReportMetric(float64(worst.Microseconds()), "worst-µs")
}

// BenchmarkHandover gives four contended keys to the next of 32 waiters.
func BenchmarkHandover(b *testing.B) {
	v := proc.StartValkey(benchTB{b})
	s := open(benchTB{b}, (&deployment{servers: []*proc.Valkey{v}, prefix: "bench:"}).config())
	defer func() { _ = s.Close(context.Background()) }()
	var n atomic.Int64
	var all sync.WaitGroup
	b.ResetTimer()
	for i := range 4 * 32 {
		all.Go(func() {
			for n.Add(1) <= int64(b.N) {
				r := acquireOf(fmt.Sprint("key-", i%4), n.Add(0)*1000+int64(i))
				r.Wait = 30 * time.Second
				ctx, cancel := context.WithTimeout(b.Context(), r.Wait)
				res, err := s.Acquire(ctx, r)
				if err == nil && res.Outcome == contract.OutcomeAcquired {
					_, err = s.Release(ctx, releaseOf(res.Lease, n.Add(0)*1000+int64(i)))
				}
				cancel()
				if err != nil || res.Outcome != contract.OutcomeAcquired {
					b.Errorf("hand-over: %v, %v", res.Outcome, err)
					return
				}
			}
		})
	}
	all.Wait()
}
