package gateway

import (
	"context"

	"leased/contract"
	"leased/gateway/api"
)

// namespaces describes the given namespaces, with their health now. A store that
// had less time than it may take, because the caller's was over, is not to blame: that
// is an error.
func (s *Service) namespaces(ctx context.Context, of []*namespace) ([]api.Namespace, error) {
	draining := s.drainer.isDraining()
	health := healthOf(ctx, of, 0)
	if ctx.Err() != nil {
		return nil, contract.Errorf(contract.CodeTimeout, ctx.Err(), "the deadline passed before all stores had told of their health")
	}
	all := make([]api.Namespace, len(of))
	for i, ns := range of {
		all[i] = ns.describe(&health[i], draining)
	}
	return all, nil
}

func (n *namespace) describe(h *contract.Health, draining bool) api.Namespace {
	state := api.StateServing
	switch {
	case draining:
		state = api.StateDraining
	case !h.Ready:
		state = api.StateUnavailable
	}
	p := &n.Policy
	return api.Namespace{
		Namespace: n.Name, Backend: n.Backend, Active: n.Backend, Generation: 1, State: state,
		Limits: api.Limits{
			TTLMS: api.Bounds{
				Min: p.TTL.Min.Milliseconds(), Default: p.TTL.Default.Milliseconds(), Max: p.TTL.Max.Milliseconds(),
			},
			MaxLifetimeMS: p.MaxLifetime.Milliseconds(),
			MaxWaitMS:     p.MaxWait.Milliseconds(),
			History:       api.History{KeepMS: n.retention.History.Milliseconds(), PerKey: n.retention.HistoryPerKey},
			Idempotency:   api.Idempotency{KeepMS: n.retention.Idempotency.Milliseconds()},
			Quotas:        api.Quotas(p.Quotas),
		},
		Guarantees: api.NewGuarantees(&h.Guarantees),
		Health:     api.NewHealth(h),
	}
}

// readiness tells whether every namespace can be served.
func (s *Service) readiness(ctx context.Context) api.Readiness {
	r := api.Readiness{Ready: !s.drainer.isDraining()}
	if s.audit != nil {
		r.AuditDropped = s.audit.Dropped()
	}
	for i, h := range healthOf(ctx, s.router.sorted, 0) {
		r.Ready = r.Ready && h.Ready
		r.Namespaces = append(r.Namespaces, api.ReadyNamespace{
			Namespace: s.router.sorted[i].Name, Ready: h.Ready, Detail: h.Detail,
		})
	}
	return r
}
