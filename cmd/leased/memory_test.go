package main

import (
	"context"
	"runtime"
	"runtime/debug"
	"testing"
)

func TestGCPercent(t *testing.T) {
	for _, tt := range []struct {
		live uint64
		want int
	}{
		{0, 400}, {1, 400}, {64 << 20, 400}, {128 << 20, 200}, {256 << 20, 100}, {512 << 20, 50}, {8 << 30, 50},
	} {
		if got := gcPercent(tt.live); got != tt.want {
			t.Errorf("gcPercent(%d MiB) = %d, want %d", tt.live>>20, got, tt.want)
		}
	}
}

func TestPaceCollector_restores(t *testing.T) {
	before := debug.SetGCPercent(123)
	defer debug.SetGCPercent(before)
	ctx, cancel := context.WithCancel(t.Context())
	wait := paceCollector(ctx, func(string) string { return "" })
	cancel()
	wait()
	if got := debug.SetGCPercent(123); got != 123 {
		t.Errorf("after its end the percentage is %d, want the one before, 123", got)
	}
}

func TestPaceCollector_operatorDecides(t *testing.T) {
	before := debug.SetGCPercent(123)
	defer debug.SetGCPercent(before)
	wait := paceCollector(t.Context(), func(name string) string {
		if name != "GOGC" {
			t.Errorf("asked for %s", name)
		}
		return "200"
	})
	wait()
	if got := debug.SetGCPercent(123); got != 123 {
		t.Errorf("with GOGC set the percentage became %d, want 123 as before", got)
	}
}

// The addresses that are advised are where the heap grows next.
func TestAdviseHugePages_givesBack(t *testing.T) {
	adviseHugePages()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	if m.HeapInuse >= gcHeadroom {
		t.Errorf("%d MiB of the heap are in use, those that were advised among them", m.HeapInuse>>20)
	}
}
