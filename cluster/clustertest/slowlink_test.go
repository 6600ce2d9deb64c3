package clustertest

import (
	"bytes"
	"fmt"
	"sync"
	"testing"
	"time"

	"leased/cluster"
)

// TestCluster_slowLink: a node that was away gets what it lacks over a link on which
// 512 large entries take longer than one message may.
func TestCluster_slowLink(t *testing.T) {
	const (
		size    = 64 << 10
		entries = 192
		rate    = 4 << 20 // bytes a second: 3 s for all
	)
	c := New(t, Options{Configure: func(cfg *cluster.Config) {
		cfg.Snapshot = cluster.SnapshotConfig{Entries: 1 << 20, Interval: time.Hour} // none that could be sent
	}})
	c.leadBy("n1", itself)
	c.Stop("n3")
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			for i := range entries / 8 {
				command := append(fmt.Appendf(nil, "%d-%d-", w, i), bytes.Repeat([]byte("x"), size)...)
				c.persist(command, "n1", "n2")
			}
		})
	}
	wg.Wait()
	c.Net.OnSend(func(from, to string, p []byte) {
		if from != "n3" && to == "n3" {
			time.Sleep(time.Duration(len(p)) * time.Second / rate)
		}
	})
	c.Start("n3")
	c.Eventually("n3 has the log", func() bool { return len(c.Lines("n3")) >= entries })
}
