package cluster

import "testing"

func TestSnapshotter_threshold(t *testing.T) {
	for _, tt := range []struct {
		name          string
		entries, cost int
		want          uint64
	}{
		{"small state", 8192, 100, 8192},
		{"as many as records", 8192, 40_000, 40_000},
		{"bounded", 8192, 10_000_000, maxEntries},
		{"as configured, above the bound", 200_000, 10_000_000, 200_000},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := &snapshotter{cfg: SnapshotConfig{Entries: tt.entries}, cost: func() int { return tt.cost }}
			if got := s.threshold(); got != tt.want {
				t.Errorf("threshold with %d entries and cost %d: %d, want %d", tt.entries, tt.cost, got, tt.want)
			}
		})
	}
}
