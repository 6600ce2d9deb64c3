package main

import (
	"strings"
	"testing"
)

func TestAnnouncement(t *testing.T) {
	tests := []struct {
		name string
		n    announcement
	}{
		{"plain", announcement{version: "v1.2.3", node: "n1", listen: "127.0.0.1:8470", dataDir: "/data", namespaces: []string{"default"}}},
		{"other", announcement{version: "v1.2.3", node: "a", listen: "[::1]:9", tls: true, dataDir: "/data", namespaces: []string{"a", "b"}}},
		{"remote", announcement{version: "v1.2.3", node: "n1", listen: "127.0.0.1:8470", backends: []string{"cache (valkey)", "coord (etcd)"}, namespaces: []string{"default"}}},
		{"open", announcement{version: "v1.2.3", node: "a", listen: "[::]:8470", dataDir: "/data", namespaces: []string{"a", "default"}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var b strings.Builder
			if err := tt.n.print(&b); err != nil {
				t.Fatal(err)
			}
			golden(t, "announcement/"+tt.name, b.String())
		})
	}
}
