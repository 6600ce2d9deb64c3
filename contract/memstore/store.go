package memstore

import (
	"context"

	"leased/contract"
)

// Store is a handle on a Backend, as one gateway has. Backend.Open makes it.
type Store struct {
	b *Backend
	// Under the backend's lock.
	closed bool
	dead   bool
}

var _ contract.Store = (*Store)(nil)

// request is what every request of the contract can do.
type request interface{ Validate() error }

// Acquire implements contract.Store.
func (s *Store) Acquire(ctx context.Context, r *contract.AcquireRequest) (contract.Result, error) {
	ctx, cancel := contract.WithDeadline(ctx)
	defer cancel()
	if err := s.admit(ctx, r); err != nil {
		return contract.Result{}, err
	}
	return s.acquire(ctx, Acquire{Request: *r})
}

// Renew implements contract.Store.
func (s *Store) Renew(ctx context.Context, r *contract.RenewRequest) (contract.Result, error) {
	if err := s.admit(ctx, r); err != nil {
		return contract.Result{}, err
	}
	a, err := s.b.do(s, Renew{Request: *r})
	return a.Result, err
}

// RenewBulk implements contract.Store.
func (s *Store) RenewBulk(ctx context.Context, r *contract.RenewBulkRequest) (contract.RenewBulkResult, error) {
	if err := s.admit(ctx, r); err != nil {
		return contract.RenewBulkResult{}, err
	}
	a, err := s.b.do(s, RenewBulk{Request: *r})
	return a.Bulk, err
}

// Release implements contract.Store.
func (s *Store) Release(ctx context.Context, r *contract.ReleaseRequest) (contract.Result, error) {
	if err := s.admit(ctx, r); err != nil {
		return contract.Result{}, err
	}
	a, err := s.b.do(s, Release{Request: *r})
	return a.Result, err
}

// Revoke implements contract.Store.
func (s *Store) Revoke(ctx context.Context, r *contract.RevokeRequest) (contract.Result, error) {
	if err := s.admit(ctx, r); err != nil {
		return contract.Result{}, err
	}
	a, err := s.b.do(s, Revoke{Request: *r})
	return a.Result, err
}

// Check implements contract.Store.
func (s *Store) Check(ctx context.Context, r *contract.CheckRequest) (contract.Result, error) {
	if err := s.admit(ctx, r); err != nil {
		return contract.Result{}, err
	}
	a, err := s.b.do(s, Check{Request: *r})
	return a.Result, err
}

// Get implements contract.Store.
func (s *Store) Get(ctx context.Context, r *contract.GetRequest) (contract.Result, error) {
	if err := s.admit(ctx, r); err != nil {
		return contract.Result{}, err
	}
	a, err := s.b.do(s, Get{Request: *r})
	return a.Result, err
}

// GetKey implements contract.Store.
func (s *Store) GetKey(ctx context.Context, r *contract.GetKeyRequest) (contract.KeyResult, error) {
	if err := s.admit(ctx, r); err != nil {
		return contract.KeyResult{}, err
	}
	a, err := s.b.do(s, GetKey{Request: *r})
	return a.Key, err
}

// List implements contract.Store.
func (s *Store) List(ctx context.Context, r *contract.ListRequest) (contract.ListResult, error) {
	if err := s.admit(ctx, r); err != nil {
		return contract.ListResult{}, err
	}
	a, err := s.b.do(s, List{Request: *r})
	return a.List, err
}

// History implements contract.Store.
func (s *Store) History(ctx context.Context, r *contract.HistoryRequest) (contract.HistoryResult, error) {
	if err := s.admit(ctx, r); err != nil {
		return contract.HistoryResult{}, err
	}
	a, err := s.b.do(s, History{Request: *r})
	return a.History, err
}

// Watch implements contract.Store.
func (s *Store) Watch(ctx context.Context, r *contract.WatchRequest) (contract.Stream, error) {
	if err := s.admit(ctx, r); err != nil {
		return nil, err
	}
	a, err := s.b.do(s, Watch{Request: *r})
	if err != nil {
		return nil, err
	}
	return &stream{s: s, request: *r, cursor: a.Cursor, closed: make(chan struct{})}, nil
}

// RaiseFloor implements contract.Store.
func (s *Store) RaiseFloor(ctx context.Context, r *contract.RaiseFloorRequest) error {
	if err := s.admit(ctx, r); err != nil {
		return err
	}
	_, err := s.b.do(s, RaiseFloor{Request: *r})
	return err
}

// Health implements contract.Store.
func (s *Store) Health(ctx context.Context, r *contract.HealthRequest) (contract.Health, error) {
	h := contract.Health{Guarantees: Guarantees()}
	err := s.admit(ctx, r)
	if err == nil {
		var a Answer
		if a, err = s.b.do(s, Health{Request: *r}); err == nil {
			a.Health.Guarantees = h.Guarantees
			return a.Health, nil
		}
	}
	code := contract.CodeOf(err)
	if code == contract.CodeInvalid || code == contract.CodeClosed {
		return contract.Health{}, err
	}
	h.Detail = "the store cannot serve: " + code.String()
	return h, nil
}

// Close implements contract.Store. Operations that run hold the lock and are
// short, so that there is nothing to wait for.
func (s *Store) Close(context.Context) error {
	s.b.mu.Lock()
	defer s.b.mu.Unlock()
	s.leave(func() {
		s.closed = true
		s.b.cutWaiting(s, errClosed())
	})
	return nil
}

// Kill ends the store as the end of its process would: calls that run on it are
// lost with their answers, those that wait are away.
func (s *Store) Kill() {
	s.b.mu.Lock()
	defer s.b.mu.Unlock()
	s.leave(func() {
		s.dead = true
		s.b.cutDead(s)
	})
}

// leave takes the store out of its backend, once. The caller holds the lock.
func (s *Store) leave(end func()) {
	if s.closed || s.dead {
		return
	}
	end()
	delete(s.b.stores, s)
	s.b.wakeStreams()
}

// admit refuses what must not be tried: a call that is over, or one that breaks
// a rule. Everything here is quick, so that DefaultTimeout cannot be reached;
// only a wait can, see Acquire.
func (s *Store) admit(ctx context.Context, r request) error {
	s.b.mu.Lock()
	err := s.usable()
	s.b.mu.Unlock()
	switch {
	case err != nil:
		return err
	case ctx.Err() != nil:
		return contract.NotSubmitted(ctx)
	}
	return r.Validate()
}

// usable refuses to serve on a handle that has ended. The caller holds the lock.
func (s *Store) usable() error {
	switch {
	case s.closed:
		return errClosed()
	case s.dead:
		return contract.Errorf(contract.CodeUnavailable, nil, "the connection to the store is gone")
	}
	return nil
}

func errClosed() error {
	return contract.Errorf(contract.CodeClosed, nil, "the store is closed")
}

// errDied is what a call was told whose store died under it. Nobody hears it.
func errDied() error {
	return contract.Errorf(contract.CodeOutcomeUnknown, nil, "the store died during the call")
}
