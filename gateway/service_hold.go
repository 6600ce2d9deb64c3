package gateway

import (
	"context"
	"fmt"

	"leased/contract"
	"leased/gateway/api"
)

// Renew renews one lease. Without a TTL the lease keeps the one it was granted
// last.
func (s *Service) Renew(ctx context.Context, c *Call, leaseID string, in *api.RenewRequest) (contract.Result, error) {
	id, instance, err := c.held(leaseID, in.Instance, in.Token)
	r := contract.RenewRequest{
		Namespace: c.ns.Name, RequestID: c.RequestID, Owner: c.Principal.Name, Instance: instance,
		LeaseID: id, Token: contract.Token(in.Token), TraceID: c.TraceID, Retention: c.ns.retention,
	}
	if err == nil {
		r.TTL, err = c.ns.Policy.ttl(in.TTLMS, 0)
	}
	if err == nil {
		err = s.authorize(c, own(c.ns.Name))
	}
	var res contract.Result
	if err == nil {
		ctx, cancel := s.bound(ctx, c, 0)
		res, err = c.ns.Store.Renew(ctx, &r)
		cancel()
	}
	s.finish(c, &subject{keyID: id.KeyID(), leaseID: id, token: r.Token, instance: instance}, &res, err)
	s.hide(c, &res)
	return res, err
}

// Release releases one lease.
func (s *Service) Release(ctx context.Context, c *Call, leaseID string, in *api.ReleaseRequest) (contract.Result, error) {
	id, instance, err := c.held(leaseID, in.Instance, in.Token)
	r := contract.ReleaseRequest{
		Namespace: c.ns.Name, RequestID: c.RequestID, Owner: c.Principal.Name, Instance: instance,
		LeaseID: id, Token: contract.Token(in.Token), TraceID: c.TraceID, Retention: c.ns.retention,
	}
	if err == nil {
		err = s.authorize(c, own(c.ns.Name))
	}
	var res contract.Result
	if err == nil {
		ctx, cancel := s.bound(ctx, c, 0)
		res, err = c.ns.Store.Release(ctx, &r)
		cancel()
	}
	s.finish(c, &subject{keyID: id.KeyID(), leaseID: id, token: r.Token, instance: instance}, &res, err)
	s.hide(c, &res)
	return res, err
}

// held checks what a holder presents. That it holds the lease is the store's to
// decide, in the same step as the change.
func (c *Call) held(leaseID, instance string, token uint64) (contract.LeaseID, string, error) {
	id, err := parseLeaseID("lease_id", leaseID)
	if err != nil {
		return id, "", err
	}
	if err := contract.ValidateToken("token", contract.Token(token)); err != nil {
		return id, "", err
	}
	instance, err = contract.NormalizeText("instance", instance, contract.MaxText, true)
	return id, instance, err
}

// parseLeaseID names the field itself: a bulk has many.
func parseLeaseID(field, s string) (contract.LeaseID, error) {
	if s == "" {
		return contract.LeaseID{}, contract.Invalid(field, "is required")
	}
	id, err := contract.ParseLeaseID(s)
	if err != nil || id.IsZero() {
		return contract.LeaseID{}, contract.Invalid(field, "is not a lease id of 43 base64url characters")
	}
	return id, nil
}

// Revoke ends a lease whoever holds it.
func (s *Service) Revoke(ctx context.Context, c *Call, leaseID string, in *api.RevokeRequest) (contract.Result, error) {
	id, err := parseLeaseID("lease_id", leaseID)
	r := contract.RevokeRequest{
		Namespace: c.ns.Name, RequestID: c.RequestID, Principal: c.Principal.Name,
		LeaseID: id, TraceID: c.TraceID, Retention: c.ns.retention,
	}
	if err == nil {
		r.Mode, err = revokeMode(in.Mode)
	}
	if err == nil {
		r.Reason, err = contract.NormalizeText("reason", in.Reason, contract.MaxReason, true)
	}
	var res contract.Result
	if err == nil {
		res, err = s.revoke(ctx, c, &r)
	}
	s.finish(c, &subject{keyID: id.KeyID(), leaseID: id, reason: r.Reason, mode: r.Mode}, &res, err)
	s.hide(c, &res)
	return res, err
}

func (s *Service) revoke(ctx context.Context, c *Call, r *contract.RevokeRequest) (contract.Result, error) {
	ctx, cancel := s.bound(ctx, c, 0)
	defer cancel()
	found, err := s.authorizeID(ctx, c, VerbRevoke, r.LeaseID.KeyID())
	switch {
	case err != nil:
		return contract.Result{}, err
	case !found:
		return contract.Result{Outcome: contract.OutcomeNotFound}, nil
	}
	return c.ns.Store.Revoke(ctx, r)
}

func revokeMode(name string) (contract.RevokeMode, error) {
	switch name {
	case "", api.ModeRevoke:
		return contract.RevokeRight, nil
	case api.ModeForceRelease:
		return contract.RevokeForceRelease, nil
	}
	return 0, contract.Invalid("mode", "must be %s or %s", api.ModeRevoke, api.ModeForceRelease)
}

// RenewBulk renews many leases. Each has its own answer, its own audit event and
// its own count.
func (s *Service) RenewBulk(ctx context.Context, c *Call, in *api.RenewBulkRequest) (contract.RenewBulkResult, error) {
	r, err := c.renewBulkRequest(in)
	if err == nil {
		err = s.authorize(c, own(c.ns.Name))
	}
	var bulk contract.RenewBulkResult
	if err == nil {
		ctx, cancel := s.bound(ctx, c, 0)
		bulk, err = c.ns.Store.RenewBulk(ctx, r)
		cancel()
	}
	if err == nil && len(bulk.Items) != len(r.Leases) {
		err = fmt.Errorf("gateway: the store answered %d of %d leases", len(bulk.Items), len(r.Leases))
	}
	whole := contract.Result{Outcome: contract.OutcomeRenewed}
	s.finish(c, &subject{instance: r.Instance}, &whole, err)
	if err != nil {
		return contract.RenewBulkResult{}, err
	}
	for i := range bulk.Items {
		item := &bulk.Items[i]
		v := verdictOf(item.Outcome, item.Err)
		c.ns.metrics.count(opRenew, v, item.Replayed, -1)
		s.record(c, opRenew, v, &subject{
			keyID: r.Leases[i].LeaseID.KeyID(), leaseID: r.Leases[i].LeaseID, token: r.Leases[i].Token, instance: r.Instance,
		}, &item.Result, s.now().Sub(c.start))
		s.hide(c, &item.Result)
	}
	return bulk, nil
}

func (c *Call) renewBulkRequest(in *api.RenewBulkRequest) (*contract.RenewBulkRequest, error) {
	r := &contract.RenewBulkRequest{
		Namespace: c.ns.Name, RequestID: c.RequestID, Owner: c.Principal.Name,
		TraceID: c.TraceID, Retention: c.ns.retention,
	}
	var err error
	if r.Instance, err = contract.NormalizeText("instance", in.Instance, contract.MaxText, true); err != nil {
		return r, err
	}
	if len(in.Leases) > contract.MaxBulk {
		return r, contract.Invalid("leases", "names %d leases; at most %d are renewed at once", len(in.Leases), contract.MaxBulk)
	}
	r.Leases = make([]contract.RenewItem, len(in.Leases))
	for i, l := range in.Leases {
		id, err := parseLeaseID("lease_id", l.LeaseID)
		if err != nil {
			_, err = parseLeaseID(fmt.Sprintf("leases[%d].lease_id", i), l.LeaseID) // a name is made for no other
			return r, err
		}
		r.Leases[i] = contract.RenewItem{LeaseID: id, Token: contract.Token(l.Token)}
	}
	err = r.Validate()
	return r, err
}
