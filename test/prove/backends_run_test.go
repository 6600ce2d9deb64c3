package prove

import (
	"os"
	"testing"

	"leased/test/proc"
)

// TestBackendDefects runs each backend, in real processes, with one defect at a time in
// its source, and wants it noticed; and each without, of which nothing may be said.
// Without DURATION it is one defect of each: each takes a program of its own.
func TestBackendDefects(t *testing.T) {
	t.Parallel()
	seed := seed(t)
	short := map[string]string{"raftkv": "lost replay", "valkey": "release without compare", "etcd": "acquire not atomic"}
	for backend, all := range backendDefects() {
		all["none"] = edited{}
		for name, c := range all {
			if os.Getenv("DURATION") == "" && short[backend] != name {
				continue
			}
			t.Run(backend+"/"+name, func(t *testing.T) {
				t.Parallel()
				d := deployments()[backend](t, proc.BuildEdited(t, "leased/cmd/leased", c.edits...))
				newRun(t, d, seed, c.unfenced).find(c.rule, func() {})
			})
		}
	}
}
