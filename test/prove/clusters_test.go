package prove

import (
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"leased/test/history"
	"leased/test/proc"
)

// onClusters has defects that show only when one of several servers is lost, or comes
// back: on a single one the same edit changes nothing. For etcd's members none was found
// that a minute of it shows, see test/README.md.
func onClusters() map[string]tormented {
	return map[string]tormented{
		// A new leader's clock begins a second ahead of that of the state it has, as it could
		// where it went by the machine's.
		"raftkv-cluster/clock of a new leader": {
			edited: edited{rule: history.Exclusive, edits: []proc.Edit{{
				File: "backends/raftkv/engine.go", Is: "base: e.fsm.agenda().now,", Becomes: "base: e.fsm.agenda().now + 1e9,",
			}}},
			by: "leader: killed",
		},
		// Tokens are counted, and a replica that was behind counts some once more.
		"valkey-sentinel/counted tokens": {
			edited: edited{rule: history.TokensRise, edits: []proc.Edit{{
				File: "backends/valkey/scripts/grant.lua", Is: "local token = math.max(now, floor + 1)", Becomes: "local token = floor + 1",
			}}},
			by: "primary: paused",
		},
	}
}

// tormented is a defect that shows while something happens to the service.
type tormented struct {
	edited
	by string // the end of the fault's name
}

// TestClusterDefects runs deployments of several servers with a defect each, and wants it
// noticed while the servers are taken from them. It takes a minute, and runs where
// DURATION says that there is time.
func TestClusterDefects(t *testing.T) {
	t.Parallel()
	if os.Getenv("DURATION") == "" {
		for name, d := range onClusters() { // that all edits still fit
			if _, err := proc.Edited(proc.Root(t), d.edits...); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		return
	}
	seed := seed(t)
	all := onClusters()
	for _, name := range slices.Sorted(maps.Keys(all)) {
		c := all[name]
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			on, _, _ := strings.Cut(name, "/")
			d := deployments()[on](t, proc.BuildEdited(t, "leased/cmd/leased", c.edits...))
			r := newRun(t, d, seed, false)
			d.first, d.faults = nil, slices.DeleteFunc(d.faults, func(f fault) bool { return !strings.HasSuffix(f.name, c.by) })
			r.find(c.rule, func() { r.suffer(r.choose()) })
		})
	}
}
