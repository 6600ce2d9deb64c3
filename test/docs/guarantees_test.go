package docs

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"leased/backends/etcd"
	"leased/backends/raftkv"
	"leased/backends/valkey"
	"leased/contract"
)

// backend is one column of the page.
type backend struct {
	name       string
	guarantees contract.Guarantees
}

func backends() []backend {
	return []backend{
		{"raftkv", raftkv.Guarantees()},
		{"valkey", valkey.Guarantees()},
		{"etcd", etcd.Guarantees()},
	}
}

const (
	begin = "<!-- The rest of this part is written by test/docs from what GET /v1/namespaces/{ns} shows. -->\n"
	end   = "<!-- End of what test/docs writes. -->\n"
)

// TestGuarantees holds docs/guarantees.md to what the backends declare and the
// gateway shows: a promise in prose that the code does not make is none.
func TestGuarantees(t *testing.T) {
	const file = "../../docs/guarantees.md"
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(text), begin)
	got, after, closed := strings.Cut(rest, end)
	if !ok || !closed {
		t.Fatalf("%s does not have the lines\n%s%s", file, begin, end)
	}
	want := page(backends())
	if os.Getenv("LEASED_UPDATE_GOLDEN") != "" {
		if err := os.WriteFile(file, []byte(before+begin+want+end+after), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-declared +written):\n%s", file, diff)
	}
}

// page returns what the backends promise, question by question, so that they
// can be compared.
func page(all []backend) string {
	var b strings.Builder
	row := func(name string, of func(contract.Guarantees) string) {
		fmt.Fprintf(&b, "| %s |", name)
		for _, each := range all {
			fmt.Fprintf(&b, " %s |", of(each.guarantees))
		}
		b.WriteString("\n")
	}
	b.WriteString("\n|  |")
	for _, each := range all {
		fmt.Fprintf(&b, " %s |", each.name)
	}
	fmt.Fprintf(&b, "\n|---|%s\n", strings.Repeat("---|", len(all)))
	row("TTLs are rounded up to a multiple of", func(g contract.Guarantees) string { return g.Granularity.String() })
	row("shortest TTL", func(g contract.Guarantees) string { return g.MinTTL.String() })
	row("a lease ends early, on the clock that decides", func(contract.Guarantees) string { return "never" })
	row("a lease ends late by, while the backend is healthy", func(g contract.Guarantees) string { return "up to " + g.Slack.String() })
	row("quotas hold when acquires race", func(g contract.Guarantees) string {
		if g.QuotaExact {
			return "exactly"
		}
		return "nearly"
	})
	for _, question := range []struct {
		title string
		of    func(contract.Guarantees) string
	}{
		{"A process crashes", func(g contract.Guarantees) string { return g.ProcessCrash }},
		{"A machine crashes", func(g contract.Guarantees) string { return g.MachineCrash }},
		{"Another server takes over", func(g contract.Guarantees) string { return g.FailOver }},
		{"The network splits", func(g contract.Guarantees) string { return g.Partition }},
		{"A clock steps", func(g contract.Guarantees) string { return g.ClockStep }},
		{"A backup is restored", func(g contract.Guarantees) string { return g.Restore }},
		{"Who is served next", func(g contract.Guarantees) string { return g.Fairness }},
	} {
		fmt.Fprintf(&b, "\n### %s\n\n", question.title)
		for _, each := range all {
			fmt.Fprintf(&b, "- **%s**: %s\n", each.name, question.of(each.guarantees))
		}
	}
	b.WriteString("\n")
	return b.String()
}
