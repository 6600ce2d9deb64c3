package raftkv

import (
	"fmt"
	"testing"
)

// BenchmarkApply is the processor time of one acquire and its release in the
// state machine, decoding included.
func BenchmarkApply(b *testing.B) {
	for _, held := range []int{0, 100_000} {
		b.Run(fmt.Sprintf("held_%d", held), func(b *testing.B) {
			d := newDriver(b)
			for i := range held {
				d.acquire(request(fmt.Sprintf("held-%d", i), "a", fmt.Sprintf("h%d", i)))
			}
			b.ReportAllocs()
			b.ResetTimer()
			for i := range b.N {
				r := d.acquire(request(fmt.Sprintf("k%d", i%64), "a", fmt.Sprintf("r%d", i)))
				d.release(r.lease)
			}
		})
	}
}
