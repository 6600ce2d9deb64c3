package arch

import (
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
)

// files is a small module: path and content.
type files map[string]string

func (f files) tree(t *testing.T) *tree {
	t.Helper()
	fsys := make(fstest.MapFS)
	for name, content := range f {
		fsys[name] = &fstest.MapFile{Data: []byte(content)}
	}
	tr, err := readTree(fsys)
	if err != nil {
		t.Fatal(err)
	}
	return tr
}

// importing returns the source of a file that imports the given packages, the
// first on line 3.
func importing(name string, paths ...string) string {
	content := "package " + name + "\n\n"
	for _, p := range paths {
		content += "import _ \"" + p + "\"\n"
	}
	return content
}

func lines(violations []violation) []string {
	var got []string
	for _, v := range violations {
		got = append(got, v.String())
	}
	return got
}

// TestArrows_broken shows each arrow broken, and that the arrow beside it, which
// is allowed, is not reported: a want of nil is such a neighbour.
func TestArrows_broken(t *testing.T) {
	const (
		contractWhy = "contract says what a lease store is; it knows nobody who uses or implements it"
		backendWhy  = "a backend sees contract and one vendor's client, never another backend, the gateway or the cluster"
		raftkvWhy   = "raftkv proposes through an interface that it declares itself"
		gatewayWhy  = "the gateway sees contract.Store and nothing behind it"
		clusterWhy  = "cluster runs any raft.FSM and answers through interfaces; it knows neither raftkv nor the gateway"
		clientWhy   = "the SDK speaks HTTP; its users get no server and no store with it"
		ginWhy      = "gin stays in the routes of the gateway"
		ginFilesWhy = "gin stays in the files bind*.go, middleware*.go, respond*.go, routes*.go, server*.go, *_test.go of the gateway"
	)
	tests := map[string]struct {
		file    string
		imports []string
		want    []string
	}{
		"contract may use x": {"contract/key.go", []string{"net/url", "golang.org/x/net/idna", "golang.org/x/text/unicode/norm"}, nil},
		"contract uses a library": {"contract/key.go", []string{"github.com/google/uuid"},
			[]string{"contract/key.go:3: contract imports github.com/google/uuid: only the standard library and golang.org/x/net, golang.org/x/text are allowed here: " + contractWhy}},
		"contract uses another x": {"contract/key.go", []string{"golang.org/x/sync/errgroup"},
			[]string{"contract/key.go:3: contract imports golang.org/x/sync/errgroup: only the standard library and golang.org/x/net, golang.org/x/text are allowed here: " + contractWhy}},
		"contract's tests may": {"contract/key_test.go", []string{"github.com/google/go-cmp/cmp", "leased/contract/memstore"}, nil},
		"contract knows the gateway": {"contract/key.go", []string{"leased/gateway"},
			[]string{"contract/key.go:3: contract imports leased/gateway: " + contractWhy}},
		"contract's tests know the gateway": {"contract/key_test.go", []string{"leased/gateway"},
			[]string{"contract/key_test.go:3: contract imports leased/gateway: " + contractWhy}},
		"contract ships the oracle": {"contract/key.go", []string{"leased/contract/memstore"},
			[]string{"contract/key.go:3: contract imports leased/contract/memstore: only tests may import it"}},
		"the suite knows the oracle": {"contract/contracttest/run.go", []string{"leased/contract", "leased/contract/memstore"},
			[]string{"contract/contracttest/run.go:4: contract/contracttest imports leased/contract/memstore: only tests may import it"}},
		"the suite's tests may":     {"contract/contracttest/broken_test.go", []string{"leased/contract/memstore"}, nil},
		"a backend and its client":  {"backends/etcd/store.go", []string{"leased/contract", "leased/backends/etcd/codec", "go.etcd.io/etcd/client/v3"}, nil},
		"a backend below its row":   {"backends/etcd/codec/codec.go", []string{"leased/contract", "leased/backends/etcd"}, nil},
		"a backend nobody named":    {"backends/postgres/store.go", []string{"leased/contract", "github.com/jackc/pgx/v5"}, nil},
		"a backend's tests":         {"backends/etcd/store_test.go", []string{"leased/contract/contracttest", "leased/contract/memstore"}, nil},
		"a backend ends well":       {"backends/etcd/store.go", []string{"leased/contract/lifecycle"}, nil},
		"raftkv ends well":          {"backends/raftkv/store.go", []string{"leased/contract/lifecycle"}, nil},
		"the oracle shares code":    {"contract/memstore/store.go", []string{"leased/contract/lifecycle"}, []string{"contract/memstore/store.go:3: contract/memstore imports leased/contract/lifecycle: the oracle shares no code with the stores it is compared with"}},
		"the lifecycle has a store": {"contract/lifecycle/handle.go", []string{"leased/backends/raftkv"}, []string{"contract/lifecycle/handle.go:3: contract/lifecycle imports leased/backends/raftkv: what a store needs to end well knows no store"}},
		"a backend knows another":   {"backends/etcd/store.go", []string{"leased/backends/valkey"}, []string{"backends/etcd/store.go:3: backends/etcd imports leased/backends/valkey: " + backendWhy}},
		"its tests know another":    {"backends/etcd/store_test.go", []string{"leased/backends/valkey"}, []string{"backends/etcd/store_test.go:3: backends/etcd imports leased/backends/valkey: " + backendWhy}},
		"a backend knows gateway":   {"backends/etcd/store.go", []string{"leased/gateway/api"}, []string{"backends/etcd/store.go:3: backends/etcd imports leased/gateway/api: " + backendWhy}},
		"a backend knows cluster":   {"backends/valkey/store.go", []string{"leased/cluster"}, []string{"backends/valkey/store.go:3: backends/valkey imports leased/cluster: " + backendWhy}},
		"a backend ships the suite": {"backends/etcd/store.go", []string{"leased/contract/contracttest"}, []string{"backends/etcd/store.go:3: backends/etcd imports leased/contract/contracttest: only tests may import it"}},
		"a backend has two vendors": {"backends/etcd/store.go", []string{"go.etcd.io/etcd/client/v3", "github.com/valkey-io/valkey-go"}, []string{"backends/etcd: uses etcd and valkey: " + backendWhy}},
		"a backend uses gin":        {"backends/etcd/store.go", []string{"github.com/gin-gonic/gin"}, []string{"backends/etcd/store.go:3: backends/etcd imports github.com/gin-gonic/gin: " + ginWhy}},
		"raftkv and raft":           {"backends/raftkv/fsm.go", []string{"leased/contract", "github.com/hashicorp/raft"}, nil},
		"raftkv's tests run a node": {"backends/raftkv/store_test.go", []string{"leased/cluster", "leased/cluster/clustertest"}, nil},
		"raftkv knows cluster":      {"backends/raftkv/store.go", []string{"leased/cluster"}, []string{"backends/raftkv/store.go:3: backends/raftkv imports leased/cluster: " + raftkvWhy}},
		"cluster and raft":          {"cluster/node.go", []string{"leased/contract", "github.com/hashicorp/raft-wal"}, nil},
		"cluster knows raftkv":      {"cluster/node.go", []string{"leased/backends/raftkv"}, []string{"cluster/node.go:3: cluster imports leased/backends/raftkv: " + clusterWhy}},
		"cluster's tests too":       {"cluster/node_test.go", []string{"leased/backends/raftkv"}, []string{"cluster/node_test.go:3: cluster imports leased/backends/raftkv: " + clusterWhy}},
		"cluster knows the gateway": {"cluster/forward.go", []string{"leased/gateway"}, []string{"cluster/forward.go:3: cluster imports leased/gateway: " + clusterWhy}},
		"the routes use gin":        {"gateway/routes_leases.go", []string{"leased/contract", "leased/gateway/api", "github.com/gin-gonic/gin"}, nil},
		"the service uses gin":      {"gateway/service.go", []string{"github.com/gin-gonic/gin"}, []string{"gateway/service.go:3: gateway imports github.com/gin-gonic/gin: " + ginFilesWhy}},
		"the API uses gin":          {"gateway/api/lease.go", []string{"github.com/gin-gonic/gin"}, []string{"gateway/api/lease.go:3: gateway/api imports github.com/gin-gonic/gin: " + ginWhy}},
		"the gateway knows a store": {"gateway/router.go", []string{"leased/backends/raftkv"}, []string{"gateway/router.go:3: gateway imports leased/backends/raftkv: " + gatewayWhy}},
		"the gateway knows cluster": {"gateway/routes_cluster.go", []string{"leased/cluster"}, []string{"gateway/routes_cluster.go:3: gateway imports leased/cluster: " + gatewayWhy}},
		"the gateway uses raft":     {"gateway/router.go", []string{"github.com/hashicorp/raft"}, []string{"gateway/router.go:3: gateway imports github.com/hashicorp/raft: " + gatewayWhy}},
		"the gateway's tests may":   {"gateway/service_test.go", []string{"leased/contract/memstore"}, nil},
		"the gateway ships memory":  {"gateway/router.go", []string{"leased/contract/memstore"}, []string{"gateway/router.go:3: gateway imports leased/contract/memstore: only tests may import it"}},
		"the SDK and its types":     {"client/client.go", []string{"leased/gateway/api", "leased/contract", "leased/client/guard"}, nil},
		"the SDK knows the gateway": {"client/client.go", []string{"leased/gateway"}, []string{"client/client.go:3: client imports leased/gateway: " + clientWhy}},
		"a guard knows the gateway": {"client/guard/sql.go", []string{"leased/gateway"}, []string{"client/guard/sql.go:3: client/guard imports leased/gateway: " + clientWhy}},
		"the SDK's tests may":       {"client/client_test.go", []string{"leased/gateway", "leased/contract/memstore"}, nil},
		"the SDK knows raft":        {"client/client.go", []string{"github.com/hashicorp/raft"}, []string{"client/client.go:3: client imports github.com/hashicorp/raft: " + clientWhy}},
		"the command wires all":     {"cmd/leased/app.go", []string{"leased/backends/raftkv", "leased/cluster", "leased/gateway", "leased/contract/contracttest"}, nil},
		"the command uses gin":      {"cmd/leased/app.go", []string{"github.com/gin-gonic/gin"}, []string{"cmd/leased/app.go:3: cmd/leased imports github.com/gin-gonic/gin: " + ginWhy}},
		"the command ships memory":  {"cmd/leased/backend.go", []string{"leased/contract/memstore"}, []string{"cmd/leased/backend.go:3: cmd/leased imports leased/contract/memstore: only tests may import it"}},
		"a test of the whole":       {"test/e2e/http.go", []string{"leased/client", "leased/contract/memstore", "github.com/gin-gonic/gin"}, nil},
		"a folder without a row":    {"internal/queue/queue.go", nil, []string{"internal/queue: no row says what this folder may import; add one to test/arch/arrows_test.go and its arrow to ARCHITECTURE.md"}},
		"another platform's file":   {"client/client_windows.go", []string{"leased/gateway"}, []string{"client/client_windows.go:3: client imports leased/gateway: " + clientWhy}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			tr := files{test.file: importing("x", test.imports...)}.tree(t)
			got := lines(checkArrows(tr))
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("checkArrows (-want +got):\n%s", diff)
			}
		})
	}
}

// TestBarriers_broken shows what no single import gives away.
func TestBarriers_broken(t *testing.T) {
	tests := map[string]struct {
		graph importGraph
		want  []string
	}{
		"nothing": {importGraph{
			"leased/client":      {"leased/gateway/api", "net/http"},
			"leased/gateway/api": {"leased/contract"},
			"leased/gateway":     {"leased/gateway/api", "github.com/gin-gonic/gin"},
			"leased/cmd/leased":  {"leased/gateway", "leased/contract/contracttest"},
		}, nil},
		"the SDK gets gin through a library": {importGraph{
			"leased/client":      {"leased/gateway/api"},
			"leased/gateway/api": {"example.com/problem"},
			"example.com/problem": {"github.com/gin-gonic/gin/binding",
				"net/http"},
		}, []string{
			"client: reaches leased/client -> leased/gateway/api -> example.com/problem -> github.com/gin-gonic/gin/binding: the SDK's users would get it too",
			"gateway/api: reaches leased/gateway/api -> example.com/problem -> github.com/gin-gonic/gin/binding: the SDK's users would get it too",
		}},
		"the product ships the oracle through the suite": {importGraph{
			"leased/cmd/leased":            {"leased/contract/contracttest"},
			"leased/contract/contracttest": {"leased/contract/memstore"},
		}, []string{
			"cmd/leased: reaches leased/cmd/leased -> leased/contract/contracttest -> leased/contract/memstore: it would ship in the product",
		}},
		"the gateway gets raft through a helper": {importGraph{
			"leased/gateway":     {"example.com/lib"},
			"example.com/lib":    {"go.etcd.io/bbolt"},
			"leased/gateway/api": nil,
		}, []string{
			"gateway: reaches leased/gateway -> example.com/lib -> go.etcd.io/bbolt: the gateway serves any store",
		}},
		"contract gets etcd": {importGraph{
			"leased/contract":    {"golang.org/x/net/x"},
			"golang.org/x/net/x": {"go.etcd.io/etcd/client/v3"},
		}, []string{
			"contract: reaches leased/contract -> golang.org/x/net/x -> go.etcd.io/etcd/client/v3: whoever imports contract would get it too",
		}},
		"a store gets gin": {importGraph{
			"leased/backends/etcd": {"example.com/lib"},
			"example.com/lib":      {"github.com/gin-contrib/sse"},
		}, []string{
			"backends/etcd: reaches leased/backends/etcd -> example.com/lib -> github.com/gin-contrib/sse: a store is behind the gateway",
		}},
		"cluster reaches raftkv": {importGraph{
			"leased/cluster": {"leased/contract"}, "leased/contract": {"leased/backends/raftkv"},
		}, []string{
			"contract: reaches leased/contract -> leased/backends/raftkv: whoever imports contract would get it too",
			"cluster: reaches leased/cluster -> leased/contract -> leased/backends/raftkv: cluster runs any raft.FSM",
		}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, lines(checkBarriers(test.graph))); diff != "" {
				t.Errorf("checkBarriers (-want +got):\n%s", diff)
			}
		})
	}
}

// TestDependencies shows that the graph is the real one: a chain that exists is
// found, through a package that is not ours.
func TestDependencies(t *testing.T) {
	root, tr := repository(t)
	graph, err := dependencies(t.Context(), root, tr)
	if err != nil {
		t.Fatal(err)
	}
	way := graph.chain("leased/contract", func(p string) bool { return p == "golang.org/x/text/transform" })
	if len(way) < 3 {
		t.Errorf("chain from leased/contract to golang.org/x/text/transform = %v, want one through another package", way)
	}
}
