package gateway

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"

	"leased/contract"
	"leased/gateway/api"
)

var update = flag.Bool("update", false, "write the golden files anew")

const (
	leasesPath  = "/v1/namespaces/{namespace}/leases"
	leasePath   = leasesPath + "/{lease_id}"
	keyPath     = "/v1/namespaces/{namespace}/keys/{key_id}"
	otherTenant = `{"key":{"tenant":"globex","target":{"type":"ip","id":"::ffff:192.0.2.1"},"actor":"scanner"},"instance":"w-1"}`
)

// goldens is a rig whose replies are compared with files, and with openapi.yaml.
type goldens struct {
	*rig
	t       *testing.T
	compare func(method, path string, a answer)
}

// reply compares one reply. path is the one of openapi.yaml.
func (g *goldens) reply(name, method, path string, a answer) {
	g.t.Helper()
	g.compare(method, path, a)
	body := jsontext.Value(a.body)
	if err := body.Indent(); err != nil {
		g.t.Fatal(err)
	}
	// Ids that the gateway makes by chance differ from run to run.
	made := regexp.MustCompile(`"request_id": "[A-Z2-7]{26}"`)
	text := made.ReplaceAllString(string(body), `"request_id": "MADE"`)
	got := fmt.Sprintf("%d %s\n%s\n", a.status, a.header.Get("Content-Type"), text)
	file := filepath.Join("testdata", "golden", name+".txt")
	if *update {
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			g.t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			g.t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		g.t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		g.t.Errorf("%s (-want +got):\n%s", name, diff)
	}
}

func newGoldens(t *testing.T, change ...func(*Options)) *goldens {
	t.Helper()
	doc := loadOpenAPI(t)
	return &goldens{rig: newRig(t, change...), t: t, compare: func(method, path string, a answer) {
		t.Helper()
		checkAgainstOpenAPI(t, doc, method, path, a)
	}}
}

// TestGolden_lease tells the life of one lease, reply by reply.
func TestGolden_lease(t *testing.T) {
	g := newGoldens(t)
	id := func(s string) []string { return []string{api.HeaderIdempotencyKey, s} }
	a := g.post(t, "/leases", acquireBody, id("r-1")...)
	g.reply("acquired", http.MethodPost, leasesPath, a)
	l := read[api.LeaseReply](t, a, http.StatusCreated).Lease
	lease := "/leases/" + l.LeaseID
	held := fmt.Sprintf(`{"token":%d,"instance":"worker-7"}`, l.Token)

	g.backend.Advance(10 * time.Second)
	g.reply("acquired_replayed", http.MethodPost, leasesPath, g.post(t, "/leases", acquireBody, id("r-1")...))
	g.reply("conflict", http.MethodPost, leasesPath, g.post(t, "/leases", acquireBody, id("r-2")...))
	reused := `{"key":{"tenant":"acme","program":"recon","target":{"type":"domain","id":"example.com"},"actor":"crawler","operation":"scan"},"instance":"other"}`
	g.reply("request_id_reused", http.MethodPost, leasesPath, g.post(t, "/leases", reused, id("r-1")...))
	g.reply("renewed", http.MethodPost, leasePath+"/renew", g.post(t, lease+"/renew", held, id("r-3")...))
	g.reply("inspected", http.MethodGet, leasePath, g.get(t, lease))
	g.reply("key_held", http.MethodGet, keyPath, g.get(t, "/keys/"+l.KeyID))
	g.reply("check_current", http.MethodPost, inNamespace("/check"), g.post(t, "/check", fmt.Sprintf(`{"key_id":%q,"token":%d}`, l.KeyID, l.Token)))
	g.reply("check_stale", http.MethodPost, inNamespace("/check"), g.post(t, "/check", fmt.Sprintf(`{"key_id":%q,"token":%d}`, l.KeyID, l.Token+1)))
	g.reply("list", http.MethodGet, leasesPath, g.get(t, "/leases?tenant=acme"))
	g.reply("list_empty", http.MethodGet, leasesPath, g.get(t, "/leases?tenant=nobody"))
	g.reply("not_owner", http.MethodPost, leasePath+"/renew",
		g.post(t, lease+"/renew", fmt.Sprintf(`{"token":%d,"instance":"worker-8"}`, l.Token), id("r-4")...))
	g.reply("stale_token", http.MethodPost, leasePath+"/release",
		g.post(t, lease+"/release", fmt.Sprintf(`{"token":%d,"instance":"worker-7"}`, l.Token+1), id("r-5")...))
	g.reply("released", http.MethodPost, leasePath+"/release", g.post(t, lease+"/release", held, id("r-6")...))
	g.reply("renew_after_release", http.MethodPost, leasePath+"/renew", g.post(t, lease+"/renew", held, id("r-7")...))
	g.reply("acquire_replayed_over", http.MethodPost, leasesPath, g.post(t, "/leases", acquireBody, id("r-1")...))
	g.reply("key_free", http.MethodGet, keyPath, g.get(t, "/keys/"+l.KeyID))
	g.reply("history", http.MethodGet, keyPath+"/history", g.get(t, "/keys/"+l.KeyID+"/history"))
	g.reply("history_page", http.MethodGet, keyPath+"/history", g.get(t, "/keys/"+l.KeyID+"/history?limit=1"))
}

func inNamespace(rest string) string { return "/v1/namespaces/{namespace}" + rest }

// TestGolden_ends shows a lease that expires, one that is revoked, and a bulk
// renewal of three.
func TestGolden_ends(t *testing.T) {
	g := newGoldens(t)
	first := g.acquired(t, "r-1")
	g.backend.Advance(31 * time.Second)
	g.reply("expired", http.MethodPost, leasePath+"/release",
		g.post(t, "/leases/"+first.LeaseID+"/release", fmt.Sprintf(`{"token":%d,"instance":"worker-7"}`, first.Token), api.HeaderIdempotencyKey, "r-2"))

	second := g.acquired(t, "r-3")
	other := read[api.LeaseReply](t, g.post(t, "/leases", otherTenant, api.HeaderIdempotencyKey, "r-4"), http.StatusCreated).Lease
	bulk := fmt.Sprintf(`{"instance":"w-1","leases":[{"lease_id":%q,"token":%d},{"lease_id":%q,"token":%d}]}`,
		other.LeaseID, other.Token, second.LeaseID, second.Token)
	g.reply("renew_bulk", http.MethodPost, inNamespace("/renew"), g.post(t, "/renew", bulk, api.HeaderIdempotencyKey, "r-5"))

	revoke := "/leases/" + second.LeaseID + "/revoke"
	g.reply("revoked", http.MethodPost, leasePath+"/revoke",
		g.post(t, revoke, `{"reason":"the host is gone","mode":"force_release"}`, api.HeaderIdempotencyKey, "r-6"))
	g.reply("revoke_again", http.MethodPost, leasePath+"/revoke",
		g.post(t, revoke, `{"reason":"the host is gone"}`, api.HeaderIdempotencyKey, "r-7"))
	g.reply("not_found", http.MethodGet, leasePath,
		g.get(t, "/leases/"+contract.NewLeaseID(contract.KeyID{1}, [16]byte{2}).String()))
	g.reply("resolved", http.MethodPost, inNamespace("/resolve"),
		g.post(t, "/resolve", `{"key":{"tenant":"acme","target":{"type":"url","id":"HTTPS://Example.com:443/a/../b?q=%7e"},"actor":"a/b"}}`))
}

func TestGolden_system(t *testing.T) {
	g := newGoldens(t, func(o *Options) {
		o.Namespaces[0].Policy.Quotas.LeasesPerOwner = 1
		second := o.Namespaces[0]
		second.Name = "jobs"
		o.Namespaces = append(o.Namespaces, second)
	})
	get := func(path string) answer { return g.call(t, http.MethodGet, path, "") }
	g.acquired(t, "r-1")
	g.reply("quota_exceeded", http.MethodPost, leasesPath, g.post(t, "/leases", otherTenant, api.HeaderIdempotencyKey, "r-2"))
	g.reply("namespaces", http.MethodGet, "/v1/namespaces", get("/v1/namespaces"))
	g.reply("namespace", http.MethodGet, "/v1/namespaces/{namespace}", get("/v1/namespaces/default"))
	g.reply("unknown_namespace", http.MethodGet, "/v1/namespaces/{namespace}", get("/v1/namespaces/nope"))
	g.reply("healthz", http.MethodGet, "/healthz", get("/healthz"))
	g.reply("readyz", http.MethodGet, "/readyz", get("/readyz"))
	g.reply("invalid", http.MethodPost, leasesPath,
		g.post(t, "/leases", `{"key":{"tenant":"acme","target":{"type":"ip","id":"1.2.3"},"actor":"a"},"instance":"w"}`, api.HeaderIdempotencyKey, "r-3"))

	g.store.renew = func(context.Context, *contract.RenewRequest) (contract.Result, error) {
		return contract.Result{}, &contract.Error{
			Code: contract.CodeUnavailable, Detail: "no leader", RetryAfter: 1500 * time.Millisecond, Err: fmt.Errorf("dial 192.0.2.7:8471"),
		}
	}
	lease := "/leases/" + contract.NewLeaseID(contract.KeyID{1}, [16]byte{2}).String()
	a := g.post(t, lease+"/renew", `{"token":7,"instance":"w"}`, api.HeaderIdempotencyKey, "r-4")
	g.reply("unavailable", http.MethodPost, leasePath+"/renew", a)
	if got := a.header.Get("Retry-After"); got != "2" {
		t.Errorf("got Retry-After %q, want 2: 1,500 ms rounded up", got)
	}

	g.store.health = func(context.Context, *contract.HealthRequest) (contract.Health, error) {
		return contract.Health{Detail: "no leader"}, nil
	}
	g.reply("readyz_unavailable", http.MethodGet, "/readyz", get("/readyz"))
	g.Drain()
	g.reply("readyz_draining", http.MethodGet, "/readyz", get("/readyz"))
	g.reply("closed", http.MethodPost, leasesPath, g.post(t, "/leases", acquireBody, api.HeaderIdempotencyKey, "r-5"))
	g.reply("namespace_draining", http.MethodGet, "/v1/namespaces/{namespace}", get("/v1/namespaces/default"))
}
