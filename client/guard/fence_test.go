package guard_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"leased/client/guard"
	"leased/gateway/api"
)

var _ guard.Counter = prometheus.Counter(nil)

// invalidFences are what no lease service grants.
func invalidFences() []guard.Fence {
	return []guard.Fence{
		{}, {Key: "a"}, {Token: 1}, {Key: "a", Token: 1 << 53}, {Key: "a", Token: 1<<64 - 1},
		{Key: "a\x00", Token: 1}, {Key: "a\nb", Token: 1}, {Key: "\xff", Token: 1}, {Key: "a\u0085", Token: 1},
		{Key: strings.Repeat("a", 256), Token: 1},
	}
}

func TestOf(t *testing.T) {
	t.Parallel()
	f := guard.Of(&api.Lease{Namespace: "jobs", KeyID: "q3", Token: 1<<53 - 1})
	if f != (guard.Fence{Key: "jobs/q3", Token: 1<<53 - 1}) {
		t.Errorf("got %+v", f)
	}
	h := http.Header{}
	f.SetHeader(h)
	if h.Get("Fence-Key") != "jobs/q3" || h.Get("Fence-Token") != "9007199254740991" {
		t.Errorf("got %v", h)
	}
}

func TestNewSQL(t *testing.T) {
	t.Parallel()
	for _, o := range []guard.SQLOptions{
		{}, {Dialect: 4}, {Dialect: guard.MySQL, Table: "a b"}, {Dialect: guard.MySQL, Table: "a;"}, {Dialect: guard.MySQL, Table: "1a"},
		{Dialect: guard.MySQL, Table: "a.b.c"}, {Dialect: guard.MySQL, Table: "a."}, {Dialect: guard.MySQL, Table: strings.Repeat("a", 64)},
	} {
		if _, err := guard.NewSQL(o); err == nil {
			t.Errorf("%+v is taken", o)
		}
	}
	s, err := guard.NewSQL(guard.SQLOptions{Dialect: guard.PostgreSQL, Table: "app.fence"})
	if err != nil || !strings.Contains(s.Schema(), " app.fence (") {
		t.Errorf("a table in a schema: %v, %v", s, err)
	}
}
