package main

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"leased/gateway/api"
)

func exampleCluster() *api.Cluster {
	return &api.Cluster{ClusterID: "C7", Term: 7, Leader: "n1", AppliedIndex: 812, Nodes: []api.ClusterNode{
		{ID: "n1", Address: "10.0.0.1:8471", Role: "leader", Voter: true, AppliedIndex: 812, Healthy: true, SnapshotIndex: 700, SnapshotAgeMS: 61000, LogBytes: 64 << 20},
		{ID: "n2", Address: "10.0.0.2:8471", Role: "follower", Voter: true, AppliedIndex: 810, LastContactMS: 12, Healthy: true},
		{ID: "n3", Address: "10.0.0.3:8471"},
		{ID: "n4", Address: "10.0.0.4:8471", Role: "follower", Voter: true, AppliedIndex: 700, LogBytes: 64 << 20, LogError: "open the log d/raft/log: no space left on device"},
	}}
}

func TestCluster_commands(t *testing.T) {
	leaderless := exampleCluster()
	leaderless.Leader = ""
	tests := []struct {
		name, args string
		reply      any
		asked      string
		code       int
	}{
		{"status", "status", exampleCluster(), "GET /v1/cluster", exitDone},
		{"status_json", "status --json", exampleCluster(), "GET /v1/cluster", exitDone},
		{"status_leaderless", "status", leaderless, "GET /v1/cluster", exitUnavailable},
		{"status_unhealthy", "status --wait 1ns", exampleCluster(), "GET /v1/cluster", exitUnavailable},
		{"add", "add n4 10.0.0.4:8471 --non-voter", &api.ClusterReply{Outcome: api.OutcomeAdded},
			`POST /v1/cluster/members   {"id":"n4","address":"10.0.0.4:8471","non_voter":true}`, exitDone},
		{"remove", "remove n3", &api.ClusterReply{Outcome: api.OutcomeRemoved}, "DELETE /v1/cluster/members/n3", exitDone},
		{"transfer", "transfer --to n2 --json", &api.ClusterReply{Outcome: api.OutcomeTransferred}, `POST /v1/cluster/transfer   {"to":"n2"}`, exitDone},
		{"denied", "transfer", api.NewProblem(api.CodeDenied, "r", `needs the right "admin"`), "POST /v1/cluster/transfer   {}", exitDenied},
		{"unknown", "remove n3", api.NewProblem(api.CodeOutcomeUnknown, "r", "not done in time"), "DELETE /v1/cluster/members/n3", exitUnavailable},
		{"unavailable", "remove n3", api.NewProblem(api.CodeUnavailable, "r", "no node leads"), "DELETE /v1/cluster/members/n3", exitUnavailable},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := newFakeServer(t, tt.reply)
			got := command(t.Context(), []string{"LEASED_SERVER=" + s.URL}, append([]string{"cluster"}, strings.Fields(tt.args)...)...)
			if got.code != tt.code {
				t.Errorf("got %v, want exit %d", got, tt.code)
			}
			if asked := strings.Join(s.asked, "\n"); asked != tt.asked {
				t.Errorf("the server was asked %q, want %q once", asked, tt.asked)
			}
			golden(t, "cluster/"+tt.name, got.String())
		})
	}
}

// status --wait looks again until every member is healthy.
func TestCluster_wait(t *testing.T) {
	looks := 0
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		looks++
		c := exampleCluster()
		if looks > 2 {
			c.Nodes = c.Nodes[:2]
		}
		w.Header().Set("Content-Type", api.MediaType)
		_ = json.NewEncoder(w).Encode(c)
	}))
	defer s.Close()
	got := command(t.Context(), []string{"LEASED_SERVER=" + s.URL}, "cluster", "status", "--wait", "1m")
	if got.code != exitDone || looks != 3 || !strings.Contains(got.String(), "2 nodes") {
		t.Errorf("got %v after %d looks, want the cluster of the third", got, looks)
	}
}

// TestCluster_backup takes a backup of a node and restores it, with what goes wrong
// on the way.
func TestCluster_backup(t *testing.T) {
	a := openTestApp(t, &bytes.Buffer{})
	t.Cleanup(func() { _ = a.close(t.Context()) })
	on := []string{"LEASED_SERVER=http://" + a.address}
	leased := func(want int, args ...string) result {
		t.Helper()
		got := command(t.Context(), on, args...)
		if got.code != want {
			t.Fatalf("leased %v: got %v, want exit %d", args, got, want)
		}
		return got
	}
	leased(exitDone, "acquire", "--tenant", "acme", "--target", "name:x", "--actor", "a")
	file := filepath.Join(t.TempDir(), "the.backup")
	if got := leased(exitDone, "cluster", "backup", file); !strings.Contains(got.stdout, "checksum verified") {
		t.Errorf("got %v", got)
	}
	leased(exitUsage, "cluster", "backup", file) // replaces nothing
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	piped := filepath.Join(t.TempDir(), "piped.backup")
	if err := os.WriteFile(piped, []byte(leased(exitDone, "cluster", "backup", "-").stdout), 0o600); err != nil {
		t.Fatal(err)
	}

	damaged := filepath.Join(t.TempDir(), "damaged.backup")
	content[len(content)/2] ^= 1
	if err := os.WriteFile(damaged, content, 0o600); err != nil {
		t.Fatal(err)
	}
	leased(exitUsage, "cluster", "restore", damaged, "--yes")
	leased(exitUsage, "cluster", "restore", file+".none", "--yes")
	leased(exitHeld, "acquire", "--tenant", "acme", "--target", "name:x", "--actor", "a") // nothing has changed
	for _, whole := range []string{file, piped} {
		if got := leased(exitDone, "cluster", "restore", whole, "--yes"); !strings.Contains(got.stdout, "leases ended:") {
			t.Errorf("%s: got %v", whole, got)
		}
	}
	leased(exitDone, "acquire", "--tenant", "acme", "--target", "name:x", "--actor", "a")

	leased(exitOther, "cluster", "remove", "n9")
	leased(exitOther, "cluster", "transfer", "--to", "n9")
	leased(exitUsage, "cluster", "add", "n9", "nowhere")
	if got := leased(exitUnavailable, "cluster", "add", "n9", "127.0.0.1:1"); !strings.Contains(got.stderr, "nothing was changed") {
		t.Errorf("got %v", got)
	}
}

func TestConfirm(t *testing.T) {
	for typed, want := range map[string]bool{"C7\n": true, " C7 \n": true, "C7": true, "c7\n": false, "yes\n": false, "": false, "\n": false} {
		err := confirm(&env{stderr: &bytes.Buffer{}}, strings.NewReader(typed), "C7")
		if (err == nil) != want {
			t.Errorf("%q: got error %v, want it to be taken: %v", typed, err, want)
		}
		if err != nil && exitCode(err) != exitUsage {
			t.Errorf("%q: got exit %d", typed, exitCode(err))
		}
	}
}
