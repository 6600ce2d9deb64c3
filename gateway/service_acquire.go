package gateway

import (
	"context"
	"crypto/rand"
	"errors"
	"time"

	"leased/contract"
	"leased/gateway/api"
)

// undoTimeout bounds the release of a grant that must not stand. It has a
// context of its own: the request's may have ended.
const undoTimeout = 5 * time.Second

// Acquire acquires a key, waiting for it as long as the request says.
func (s *Service) Acquire(ctx context.Context, c *Call, in *api.AcquireRequest) (contract.Result, error) {
	r, err := c.acquireRequest(in)
	sub := subject{key: &r.Key, instance: r.Instance}
	if err == nil {
		c.TraceID = r.TraceID
		err = s.authorize(c, onKey(VerbAcquire, c.ns.Name, &r.Key))
	}
	var res contract.Result
	if err == nil {
		res, err = s.acquire(ctx, c, r)
	}
	s.finish(c, &sub, &res, err)
	s.hide(c, &res)
	return res, err
}

func (s *Service) acquire(ctx context.Context, c *Call, r *contract.AcquireRequest) (contract.Result, error) {
	ctx, cancel := s.bound(ctx, c, r.Wait)
	defer cancel()
	if r.Wait == 0 {
		return c.ns.Store.Acquire(ctx, r)
	}
	waiting, interrupt := context.WithCancelCause(ctx)
	defer interrupt(nil)
	if !s.drainer.park(&interrupt) {
		return contract.Result{}, errClosed()
	}
	defer s.drainer.leave(&interrupt)
	res, err := c.ns.Store.Acquire(waiting, r)
	switch {
	case err == nil && res.Outcome == contract.OutcomeAcquired:
		return s.confirm(ctx, c, res)
	case errors.Is(context.Cause(waiting), errDraining) && interrupted(res, err):
		return contract.Result{}, errClosed()
	}
	return res, err
}

// interrupted reports whether the answer to a call that was cut short says that
// nothing was applied. A grant, a lease that is over and a doubt are told as
// they are.
func interrupted(res contract.Result, err error) bool {
	switch contract.CodeOf(err) {
	case contract.CodeUnavailable, contract.CodeTimeout, contract.CodeClosed:
		return true
	case 0:
	default:
		return false
	}
	return res.Outcome == contract.OutcomeConflict
}

// confirm asks again, after a wait, whether the principal has the right to what
// it was just granted: rights may have ended meanwhile. A grant without the
// right is given back at once, rather than after its TTL.
func (s *Service) confirm(ctx context.Context, c *Call, res contract.Result) (contract.Result, error) {
	err := s.authorize(c, onKey(VerbAcquire, c.ns.Name, &res.Lease.Key))
	if err == nil {
		return res, nil
	}
	if !res.Replayed { // else the one who was granted it gives it back
		s.undo(ctx, c, res.Lease)
	}
	return contract.Result{}, err
}

func (s *Service) undo(ctx context.Context, c *Call, l *contract.Lease) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
	defer cancel()
	undo := *c
	undo.op, undo.start, undo.RequestID = opRelease, s.now(), rand.Text()
	res, err := c.ns.Store.Release(ctx, &contract.ReleaseRequest{
		Namespace: c.ns.Name, RequestID: undo.RequestID, Owner: l.Owner, Instance: l.Instance,
		LeaseID: l.ID, Token: l.Token, TraceID: c.TraceID, Retention: c.ns.retention,
	})
	s.finish(&undo, &subject{
		key: &l.Key, keyID: l.KeyID, leaseID: l.ID, token: l.Token, instance: l.Instance,
		reason: "undone: the right to acquire had ended during the wait",
	}, &res, err)
}

// acquireRequest returns the request for the store: normalised, and within the
// namespace's policy.
func (c *Call) acquireRequest(in *api.AcquireRequest) (*contract.AcquireRequest, error) {
	p := &c.ns.Policy
	r := &contract.AcquireRequest{
		Namespace: c.ns.Name, RequestID: c.RequestID, Owner: c.Principal.Name,
		Metadata: in.Metadata, Retention: c.ns.retention, Limits: c.ns.limits,
	}
	var err error
	if r.Key, err = requiredKey(&in.Key); err != nil {
		return r, err
	}
	if r.Instance, err = contract.NormalizeText("instance", in.Instance, contract.MaxText, true); err != nil {
		return r, err
	}
	if r.MaxLifetime, err = p.lifetime(in.MaxLifetimeMS); err != nil {
		return r, err
	}
	if r.TTL, err = p.ttl(in.TTLMS, p.TTL.Default); err != nil {
		return r, err
	}
	switch {
	case r.TTL <= r.MaxLifetime:
	case in.TTLMS == nil:
		return r, contract.Invalid("max_lifetime_ms", "is %d, less than this namespace's default ttl_ms of %d; send a ttl_ms too",
			r.MaxLifetime.Milliseconds(), r.TTL.Milliseconds())
	default:
		return r, contract.Invalid("ttl_ms", "is %d, more than max_lifetime_ms, %d", r.TTL.Milliseconds(), r.MaxLifetime.Milliseconds())
	}
	if r.Wait, err = p.wait(in.WaitMS); err != nil {
		return r, err
	}
	if r.ExecutionID, err = contract.NormalizeText("execution_id", in.ExecutionID, contract.MaxText, false); err != nil {
		return r, err
	}
	if r.JobID, err = contract.NormalizeText("job_id", in.JobID, contract.MaxText, false); err != nil {
		return r, err
	}
	if r.TraceID, err = contract.NormalizeText("trace_id", in.TraceID, contract.MaxText, false); err != nil {
		return r, err
	}
	if r.TraceID == "" {
		r.TraceID = c.TraceID
	}
	return r, contract.ValidateMetadata(in.Metadata)
}

// requiredKey normalises a key from a body. What is missing altogether is named
// as the caller knows it, not by its first part.
func requiredKey(in *api.Key) (contract.Key, error) {
	switch {
	case *in == api.Key{}:
		return contract.Key{}, contract.Invalid("key", "is required, with tenant, target and actor")
	case in.Target == api.Target{}:
		return contract.Key{}, contract.Invalid("key.target", "is required, with type and id")
	}
	return in.Contract().Normalize()
}
