package cluster

import (
	"context"
	"fmt"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/raft"
)

// counter is the smallest FSM, so that the benchmark shows the path to it.
type counter struct{ n uint64 }

func (c *counter) Apply(*raft.Log) any { c.n++; return c.n }

func (c *counter) ApplyBatch(entries []*raft.Log) []any {
	answers := make([]any, len(entries))
	for i := range entries {
		answers[i] = c.Apply(entries[i])
	}
	return answers
}

func (c *counter) Snapshot() (raft.FSMSnapshot, error) { return frozen{}, nil }
func (c *counter) Restore(io.ReadCloser) error         { return nil }

// BenchmarkPropose measures applies per second, the median and 99th percentile
// of a caller's wait, and the processor time of all that per command, with a
// command of 200 bytes, a deadline per call, and fsync on.
func BenchmarkPropose(b *testing.B) {
	for _, callers := range []int{1, 64, 512} {
		b.Run(fmt.Sprint(callers), func(b *testing.B) {
			n := lead(b, testConfig(b.TempDir()), new(counter))
			waits := make([][]time.Duration, callers)
			var left atomic.Int64
			left.Store(int64(b.N))
			var wg sync.WaitGroup
			b.ReportAllocs()
			cpu := processorTime(b)
			b.ResetTimer()
			for i := range callers {
				wg.Go(func() {
					for left.Add(-1) >= 0 {
						begin := time.Now()
						ctx, cancel := context.WithTimeout(context.Background(), patience)
						if _, err := n.Propose(ctx, make([]byte, 200)); err != nil {
							b.Error(err)
						}
						cancel()
						waits[i] = append(waits[i], time.Since(begin))
					}
				})
			}
			wg.Wait()
			b.StopTimer()
			cpu = processorTime(b) - cpu
			all := slices.Concat(waits...)
			slices.Sort(all)
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "applies/s")
			b.ReportMetric(float64(all[len(all)/2].Nanoseconds())/1e3, "p50-µs")
			b.ReportMetric(float64(all[len(all)*99/100].Nanoseconds())/1e3, "p99-µs")
			b.ReportMetric(float64(cpu.Nanoseconds())/1e3/float64(b.N), "cpu-µs/op")
		})
	}
}

func processorTime(b *testing.B) time.Duration {
	b.Helper()
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		b.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
