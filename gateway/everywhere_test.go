package gateway

import (
	"strings"
	"testing"

	"leased/gateway/api"
)

// TestTimeout_everywhere: a route either takes a timeout or refuses the parameter;
// none ignores what it does not understand.
func TestTimeout_everywhere(t *testing.T) {
	r := newRig(t, withCluster(new(fakeCluster)))
	path := strings.NewReplacer(":namespace", "default", ":lease_id", someLease, ":key_id", someLease[:22], ":id", "n4")
	for _, route := range routes() {
		if route.public {
			continue
		}
		for _, timeout := range []string{"banana", "-1s", "0s", "5"} {
			a := r.call(t, route.method, path.Replace(route.path)+"?timeout="+timeout, "")
			if p := wantProblem(t, a, api.CodeInvalid); p.Field != "timeout" {
				t.Errorf("%s %s, timeout %s: got field %q", route.method, route.path, timeout, p.Field)
			}
		}
	}
}
