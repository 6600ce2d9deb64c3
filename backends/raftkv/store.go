package raftkv

import (
	"context"
	"crypto/rand"
	"maps"
	"slices"

	"leased/contract"
	"leased/contract/lifecycle"
)

// Store is a handle on the node's lease store. It implements contract.Store.
type Store struct {
	engine *Engine
	handle *lifecycle.Handle
}

var _ contract.Store = (*Store)(nil)

// Store returns another handle.
func (e *Engine) Store() *Store {
	return &Store{engine: e, handle: lifecycle.New()}
}

// Acquire implements contract.Store.
func (s *Store) Acquire(ctx context.Context, r *contract.AcquireRequest) (contract.Result, error) {
	ctx, end, err := s.handle.Begin(ctx, r.Validate)
	if err != nil {
		return contract.Result{}, err
	}
	defer end()
	c := commandOf(r)
	if r.Wait > 0 {
		return s.acquireWaiting(ctx, r, c)
	}
	answer, err := s.engine.propose(ctx, kindAcquire, c)
	return resultOf(answer, err)
}

func commandOf(r *contract.AcquireRequest) *acquireCmd {
	c := &acquireCmd{
		Scope: r.Scope(), Print: r.Fingerprint(), Namespace: r.Namespace, Key: partsOf(r.Key), KeyID: r.Key.ID(),
		Owner: r.Owner, Instance: r.Instance, RequestID: r.RequestID, ExecutionID: r.ExecutionID, JobID: r.JobID,
		TraceID: r.TraceID, TTL: int64(r.TTL), MaxLifetime: int64(r.MaxLifetime), Wait: r.Wait > 0,
		Keep: retentionOf(r.Retention), MaxLeases: int64(r.Limits.LeasesPerOwner), MaxWaiters: int64(r.Limits.WaitersPerKey),
	}
	for _, name := range slices.Sorted(maps.Keys(r.Metadata)) {
		c.Metadata = append(c.Metadata, name, r.Metadata[name])
	}
	// The nonce is made here and travels in the entry: Apply must not roll dice.
	_, _ = rand.Read(c.Nonce[:]) // never fails, see its documentation
	return c
}

func retentionOf(r contract.Retention) retention {
	return retention{Idempotency: int64(r.Idempotency), History: int64(r.History), HistoryPerKey: int32(r.HistoryPerKey)}
}

// resultOf reads the answer to a command that is answered by one reply.
func resultOf(answer any, err error) (contract.Result, error) {
	if err != nil {
		return contract.Result{}, err
	}
	r, ok := answer.(reply)
	if !ok {
		return contract.Result{}, contract.Errorf(contract.CodeInternal, nil, "the log gave an answer of another kind")
	}
	return r.result()
}

// Renew implements contract.Store.
func (s *Store) Renew(ctx context.Context, r *contract.RenewRequest) (contract.Result, error) {
	ctx, end, err := s.handle.Begin(ctx, r.Validate)
	if err != nil {
		return contract.Result{}, err
	}
	defer end()
	answers, err := s.renew(ctx, &renewCmd{
		Namespace: r.Namespace, Owner: r.Owner, Instance: r.Instance, RequestID: r.RequestID, TraceID: r.TraceID,
		Keep: retentionOf(r.Retention), Items: []renewItem{itemOf(r)},
	})
	if err != nil {
		return contract.Result{}, err
	}
	return answers[0].result()
}

// RenewBulk implements contract.Store.
func (s *Store) RenewBulk(ctx context.Context, r *contract.RenewBulkRequest) (contract.RenewBulkResult, error) {
	ctx, end, err := s.handle.Begin(ctx, r.Validate)
	if err != nil {
		return contract.RenewBulkResult{}, err
	}
	defer end()
	c := &renewCmd{
		Namespace: r.Namespace, Owner: r.Owner, Instance: r.Instance, RequestID: r.RequestID, TraceID: r.TraceID,
		Keep: retentionOf(r.Retention), Items: make([]renewItem, len(r.Leases)),
	}
	for i := range r.Leases {
		item := r.Item(i)
		c.Items[i] = itemOf(&item)
	}
	answers, err := s.renew(ctx, c)
	if err != nil {
		return contract.RenewBulkResult{}, err
	}
	out := contract.RenewBulkResult{Items: make([]contract.RenewItemResult, len(answers))}
	for i := range answers {
		out.Items[i].Result, out.Items[i].Err = answers[i].result()
	}
	return out, nil
}

// renewBulk is RenewBulk in the form that travels.
func (s *Store) renewBulk(ctx context.Context, r *contract.RenewBulkRequest) (bulkAnswer, error) {
	res, err := s.RenewBulk(ctx, r)
	return bulkAnswerOf(res), err
}

func itemOf(r *contract.RenewRequest) renewItem {
	return renewItem{
		Scope: r.Scope(), Print: r.Fingerprint(), LeaseID: r.LeaseID, Token: uint64(r.Token), TTL: int64(r.TTL),
	}
}

func (s *Store) renew(ctx context.Context, c *renewCmd) ([]reply, error) {
	answer, err := s.engine.propose(ctx, kindRenew, c)
	if err != nil {
		return nil, err
	}
	answers, ok := answer.([]reply)
	if !ok || len(answers) != len(c.Items) {
		return nil, contract.Errorf(contract.CodeInternal, nil, "the log gave an answer of another kind")
	}
	return answers, nil
}

// Release implements contract.Store.
func (s *Store) Release(ctx context.Context, r *contract.ReleaseRequest) (contract.Result, error) {
	ctx, end, err := s.handle.Begin(ctx, r.Validate)
	if err != nil {
		return contract.Result{}, err
	}
	defer end()
	return resultOf(s.engine.propose(ctx, kindRelease, &releaseCmd{
		Scope: r.Scope(), Print: r.Fingerprint(), Namespace: r.Namespace, Owner: r.Owner, Instance: r.Instance,
		RequestID: r.RequestID, TraceID: r.TraceID, LeaseID: r.LeaseID, Token: uint64(r.Token), Keep: retentionOf(r.Retention),
	}))
}

// Revoke implements contract.Store.
func (s *Store) Revoke(ctx context.Context, r *contract.RevokeRequest) (contract.Result, error) {
	ctx, end, err := s.handle.Begin(ctx, r.Validate)
	if err != nil {
		return contract.Result{}, err
	}
	defer end()
	return resultOf(s.engine.propose(ctx, kindRevoke, &revokeCmd{
		Scope: r.Scope(), Print: r.Fingerprint(), Namespace: r.Namespace, Principal: r.Principal,
		RequestID: r.RequestID, TraceID: r.TraceID, LeaseID: r.LeaseID, Reason: r.Reason, Keep: retentionOf(r.Retention),
	}))
}

// RaiseFloor implements contract.Store.
func (s *Store) RaiseFloor(ctx context.Context, r *contract.RaiseFloorRequest) error {
	ctx, end, err := s.handle.Begin(ctx, r.Validate)
	if err != nil {
		return err
	}
	defer end()
	_, err = s.engine.propose(ctx, kindFloor, &floorCmd{Namespace: r.Namespace, Above: uint64(r.Above)})
	return err
}

// raiseFloor is RaiseFloor in the form that travels.
func (s *Store) raiseFloor(ctx context.Context, r *contract.RaiseFloorRequest) (none, error) {
	return none{}, s.RaiseFloor(ctx, r)
}

// Close implements contract.Store. The engine and the log stay open.
func (s *Store) Close(ctx context.Context) error { return s.handle.Close(ctx, nil) }
