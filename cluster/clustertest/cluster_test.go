package clustertest

import (
	"context"
	"net"
	"testing"
	"time"

	"leased/cluster"
)

// TestNew: a cluster that is given to a test has all its members, the slow ones too.
func TestNew(t *testing.T) {
	t.Parallel()
	c := New(t, Options{Configure: func(cfg *cluster.Config) {
		if dial := cfg.Dial; cfg.NodeID == "n3" {
			cfg.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
				select {
				case <-time.After(500 * time.Millisecond): // the others found meanwhile
				case <-ctx.Done():
				}
				return dial(ctx, network, address)
			}
		}
	}})
	for _, id := range c.IDs() {
		if s := c.Node(id).Status(); s.ClusterID == "" || s.LeaderID == "" || s.Waiting != "" {
			t.Errorf("node %s: %+v, want it in the cluster, with a leader", id, s)
		}
	}
}
