package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestConfig_everyLeaf gives each setting once by flag and once by variable and
// holds that both reach the place that the file's name reaches: a setting that
// only the file can give would break deployments that have no file.
func TestConfig_everyLeaf(t *testing.T) {
	known := func(_, folded string) (string, bool) { return strings.ToLower(folded), false }
	asIs := func(_, name string) (string, bool) { return name, false }
	all := leaves(configType(), nil)
	if len(all) < 40 {
		t.Fatalf("%d settings, want all of the configuration's", len(all))
	}
	for _, leaf := range all {
		want := make([]string, len(leaf))
		for i, part := range leaf {
			want[i] = strings.Replace(part, anyName, "jobs", 1)
		}
		got, ok := matchName(envName(want), envName, known)
		if diff := cmp.Diff(want, got); !ok || diff != "" {
			t.Errorf("%s (-want +got):\n%s", envName(want), diff)
		}
		got, ok = matchName(flagName(want), flagName, asIs)
		if diff := cmp.Diff(want, got); !ok || diff != "" {
			t.Errorf("--%s (-want +got):\n%s", flagName(want), diff)
		}
	}
}

func TestConfig_variables(t *testing.T) {
	file := "namespaces:\n  my-jobs: {ttl: {max: 2h}}\n  history: {}\n"
	got, problem := load(t, file, []string{
		"LEASED_NODE_DATA_DIR=/data",
		"LEASED_INSECURE=true",
		"LEASED_CLUSTER_SNAPSHOT_ENTRIES=10",
		"LEASED_NAMESPACES_MY_JOBS_TTL_DEFAULT=1m",
		"LEASED_NAMESPACES_HISTORY_HISTORY_KEEP=1h",
		"LEASED_NAMESPACES_NEW_MAX_WAIT=7s",
		"LEASED_CLUSTER_MEMBERS_N1=127.0.0.1:8471",
	})
	if problem != "" {
		t.Fatal(problem)
	}
	if got.Node.DataDir != "/data" || !got.Insecure || got.Cluster.Snapshot.Entries != 10 {
		t.Errorf("plain settings: %+v", got.config)
	}
	if ns := got.Namespaces["my-jobs"]; ns.TTL.Default.String() != "1m0s" || ns.TTL.Max.String() != "2h0m0s" {
		t.Errorf("a variable fits the namespace of the file and leaves its other settings: %+v", ns)
	}
	if ns := got.Namespaces["history"]; ns.History.Keep.String() != "1h0m0s" {
		t.Errorf("a namespace may be called like a setting: %+v", ns)
	}
	if ns := got.Namespaces["new"]; ns.MaxWait.String() != "7s" || ns.History.PerKey != 64 {
		t.Errorf("a variable may add a namespace, which has the defaults: %+v", ns)
	}
	if diff := cmp.Diff(map[string]string{"n1": "127.0.0.1:8471"}, got.Cluster.Members); diff != "" {
		t.Errorf("members (-want +got):\n%s", diff)
	}
}

// TestConfig_foreignVariables holds that what others put into the environment
// neither stops the server nor configures it. Kubernetes sets the last ones in
// each pod of a namespace that has a Service called leased or leased-http.
func TestConfig_foreignVariables(t *testing.T) {
	got, problem := load(t, "", []string{
		"PATH=/bin", "LEASED_SERVER=http://x", "LEASED_TOKEN_FILE=t", "LEASED_NAMESPACE=jobs", "LEASED_LEASE_ID=x",
		"LEASED_TOKEN=7", "LEASED_KEY_ID=x", "LEASED_EXPIRES_AT=x", "LEASED_CONFIG=c",
		"LEASED_SERVICE_HOST=10.0.0.1", "LEASED_SERVICE_PORT=8470", "LEASED_PORT=tcp://10.0.0.1:8470",
		"LEASED_PORT_8470_TCP=tcp://10.0.0.1:8470", "LEASED_PORT_8470_TCP_ADDR=10.0.0.1",
		"LEASED_HTTP_SERVICE_HOST=10.0.0.1", "LEASED_HTTP_SERVICE_PORT_HTTP=8470", "LEASED_HTTP_PORT_8470_TCP_PROTO=tcp",
		"LEASED_HTPT_LISTEN=127.0.0.1:1",
	})
	if problem != "" {
		t.Fatal(problem)
	}
	if diff := cmp.Diff([]string{"LEASED_HTPT_LISTEN"}, got.strange); diff != "" {
		t.Errorf("variables to warn of (-want +got):\n%s", diff)
	}
	if got.HTTP.Listen != "127.0.0.1:8470" {
		t.Errorf("listen is %s, want the default", got.HTTP.Listen)
	}
}

func TestNearest(t *testing.T) {
	names := []string{"ttl", "max_lifetime", "listen", "id"}
	tests := []struct{ text, want string }{
		{"ttll", "ttl"}, {"TTL", "ttl"}, {"tlt", "ttl"}, {"max_lifetme", "max_lifetime"}, {"maxlifetime", "max_lifetime"},
		{"lisent", "listen"}, {"ip", "id"}, {"colour", ""}, {"x", ""},
	}
	for _, tt := range tests {
		if got := nearest(tt.text, names); got != tt.want {
			t.Errorf("nearest(%q) = %q, want %q", tt.text, got, tt.want)
		}
	}
}
