package gateway

import (
	"context"

	"leased/contract"
	"leased/gateway/api"
)

// Get returns one lease, active or ended.
func (s *Service) Get(ctx context.Context, c *Call, leaseID string) (contract.Result, error) {
	id, err := parseLeaseID("lease_id", leaseID)
	var res contract.Result
	if err == nil {
		res, err = s.get(ctx, c, id)
	}
	s.finish(c, &subject{keyID: id.KeyID(), leaseID: id}, &res, err)
	return res, err
}

func (s *Service) get(ctx context.Context, c *Call, id contract.LeaseID) (contract.Result, error) {
	ctx, cancel := s.bound(ctx, c, 0)
	defer cancel()
	found, err := s.authorizeID(ctx, c, VerbInspect, id.KeyID())
	switch {
	case err != nil:
		return contract.Result{}, err
	case !found:
		return contract.Result{Outcome: contract.OutcomeNotFound}, nil
	}
	return c.ns.Store.Get(ctx, &contract.GetRequest{Namespace: c.ns.Name, LeaseID: id})
}

// GetKey returns what is known of a key.
func (s *Service) GetKey(ctx context.Context, c *Call, keyID string) (contract.KeyResult, error) {
	id, err := parseKeyID(keyID)
	var res contract.KeyResult
	if err == nil {
		res, err = s.getKey(ctx, c, id)
	}
	s.finish(c, &subject{keyID: id}, &contract.Result{Outcome: res.Outcome}, err)
	return res, err
}

func (s *Service) getKey(ctx context.Context, c *Call, id contract.KeyID) (contract.KeyResult, error) {
	ctx, cancel := s.bound(ctx, c, 0)
	defer cancel()
	found, err := s.authorizeID(ctx, c, VerbInspect, id)
	switch {
	case err != nil:
		return contract.KeyResult{}, err
	case !found:
		return contract.KeyResult{Outcome: contract.OutcomeNotFound}, nil
	}
	return c.ns.Store.GetKey(ctx, &contract.GetKeyRequest{Namespace: c.ns.Name, KeyID: id})
}

func parseKeyID(s string) (contract.KeyID, error) {
	id, err := contract.ParseKeyID(s)
	if err == nil && id.IsZero() {
		err = contract.Invalid("key_id", "is no key's id")
	}
	return id, err
}

// History returns a page of a key's events. A key of which nothing is known has
// none.
func (s *Service) History(ctx context.Context, c *Call, keyID string, limit int, cursor string) (contract.HistoryResult, error) {
	id, err := parseKeyID(keyID)
	var res contract.HistoryResult
	if err == nil {
		res, err = s.history(ctx, c, &contract.HistoryRequest{Namespace: c.ns.Name, KeyID: id, Limit: limit, Cursor: cursor})
	}
	s.finish(c, &subject{keyID: id}, &contract.Result{Outcome: contract.OutcomeFound}, err)
	return res, err
}

func (s *Service) history(ctx context.Context, c *Call, r *contract.HistoryRequest) (contract.HistoryResult, error) {
	ctx, cancel := s.bound(ctx, c, 0)
	defer cancel()
	if found, err := s.authorizeID(ctx, c, VerbHistory, r.KeyID); err != nil || !found {
		return contract.HistoryResult{}, err
	}
	return c.ns.Store.History(ctx, r)
}

// List returns a page of leases. The filters of r are as the caller sent them;
// the namespace is the call's.
func (s *Service) List(ctx context.Context, c *Call, r *contract.ListRequest) (contract.ListResult, error) {
	err := c.normalizeFilters(r)
	if err == nil {
		err = s.authorize(c, Action{Verb: VerbList, Namespace: c.ns.Name, Tenant: r.Tenant, Actor: r.Actor})
	}
	var res contract.ListResult
	if err == nil {
		ctx, cancel := s.bound(ctx, c, 0)
		res, err = c.ns.Store.List(ctx, r)
		cancel()
	}
	s.finish(c, &subject{instance: r.Instance}, &contract.Result{Outcome: contract.OutcomeFound}, err)
	return res, err
}

// normalizeFilters brings the filters into the form that leases are kept in: a
// filter in another spelling would silently match nothing.
func (c *Call) normalizeFilters(r *contract.ListRequest) error {
	r.Namespace = c.ns.Name
	for _, f := range [...]struct {
		field string
		text  *string
	}{
		{"owner", &r.Owner},
		{"instance", &r.Instance},
		{"tenant", &r.Tenant},
		{"program", &r.Program},
		{"actor", &r.Actor},
		{"job_id", &r.JobID},
	} {
		text, err := contract.NormalizeText(f.field, *f.text, contract.MaxText, false)
		if err != nil {
			return err
		}
		*f.text = text
	}
	if r.Target == (contract.Target{}) {
		return nil
	}
	target, err := contract.NormalizeTarget(r.Target)
	r.Target = target
	return err
}

// Check tells whether a token is the current one of a key.
func (s *Service) Check(ctx context.Context, c *Call, in *api.CheckRequest) (contract.Result, error) {
	var sub subject
	r, err := c.checkRequest(in, &sub)
	var res contract.Result
	if err == nil {
		res, err = s.check(ctx, c, &r, sub.key)
	}
	s.finish(c, &sub, &res, err)
	s.hide(c, &res)
	return res, err
}

func (s *Service) check(ctx context.Context, c *Call, r *contract.CheckRequest, key *contract.Key) (contract.Result, error) {
	ctx, cancel := s.bound(ctx, c, 0)
	defer cancel()
	if key != nil {
		if err := s.authorize(c, onKey(VerbCheck, c.ns.Name, key)); err != nil {
			return contract.Result{}, err
		}
		return c.ns.Store.Check(ctx, r)
	}
	found, err := s.authorizeID(ctx, c, VerbCheck, r.KeyID)
	switch {
	case err != nil:
		return contract.Result{}, err
	case !found:
		return contract.Result{Outcome: contract.OutcomeNotFound}, nil
	}
	return c.ns.Store.Check(ctx, r)
}

func (c *Call) checkRequest(in *api.CheckRequest, sub *subject) (contract.CheckRequest, error) {
	r := contract.CheckRequest{Namespace: c.ns.Name, Token: contract.Token(in.Token)}
	switch {
	case in.Key == nil && in.KeyID == "":
		return r, contract.Invalid("key", "is required, or key_id in its place")
	case in.Key != nil && in.KeyID != "":
		return r, contract.Invalid("key_id", "cannot stand beside key; send one of them")
	case in.Key != nil:
		key, err := requiredKey(in.Key)
		if err != nil {
			return r, err
		}
		sub.key, r.KeyID = &key, key.ID()
	default:
		id, err := parseKeyID(in.KeyID)
		if err != nil {
			return r, err
		}
		r.KeyID = id
	}
	sub.keyID, sub.token = r.KeyID, r.Token
	return r, contract.ValidateToken("token", r.Token)
}

// Resolve returns the canonical form of a key. It grants nothing and asks no
// store.
func (s *Service) Resolve(_ context.Context, c *Call, in *api.ResolveRequest) (contract.Key, error) {
	key, err := requiredKey(&in.Key)
	if err == nil {
		err = s.authorize(c, onKey(VerbAcquire, c.ns.Name, &key))
	}
	s.finish(c, &subject{key: &key}, &contract.Result{Outcome: contract.OutcomeFound}, err)
	return key, err
}
