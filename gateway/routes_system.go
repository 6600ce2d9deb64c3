package gateway

import (
	"net/http"

	"leased/gateway/api"
)

func (h *handler) listNamespaces(x *exchange) error {
	ctx, cancel := h.service.bound(x.r.Context(), &x.call, 0)
	defer cancel()
	all, err := h.service.namespaces(ctx, h.service.router.sorted)
	if err != nil {
		return err
	}
	return x.reply(&api.NamespacesReply{Namespaces: all})
}

func (h *handler) getNamespace(x *exchange) error {
	ns, ok := h.service.router.byName[x.param("namespace")]
	if !ok {
		return errUnknownNamespace()
	}
	ctx, cancel := h.service.bound(x.r.Context(), &x.call, 0)
	defer cancel()
	one, err := h.service.namespaces(ctx, []*namespace{ns})
	if err != nil {
		return err
	}
	return x.reply(&one[0])
}

// healthz tells that the process is alive. It asks nobody: a dead store is no
// reason to have the gateway restarted.
func (h *handler) healthz(x *exchange) error {
	return x.reply(&api.HealthzReply{Status: "ok", Version: h.version})
}

// readyz tells whether every namespace can be served, by their real paths.
func (h *handler) readyz(x *exchange) error {
	ready := h.service.readiness(x.r.Context())
	if ready.Ready {
		return x.reply(&ready)
	}
	code, detail := api.CodeUnavailable, "a namespace cannot be served"
	if h.service.drainer.isDraining() {
		code, detail = api.CodeClosed, "the gateway is shutting down"
	}
	x.outcome = string(code)
	return x.write(code.Status(), h.problem, x.encode(&api.NotReady{
		Problem: *api.NewProblem(code, x.call.RequestID, detail), Readiness: ready,
	}))
}

func (h *handler) showMetrics(x *exchange) error {
	x.limitWrite()
	h.metrics.ServeHTTP(x.c.Writer, x.r)
	return nil
}

func (h *handler) showOpenAPI(x *exchange) error {
	x.send(http.StatusOK, h.json, h.openapi)
	return nil
}
