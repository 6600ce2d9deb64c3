//go:build bench

package bench

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"leased/test/proc"
)

// minRatio is what was promised: requests per second of acquire and release
// through the gateway on one raft node, of those of a bare gin handler.
const minRatio = 0.60

// maxOverhead is what was promised: the median mutation with one client takes at
// most the disk's fsync and this much.
const maxOverhead = 500 * time.Microsecond

func TestBench_Throughput(t *testing.T) {
	const rounds, each = 9, 2 * time.Second
	bare := proc.StartPrinting(t, proc.Build(t, "leased/test/bench/bare"))
	leased := proc.StartLeased(t, proc.Build(t, "leased/cmd/leased"), t.TempDir())
	var bares, leaseds, ratios []float64
	// A short warm-up of both; then in turns, so that both meet the same machine.
	cycles(t, []string{bare.URL}, time.Second, 100)
	cycles(t, []string{leased.URL}, time.Second, 101)
	for i := range rounds {
		b := cycles(t, []string{bare.URL}, each, 2*i)
		l := cycles(t, []string{leased.URL}, each, 2*i+1)
		bares, leaseds, ratios = append(bares, b), append(leaseds, l), append(ratios, l/b)
	}
	fmt.Printf("throughput, %d clients: bare gin %.0f req/s, leased on one raft node %.0f req/s, ratio %.2f (promised ≥ %.2f; rounds %.2f)\n",
		clients, median(bares), median(leaseds), median(ratios), minRatio, ratios)
	if got := median(ratios); got < minRatio {
		t.Errorf("ratio %.2f, want at least %.2f", got, minRatio)
	}
}

func TestBench_Latency(t *testing.T) {
	dir := t.TempDir()
	leased := proc.StartLeased(t, proc.Build(t, "leased/cmd/leased"), dir)
	c := newClient(leased.URL, 1)
	const n = 2000
	var mutations, syncs []time.Duration
	disk := newDisk(t, dir)
	for i := range n {
		begin := time.Now()
		g, err := c.acquire(t.Context(), "latency", 30*time.Second)
		middle := time.Now()
		if err == nil {
			err = c.release(t.Context(), g)
		}
		end := time.Now()
		if err != nil {
			t.Fatal(err)
		}
		if i >= n/10 { // after the warm-up
			mutations = append(mutations, middle.Sub(begin), end.Sub(middle))
			syncs = append(syncs, disk.sync(t))
		}
	}
	fsync, got := median(syncs), median(mutations)
	fmt.Printf("latency, 1 client: median mutation %v, fsync of this disk %v, difference %v (promised ≤ %v)\n",
		got, fsync, got-fsync, maxOverhead)
	if got > fsync+maxOverhead {
		t.Errorf("median mutation %v, want at most fsync %v + %v", got, fsync, maxOverhead)
	}
}

// disk measures what an fsync of an append costs on the disk of the data.
type disk struct {
	file *os.File
	page []byte
}

func newDisk(t *testing.T, dir string) *disk {
	t.Helper()
	f, err := os.Create(filepath.Join(dir, "fsync"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return &disk{file: f, page: make([]byte, 4096)}
}

func (d *disk) sync(t *testing.T) time.Duration {
	t.Helper()
	// Within 1 MiB, so that the file does not grow: the log's segments do not either.
	if _, err := d.file.WriteAt(d.page, time.Now().UnixNano()%256*4096); err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	if err := unix.Fdatasync(int(d.file.Fd())); err != nil {
		t.Fatal(err)
	}
	return time.Since(begin)
}

// maxResident is what was promised for a million active leases, in bytes.
const maxResident = 1536 << 20

func TestBench_Million(t *testing.T) {
	const leases = 1_000_000
	bin, dir := proc.Build(t, "leased/cmd/leased"), t.TempDir()
	leased := proc.StartLeased(t, bin, dir)
	before := proc.Memory(t, leased.PID(), "VmRSS")
	begin := time.Now()
	var wg sync.WaitGroup
	for i := range clients {
		wg.Go(func() {
			c := newClient(leased.URL, i)
			defer c.http.CloseIdleConnections()
			for k := i; k < leases; k += clients {
				if _, err := c.acquire(t.Context(), fmt.Sprintf("million-%07d", k), time.Hour); err != nil {
					t.Errorf("lease %d: %v", k, err)
					return
				}
			}
		})
	}
	wg.Wait()
	if t.Failed() {
		return
	}
	took := time.Since(begin)
	resident, peak := proc.Memory(t, leased.PID(), "VmRSS"), proc.Memory(t, leased.PID(), "VmHWM")
	leased.Stop(t)
	begin = time.Now()
	again := proc.StartLeased(t, bin, dir)
	restart := time.Since(begin)
	fmt.Printf("a million leases: acquired at %.0f/s, resident %d MiB (peak %d MiB; promised ≤ %d MiB), %d bytes a lease, restart %.1f s, resident after it %d MiB\n",
		leases/took.Seconds(), resident>>20, peak>>20, maxResident>>20, (resident-before)/leases, restart.Seconds(),
		proc.Memory(t, again.PID(), "VmRSS")>>20)
	fmt.Println(snapshotLine(t, dir))
	if peak > maxResident {
		t.Errorf("peak resident memory %d MiB, want at most %d MiB", peak>>20, maxResident>>20)
	}
}

// snapshotLine returns the log's last line about a snapshot: it says how long it
// took.
func snapshotLine(t *testing.T, dir string) string {
	t.Helper()
	log, err := os.ReadFile(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	last := "no snapshot was taken"
	for line := range strings.Lines(string(log)) {
		if strings.Contains(line, "snapshot taken") {
			last = line
		}
	}
	return last
}
