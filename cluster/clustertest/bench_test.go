package clustertest

import (
	"context"
	"testing"
	"time"
)

// pause returns how long it takes from the moment at which end begins until another
// node than leader has applied a command.
func pause(b *testing.B, c *Cluster, leader string, end func()) time.Duration {
	b.Helper()
	begin := time.Now()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		end()
	}()
	for {
		for id, n := range c.nodes {
			if term, _ := n.Leadership(); term == 0 || id == leader {
				continue
			}
			ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
			_, err := n.Propose(ctx, []byte("x"))
			cancel()
			if err == nil && n.Confirm(c.Context()) == nil {
				took := time.Since(begin)
				<-ended
				return took
			}
		}
		time.Sleep(time.Millisecond) // what is measured takes ten times as long, and more
	}
}

// BenchmarkFailover measures from the moment at which a leader falls silent to the
// first command that the next one has applied.
func BenchmarkFailover(b *testing.B) {
	c := New(b, Options{})
	var longest, sum time.Duration
	for b.Loop() {
		leader := c.Leader()
		took := pause(b, c, leader, func() { c.Net.Isolate(leader) })
		c.Net.Heal()
		longest, sum = max(longest, took), sum+took
	}
	b.ReportMetric(float64(sum.Milliseconds())/float64(b.N), "ms/failover")
	b.ReportMetric(float64(longest.Milliseconds()), "ms/longest")
}

// BenchmarkTransfer measures the same for leadership that is handed over.
func BenchmarkTransfer(b *testing.B) {
	c := New(b, Options{})
	var longest, sum time.Duration
	for b.Loop() {
		leader := c.Leader()
		took := pause(b, c, leader, func() {
			if err := c.Node(leader).Transfer(c.Context(), c.Follower(leader)); err != nil {
				b.Error(err)
			}
		})
		longest, sum = max(longest, took), sum+took
	}
	b.ReportMetric(float64(sum.Milliseconds())/float64(b.N), "ms/transfer")
	b.ReportMetric(float64(longest.Milliseconds()), "ms/longest")
}
