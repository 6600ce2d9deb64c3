package gateway

import (
	"fmt"
	"net/http"
	"sync"

	"github.com/gin-gonic/gin"
	"github.com/go-json-experiment/json"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"leased/gateway/api"
)

// route is one method on one path. Everything that differs between routes but
// their work stands here, so that the rules around the work are written once.
type route struct {
	method, path string
	// op is opNone for a route that serves no namespace.
	op operation
	// public routes answer whoever asks.
	public bool
	// params are the query parameters it takes beside timeout.
	params []string
	handle func(*handler, *exchange) error

	metrics *routeMetrics
}

// changes tells whether the route changes something, and so takes an
// Idempotency-Key.
func (r *route) changes() bool {
	return r.op.changes() || r.op == opNone && !r.public && r.method != http.MethodGet
}

// takesTimeout tells whether ?timeout bounds the route: all of the versioned API.
func (r *route) takesTimeout() bool { return !r.public }

// handler is the HTTP side of a gateway.
type handler struct {
	service *Service
	version string
	metrics http.Handler
	openapi []byte
	decode  json.Options
	encode  json.Options
	buffers sync.Pool // *[]byte of a body, or *bytes.Buffer of a reply: see bind and respond
	replies sync.Pool
	// headers are those that most replies have. Their slices are shared by all
	// replies and never written to.
	json, problem, noStore, noSniff []string
}

const namespacePath = "/v1/namespaces/:namespace"

// routes lists every route. openapi.yaml has the same ones, and a test compares.
func routes() []route {
	return []route{
		{method: http.MethodPost, path: namespacePath + "/leases", op: opAcquire, handle: (*handler).acquire},
		{method: http.MethodGet, path: namespacePath + "/leases", op: opList, handle: (*handler).list, params: listParams()},
		{method: http.MethodGet, path: namespacePath + "/leases/:lease_id", op: opGet, handle: (*handler).get},
		{method: http.MethodPost, path: namespacePath + "/leases/:lease_id/renew", op: opRenew, handle: (*handler).renew},
		{method: http.MethodPost, path: namespacePath + "/leases/:lease_id/release", op: opRelease, handle: (*handler).release},
		{method: http.MethodPost, path: namespacePath + "/leases/:lease_id/revoke", op: opRevoke, handle: (*handler).revoke},
		{method: http.MethodPost, path: namespacePath + "/renew", op: opRenewBulk, handle: (*handler).renewBulk},
		{method: http.MethodGet, path: namespacePath + "/keys/:key_id", op: opGetKey, handle: (*handler).getKey},
		{method: http.MethodGet, path: namespacePath + "/keys/:key_id/history", op: opHistory, handle: (*handler).history, params: []string{"limit", "cursor"}},
		{method: http.MethodGet, path: namespacePath + "/events", op: opWatch, handle: (*handler).events, params: watchParams()},
		{method: http.MethodPost, path: namespacePath + "/resolve", op: opResolve, handle: (*handler).resolve},
		{method: http.MethodPost, path: namespacePath + "/check", op: opCheck, handle: (*handler).check},
		{method: http.MethodGet, path: "/v1/namespaces", handle: (*handler).listNamespaces},
		{method: http.MethodGet, path: namespacePath, handle: (*handler).getNamespace},
		{method: http.MethodGet, path: "/v1/cluster", handle: (*handler).showCluster},
		{method: http.MethodPost, path: "/v1/cluster/members", handle: (*handler).addMember},
		{method: http.MethodDelete, path: "/v1/cluster/members/:id", handle: (*handler).removeMember},
		{method: http.MethodPost, path: "/v1/cluster/transfer", handle: (*handler).transfer},
		{method: http.MethodGet, path: "/v1/cluster/backup", handle: (*handler).backup},
		{method: http.MethodPost, path: "/v1/cluster/restore", handle: (*handler).restore},
		{method: http.MethodGet, path: "/healthz", public: true, handle: (*handler).healthz},
		{method: http.MethodGet, path: "/readyz", public: true, handle: (*handler).readyz},
		{method: http.MethodGet, path: "/metrics", public: true, handle: (*handler).showMetrics},
		{method: http.MethodGet, path: "/openapi.json", public: true, handle: (*handler).showOpenAPI},
	}
}

func newHandler(s *Service, m *metrics, o *Options) (http.Handler, error) {
	spec, err := openapiJSON()
	if err != nil {
		return nil, err
	}
	h := &handler{
		service: s, version: o.Version, openapi: spec,
		metrics: promhttp.HandlerFor(o.Registry, promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError}),
		decode:  json.RejectUnknownMembers(true),
		encode:  json.Deterministic(true),
		json:    []string{api.MediaType}, problem: []string{api.ProblemMediaType},
		noStore: []string{"no-store"}, noSniff: []string{"nosniff"},
	}
	h.buffers.New = newBody
	h.replies.New = newReply
	return h.engine(m)
}

func (h *handler) engine(m *metrics) (*gin.Engine, error) {
	// gin's mode is a switch of the whole process, and in the default one it
	// prints every route on standard output. Setting it again changes nothing.
	gin.SetMode(gin.ReleaseMode)
	e := gin.New()
	e.HandleMethodNotAllowed = true
	e.RedirectTrailingSlash = false // a redirected POST loses its body at some clients
	// A name may hold an escaped slash. gin would unescape the values as if they
	// stood in a query, "+" for a space included; exchange.param does it.
	e.UseRawPath = true
	e.UnescapePathValues = false
	if err := e.SetTrustedProxies(nil); err != nil { // else anybody's X-Forwarded-For is believed
		return nil, fmt.Errorf("gateway: %w", err)
	}
	for _, r := range routes() {
		r.metrics = m.route(r.method, r.path)
		e.Handle(r.method, r.path, func(c *gin.Context) { h.serve(c, &r) })
	}
	noRoute := route{public: true, handle: (*handler).noRoute, metrics: m.route("other", unknownRoute)}
	e.NoRoute(func(c *gin.Context) { h.serve(c, &noRoute) })
	noMethod := route{public: true, handle: (*handler).noMethod, metrics: m.route("other", unknownRoute)}
	e.NoMethod(func(c *gin.Context) { h.serve(c, &noMethod) })
	return e, nil
}

const unknownRoute = "unknown"

func (h *handler) noRoute(*exchange) error {
	return refuse(api.CodeNotFound, "no route has this path; GET /openapi.json lists them")
}

func (h *handler) noMethod(x *exchange) error {
	return refuse(api.CodeMethodNotAllowed, "this path takes "+x.c.Writer.Header().Get("Allow"))
}
