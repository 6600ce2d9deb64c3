package cluster

import (
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"
)

// BenchmarkFdatasync is what the disk asks for: each commit of a batch costs two.
func BenchmarkFdatasync(b *testing.B) {
	file, err := os.Create(filepath.Join(b.TempDir(), "file"))
	if err != nil {
		b.Fatal(err)
	}
	defer file.Close()
	page := make([]byte, 4096)
	if _, err := file.WriteAt(page, 1<<20); err != nil {
		b.Fatal(err)
	}
	var waits []time.Duration
	for b.Loop() {
		begin := time.Now()
		if _, err := file.WriteAt(page, int64(len(waits)%256)*4096); err != nil {
			b.Fatal(err)
		}
		if err := syscall.Fdatasync(int(file.Fd())); err != nil {
			b.Fatal(err)
		}
		waits = append(waits, time.Since(begin))
	}
	slices.Sort(waits)
	b.ReportMetric(float64(waits[len(waits)/2].Nanoseconds())/1e3, "p50-µs")
}
