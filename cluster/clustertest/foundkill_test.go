package clustertest

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// TestCluster_firstStart_cutShort starts on what a first start leaves behind that
// is killed on all nodes at once, at each of its steps.
func TestCluster_firstStart_cutShort(t *testing.T) {
	t.Parallel()
	// What a node had done: nothing, agreed, written its log as well, or finished.
	const nothing, agreed, logged, founded = 0, 1, 2, 3
	tests := map[string]struct {
		nodes [3]int
		// kept: the cluster id that they had agreed on must be used: a member may
		// have begun, and nobody's folder is another one than was agreed on.
		kept bool
	}{
		"nobody has agreed":               {[3]int{nothing, nothing, nothing}, false},
		"the founder has proposed":        {[3]int{agreed, nothing, nothing}, false},
		"one has agreed":                  {[3]int{agreed, agreed, nothing}, false},
		"all have agreed":                 {[3]int{agreed, agreed, agreed}, true},
		"the founder has written its log": {[3]int{logged, agreed, agreed}, true},
		"the founder has begun":           {[3]int{founded, agreed, agreed}, true},
		"a second one has written":        {[3]int{founded, logged, agreed}, true},
		"two have begun":                  {[3]int{founded, founded, agreed}, true},
		"the founder was wiped early":     {[3]int{nothing, agreed, agreed}, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // most of it is waiting for elections
			c := New(t, Options{})
			c.Leader()
			var servers []map[string]any
			cluster := c.Node("n1").Status().ClusterID
			// All have the first configuration before anybody has more to lose.
			c.Write("a")
			c.Agree("a")
			for _, id := range c.IDs() {
				c.Stop(id)
			}
			identities := make(map[string]map[string]any)
			for _, id := range c.IDs() {
				content, err := os.ReadFile(filepath.Join(c.folder(id), "raft", "identity.json"))
				if err != nil {
					t.Fatal(err)
				}
				identity := make(map[string]any)
				if err := json.Unmarshal(content, &identity); err != nil {
					t.Fatal(err)
				}
				identities[id] = identity
				server := id + "@" + fmt.Sprint(identity["incarnation"])
				servers = append(servers, map[string]any{"id": server, "address": Address(id)})
			}
			for i, id := range c.IDs() {
				done := test.nodes[i]
				if done == nothing {
					c.Wipe(id)
					continue
				}
				identity := identities[id]
				if done != founded {
					identity["founded"], identity["cluster_id"], identity["voter"] = false, "unused", false
					identity["pending"] = map[string]any{"cluster_id": cluster, "servers": servers}
				}
				if done == agreed {
					if err := os.RemoveAll(filepath.Join(c.folder(id), "raft", "log")); err != nil {
						t.Fatal(err)
					}
				}
				content, err := json.Marshal(identity)
				if err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(c.folder(id), "raft", "identity.json"), content, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			for _, id := range c.IDs() {
				c.Start(id)
			}
			c.Write("b")
			for _, id := range c.IDs() {
				c.Eventually(id+" has its place", func() bool {
					s := c.Node(id).Status()
					return s.Waiting == "" && s.ClusterID != "" && s.ClusterID == c.Node("n1").Status().ClusterID
				})
			}
			if got := c.Node("n1").Status().ClusterID; test.kept && got != cluster {
				t.Errorf("cluster id %s, want the one that was agreed on, %s", got, cluster)
			}
		})
	}
}
