package prove

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// columns are the deployments, and before them the stores whose time is the test's:
// there each scenario happens in one order, every time.
func columns() []string {
	return []string{"deterministic", "raftkv", "raftkv-cluster", "valkey", "valkey-sentinel", "etcd", "etcd-cluster"}
}

// scenario is a row of the matrix: which tests hold it, in each column. A test is
// "folder Name", or "folder Name/sub".
type scenario struct {
	name  string
	cells map[string][]string
}

// held is a row whose columns are all held by the rule of the contract, and by the
// histories. further has what holds it besides.
func held(name, rule string, further map[string][]string) scenario {
	s := scenario{name: name, cells: map[string][]string{}}
	for column, test := range map[string]string{
		"deterministic":  "contract/memstore TestContract/",
		"raftkv":         "backends/raftkv TestContract/",
		"raftkv-cluster": "backends/raftkv TestContract_forwarded/",
		"valkey":         "backends/valkey TestContract/",
		"etcd":           "backends/etcd TestContract/",
		"etcd-cluster":   "backends/etcd TestContractThree/",
	} {
		s.cells[column] = append(s.cells[column], test+rule)
	}
	for _, column := range columns()[1:] {
		s.cells[column] = append(s.cells[column], "test/prove TestHistories/"+column)
	}
	for column, tests := range further {
		s.cells[column] = append(s.cells[column], tests...)
	}
	return s
}

// onEach is a test that has each of the three backends, as more.
func onEach(test string, more map[string][]string) map[string][]string {
	all := map[string][]string{"raftkv": {test}, "valkey": {test}, "etcd": {test}}
	for column, tests := range more {
		all[column] = append(all[column], tests...)
	}
	return all
}

func matrix() []scenario {
	return []scenario{
		held("simultaneous acquire", "acquire-one-winner", map[string][]string{
			"valkey-sentinel": {"test/e2e TestFailOver_sentinel"},
			"raftkv-cluster":  {"test/cluster TestCluster_killLeader"},
		}),
		held("renew races expiry", "renew-races-expiry", map[string][]string{
			"raftkv-cluster": {"test/cluster TestCluster_renewalsAndExpiries"},
		}),
		held("release races reacquire", "release-races-reacquire", nil),
		held("timeout after success, then retry", "replay-acquire", onEach("test/fault TestSituations/reply swallowed", nil)),
		held("service crashes after an acquire", "wait-place-outlives-gateway", onEach("test/fault TestSituations/server killed", map[string][]string{
			"deterministic":  {"contract/memstore TestModel_RestartLeavesPlacesAway"},
			"raftkv":         {"test/e2e TestKill_LosesNothing"},
			"raftkv-cluster": {"test/cluster TestCluster_killLeader", "test/cluster TestCluster_vanishedGateway"},
		})),
		held("job crashes while it holds", "expiry-frees-key", onEach("test/holding TestHolding", map[string][]string{
			"raftkv": {"client/runner TestKilled"},
		})),
		held("connection lost during a renewal", "copies-of-renew", onEach("test/holding TestHolding", map[string][]string{
			"raftkv-cluster": {"test/cluster TestCluster_renewalsAndExpiries"},
		})),
		held("the store restarts, or another server takes over", "reopen-keeps-leases", map[string][]string{
			"deterministic":   {"backends/raftkv TestFSM_Replay"},
			"raftkv":          {"backends/raftkv TestEngine_RestartStretchesLittle"},
			"raftkv-cluster":  {"test/cluster TestCluster_rollingRestart", "test/cluster TestCluster_pausedLeader"},
			"valkey":          {"backends/valkey TestRecovery_RestartEmpty", "backends/valkey TestRecovery_OlderSnapshot"},
			"valkey-sentinel": {"test/e2e TestFailOver_sentinel", "backends/valkey TestRecovery_Sentinel"},
			"etcd":            {"test/e2e TestBackends_down"},
			"etcd-cluster":    {"backends/etcd TestStore_killedMember"},
		}),
		held("a delayed result after a newer token", "release-never-ends-newer", onEach("test/holding TestHolding", map[string][]string{
			"deterministic":   {"client/guard TestMemory_sequence"},
			"valkey-sentinel": {"backends/valkey TestFailOver_floor"},
		})),
		held("a revocation while work runs", "revoke-told-to-holder", map[string][]string{
			"valkey":          {"test/holding TestRevoked"},
			"etcd":            {"test/holding TestRevoked"},
			"raftkv":          {"client TestWatch_revoked"},
			"valkey-sentinel": {"backends/valkey TestFailOver_stream"},
		}),
		held("clocks are off", "reopen-never-early", map[string][]string{
			"raftkv":          {"backends/raftkv TestEngine_WallClockJumps"},
			"raftkv-cluster":  {"test/cluster TestCluster_clockOff"},
			"valkey":          {"backends/valkey TestClock_setBack"},
			"valkey-sentinel": {"backends/valkey TestFailOver_floor"},
			"etcd":            {"backends/etcd TestStore_replayOtherClock", "backends/etcd TestStore_renewOtherClock"},
		}),
		held("request ids repeated, with the same request and with another", "request-id-reused", map[string][]string{
			"deterministic": {"contract/memstore TestContract/copies-of-acquire"},
		}),
	}
}

const (
	matrixBegin = "<!-- The matrix is written by test/prove. -->\n"
	matrixEnd   = "<!-- End of the matrix. -->\n"
)

// TestMatrix holds the matrix to have no empty cell and to name tests that there are,
// and test/README.md to show it.
func TestMatrix(t *testing.T) {
	t.Parallel()
	for _, s := range matrix() {
		for _, column := range columns() {
			if len(s.cells[column]) == 0 {
				t.Errorf("%s on %s: no test holds it", s.name, column)
			}
			for _, test := range s.cells[column] {
				if err := exists(test); err != nil {
					t.Errorf("%s on %s: %v", s.name, column, err)
				}
			}
		}
		for column := range s.cells {
			if !slices.Contains(columns(), column) {
				t.Errorf("%s: there is no column %s", s.name, column)
			}
		}
	}
	const file = "../README.md"
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(text), matrixBegin)
	got, after, closed := strings.Cut(rest, matrixEnd)
	if !ok || !closed {
		t.Fatalf("%s does not have the lines\n%s%s", file, matrixBegin, matrixEnd)
	}
	want := table()
	if os.Getenv("LEASED_UPDATE_GOLDEN") != "" {
		if err := os.WriteFile(file, []byte(before+matrixBegin+want+matrixEnd+after), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-matrix +written):\n%s", file, diff)
	}
}

// table returns the matrix as it stands in the document.
func table() string {
	var b strings.Builder
	fmt.Fprintf(&b, "| | %s |\n|%s\n", strings.Join(columns(), " | "), strings.Repeat("---|", len(columns())+1))
	for _, s := range matrix() {
		fmt.Fprintf(&b, "| %s |", s.name)
		for _, column := range columns() {
			var names []string
			for _, test := range s.cells[column] {
				_, name, _ := strings.Cut(test, " ")
				names = append(names, "`"+name+"`")
			}
			fmt.Fprintf(&b, " %s |", strings.Join(names, ", "))
		}
		b.WriteString("\n")
	}
	return b.String()
}

// exists looks for the test in its folder's tests, and for its subtest's name among
// their strings; that of a rule is in the suite.
func exists(test string) error {
	dir, name, _ := strings.Cut(test, " ")
	name, sub, _ := strings.Cut(name, "/")
	functions, texts, err := declared(dir)
	if err != nil {
		return err
	}
	if !slices.Contains(functions, name) {
		return fmt.Errorf("%s has no test %s", dir, name)
	}
	if strings.HasPrefix(name, "TestContract") {
		if _, texts, err = declared("contract/contracttest"); err != nil {
			return err
		}
	}
	if sub != "" && !slices.Contains(texts, sub) {
		return fmt.Errorf("%s of %s has no part %q", name, dir, sub)
	}
	return nil
}

// declared returns the functions of a folder's tests, and all texts of its files.
func declared(dir string) (functions, texts []string, err error) {
	files, err := filepath.Glob(filepath.Join("..", "..", dir, "*.go"))
	if err != nil {
		return nil, nil, err
	}
	for _, file := range files {
		syntax, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, nil, err
		}
		ast.Inspect(syntax, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				if strings.HasSuffix(file, "_test.go") && n.Recv == nil {
					functions = append(functions, n.Name.Name)
				}
			case *ast.BasicLit:
				if text, err := strconv.Unquote(n.Value); n.Kind == token.STRING && err == nil {
					texts = append(texts, text)
				}
			}
			return true
		})
	}
	return functions, texts, nil
}
