package main

import (
	"context"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// How the garbage collector is paced. The store keeps everything in memory, so
// the usual rule (collect when the heap has doubled) wastes time while there is
// little and memory once there is much. The heap may grow by gcHeadroom or by
// gcMinPercent of what is live, whichever is more.
const (
	gcHeadroom   = 256 << 20 // bytes
	gcMinPercent = 50
	gcMaxPercent = 400
	gcInterval   = time.Second
)

// paceCollector keeps the collector paced until ctx ends, and leaves it alone
// when the operator has set GOGC. It returns a function that waits for the end.
func paceCollector(ctx context.Context, getenv func(string) string) (wait func()) {
	if getenv("GOGC") != "" {
		return func() {}
	}
	done := make(chan struct{})
	adviseHugePages()
	before := debug.SetGCPercent(gcMaxPercent)
	go func() {
		defer close(done)
		defer debug.SetGCPercent(before)
		live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
		ticker := time.NewTicker(gcInterval)
		defer ticker.Stop()
		set := gcMaxPercent
		for {
			select {
			case <-ticker.C:
			case <-ctx.Done():
				return
			}
			metrics.Read(live)
			// Setting it stops the world for a moment: only when it matters.
			if p := gcPercent(live[0].Value.Uint64()); p < set*9/10 || p > set*11/10 {
				debug.SetGCPercent(p)
				set = p
			}
		}
	}()
	return func() { <-done }
}

// gcPercent returns by how much of its live bytes the heap may grow.
func gcPercent(live uint64) int {
	if live == 0 {
		return gcMaxPercent
	}
	return int(min(max(gcHeadroom*100/live, gcMinPercent), gcMaxPercent))
}
