package arch

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"testing"
)

// row says what the Go files of one folder, and of folders below it without a
// row of their own, may know. Those files may always import each other.
type row struct {
	folder string // "*" stands for one name
	// local lists what production code may import from this module; "..." stands
	// for everything but test support.
	local []string
	// testLocal lists what its tests may import on top of that and of
	// testSupport.
	testLocal []string
	// families lists the vendor families it may use; anyOne stands for one of
	// them, no matter which.
	families []string
	// only, when set, lists every prefix outside this module and the standard
	// library that production code may use.
	only []string
	why  string
}

const (
	everything = "..."
	anyOne     = "one of them"
)

// rows returns the arrows of ARCHITECTURE.md. The most specific row holds.
func rows() []row {
	return []row{
		{folder: "contract", only: []string{"golang.org/x/net", "golang.org/x/text"},
			why: "contract says what a lease store is; it knows nobody who uses or implements it"},
		{folder: "contract/contracttest", local: []string{"contract"},
			why: "the suite judges every store by contract alone"},
		{folder: "contract/memstore", local: []string{"contract"},
			why: "the oracle shares no code with the stores it is compared with"},
		{folder: "contract/lifecycle", local: []string{"contract"},
			why: "what a store needs to end well knows no store"},
		{folder: "backends/*", local: []string{"contract", "contract/lifecycle"}, families: []string{anyOne},
			why: "a backend sees contract and one vendor's client, never another backend, the gateway or the cluster"},
		{folder: "backends/raftkv", local: []string{"contract", "contract/lifecycle"}, families: []string{anyOne},
			// The suite must run on a real node. The product wires the two in cmd/leased.
			testLocal: []string{"cluster"},
			why:       "raftkv proposes through an interface that it declares itself"},
		{folder: "cluster", local: []string{"contract"}, families: []string{"raft"},
			why: "cluster runs any raft.FSM and answers through interfaces; it knows neither raftkv nor the gateway"},
		{folder: "cluster/clustertest", local: []string{"cluster", "contract", "contract/contracttest"}, families: []string{"raft"},
			why: "nodes under test run any raft.FSM, as cluster does"},
		{folder: "gateway", local: []string{"contract", "gateway/api", "gateway/ui"}, families: []string{"gin"},
			why: "the gateway sees contract.Store and nothing behind it"},
		{folder: "gateway/api", local: []string{"contract"},
			why: "the SDK takes the wire types from here, and must not get a server with them"},
		{folder: "gateway/ui", why: "the page talks to the HTTP API as everybody does"},
		{folder: "client", local: []string{"contract", "gateway/api"}, testLocal: []string{"gateway"},
			why: "the SDK speaks HTTP; its users get no server and no store with it"},
		{folder: "cmd/leased", local: []string{everything, "contract/contracttest"}, testLocal: []string{everything},
			families: []string{"raft", "valkey", "etcd"},
			why:      "cmd/leased wires the packages; routes belong in the gateway"},
		{folder: "test", local: []string{everything, "contract/contracttest", "contract/memstore", "cluster/clustertest"},
			families: []string{"gin", "raft", "valkey", "etcd"},
			why:      "tests of the whole may know everything"},
	}
}

// testSupport lists the folders that only tests may import, unless a row names
// them.
func testSupport() []string {
	return []string{"contract/contracttest", "contract/memstore", "cluster/clustertest", "test"}
}

// families returns the vendor packages that tie code to one technology, as
// prefixes of import paths: raft-wal belongs to raft.
func families() map[string][]string {
	return map[string][]string{
		"gin":    {"github.com/gin-gonic/", "github.com/gin-contrib/"},
		"raft":   {"github.com/hashicorp/raft", "go.etcd.io/bbolt"},
		"valkey": {"github.com/valkey-io/", "github.com/redis/"},
		"etcd":   {"go.etcd.io/etcd/"},
	}
}

func familyOf(importPath string) string {
	for _, family := range slices.Sorted(maps.Keys(families())) {
		if hasAnyPrefix(importPath, families()[family]) {
			return family
		}
	}
	return ""
}

func hasAnyPrefix(s string, prefixes []string) bool {
	return slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(s, p) })
}

// ginFiles are the files of the gateway that may know gin: the routes and what
// is written for them. Limits, authorisation and audit stay testable without a
// request, and a handler's context cannot outlive its request in them.
func ginFiles() []string {
	return []string{"bind*.go", "middleware*.go", "respond*.go", "routes*.go", "server*.go", "*_test.go"}
}

// rowFor returns the most specific row for a folder.
func rowFor(folder string) (row, bool) {
	parts := strings.Split(folder, "/")
	for n := len(parts); n > 0; n-- {
		prefix := strings.Join(parts[:n], "/")
		for _, exact := range []bool{true, false} {
			for _, r := range rows() {
				if exact && r.folder == prefix {
					return r, true
				}
				if ok, err := path.Match(r.folder, prefix); !exact && err == nil && ok {
					return r, true
				}
			}
		}
	}
	return row{}, false
}

// within tells whether folder is root or below it.
func within(folder, root string) bool {
	return folder == root || strings.HasPrefix(folder, root+"/")
}

// ownFolder is where a row's folder lies for one package: for "backends/*" and
// backends/etcd/codec that is backends/etcd.
func ownFolder(r row, folder string) string {
	depth := strings.Count(r.folder, "/") + 1
	return strings.Join(strings.Split(folder, "/")[:depth], "/")
}

// checkArrows reports each import that a row forbids.
func checkArrows(tr *tree) []violation {
	var bad []violation
	for _, p := range tr.packages {
		r, ok := rowFor(p.path)
		if !ok {
			bad = append(bad, violation{p.path, "no row says what this folder may import; add one to test/arch/arrows_test.go and its arrow to ARCHITECTURE.md"})
			continue
		}
		used := make(map[string]bool)
		for _, s := range p.sources {
			for _, imp := range s.imports {
				if why := forbidden(r, p.path, s, imp.path); why != "" {
					bad = append(bad, violation{imp.where, fmt.Sprintf("%s imports %s: %s", p.path, imp.path, why)})
				}
				if f := familyOf(imp.path); f != "" && !s.test {
					used[f] = true
				}
			}
		}
		if slices.Contains(r.families, anyOne) && len(used) > 1 {
			bad = append(bad, violation{p.path, fmt.Sprintf("uses %s: %s",
				strings.Join(slices.Sorted(maps.Keys(used)), " and "), r.why)})
		}
	}
	return bad
}

// forbidden returns why the import is wrong, or "".
func forbidden(r row, folder string, s source, importPath string) string {
	if within(importPath, modulePath) {
		target := strings.TrimPrefix(strings.TrimPrefix(importPath, modulePath), "/")
		return forbiddenLocal(r, folder, s, target)
	}
	family := familyOf(importPath)
	switch {
	case family == "gin" && !slices.Contains(r.families, "gin"):
		return "gin stays in the routes of the gateway"
	case family == "gin" && !matchesAny(path.Base(s.path), ginFiles()) && within(folder, "gateway"):
		return "gin stays in the files " + strings.Join(ginFiles(), ", ") + " of the gateway"
	case family != "" && !slices.Contains(r.families, family) && !slices.Contains(r.families, anyOne):
		return r.why
	case r.only != nil && !s.test && strings.Contains(strings.Split(importPath, "/")[0], ".") && !underOne(importPath, r.only):
		return "only the standard library and " + strings.Join(r.only, ", ") + " are allowed here: " + r.why
	}
	return ""
}

func forbiddenLocal(r row, folder string, s source, target string) string {
	allowed := append(slices.Clone(r.local), ownFolder(r, folder))
	if s.test {
		allowed = slices.Concat(allowed, r.testLocal, testSupport())
	}
	support := underOne(target, testSupport())
	switch {
	case slices.ContainsFunc(allowed, func(a string) bool { return covers(a, target) }):
		return ""
	case slices.Contains(allowed, everything) && !support:
		return ""
	case support:
		return "only tests may import it"
	}
	return r.why
}

// covers tells whether leave to import root is leave to import target: it is for
// root and what lies below it under the same row. contract/memstore does not
// come with contract.
func covers(root, target string) bool {
	if !within(target, root) {
		return false
	}
	a, _ := rowFor(root)
	b, _ := rowFor(target)
	return a.folder == b.folder
}

func underOne(importPath string, roots []string) bool {
	return slices.ContainsFunc(roots, func(r string) bool { return within(importPath, r) })
}

func matchesAny(name string, patterns []string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool {
		ok, err := path.Match(p, name)
		return err == nil && ok
	})
}

// barrier says what production code may not reach, through any number of
// imports. An arrow that is right by itself can still lead there.
type barrier struct {
	from     string
	never    []string // folders of this module, with what is below them
	families []string
	why      string
}

func barriers() []barrier {
	return []barrier{
		{"contract", []string{"backends", "client", "cluster", "cmd", "gateway", "test"},
			[]string{"etcd", "gin", "raft", "valkey"}, "whoever imports contract would get it too"},
		{"backends", []string{"client", "gateway"}, []string{"gin"}, "a store is behind the gateway"},
		{"cluster", []string{"backends", "client", "gateway"}, []string{"etcd", "gin", "valkey"},
			"cluster runs any raft.FSM"},
		{"gateway", []string{"backends", "client", "cluster"},
			[]string{"etcd", "raft", "valkey"}, "the gateway serves any store"},
		{"client", []string{"backends", "cluster", "gateway/ui"},
			[]string{"etcd", "gin", "raft", "valkey"}, "the SDK's users would get it too"},
		{"gateway/api", nil, []string{"etcd", "gin", "raft", "valkey"}, "the SDK's users would get it too"},
		{"cmd/leased", []string{"contract/memstore", "cluster/clustertest", "test"}, nil,
			"it would ship in the product"},
	}
}

// checkBarriers reports each barrier that the graph crosses, with the way there.
func checkBarriers(graph importGraph) []violation {
	var bad []violation
	for _, b := range barriers() {
		var never []string
		for _, folder := range b.never {
			never = append(never, path.Join(modulePath, folder))
		}
		stop := func(importPath string) bool {
			return underOne(importPath, never) || slices.Contains(b.families, familyOf(importPath))
		}
		for _, from := range slices.Sorted(maps.Keys(graph)) {
			if !within(from, path.Join(modulePath, b.from)) {
				continue
			}
			if way := graph.chain(from, stop); way != nil {
				bad = append(bad, violation{strings.TrimPrefix(from, modulePath+"/"),
					"reaches " + strings.Join(way, " -> ") + ": " + b.why})
			}
		}
	}
	return bad
}

func TestArrows(t *testing.T) {
	root, tr := repository(t)
	report(t, checkArrows(tr))
	graph, err := dependencies(t.Context(), root, tr)
	if err != nil {
		t.Fatal(err)
	}
	report(t, checkBarriers(graph))
}
