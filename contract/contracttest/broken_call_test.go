package contracttest_test

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"leased/contract"
	"leased/contract/contracttest"
	"leased/contract/memstore"
)

// Faults of a handle that lets pass what it should refuse, or does not end as it
// should.

// ttlDefaulted takes a TTL that is not one for none.
type ttlDefaulted struct{ contract.Store }

func (s ttlDefaulted) Acquire(ctx context.Context, r *contract.AcquireRequest) (contract.Result, error) {
	if r.TTL <= 0 {
		longer := *r
		longer.TTL = time.Minute
		r = &longer
	}
	return s.Store.Acquire(ctx, r)
}

// keyMended normalises a key where it should refuse it: another gateway may
// normalise otherwise.
type keyMended struct{ contract.Store }

func (s keyMended) Acquire(ctx context.Context, r *contract.AcquireRequest) (contract.Result, error) {
	if key, err := r.Key.Normalize(); err == nil {
		mended := *r
		mended.Key = key
		r = &mended
	}
	return s.Store.Acquire(ctx, r)
}

// metadataCut drops what does not fit.
type metadataCut struct{ contract.Store }

func (s metadataCut) Acquire(ctx context.Context, r *contract.AcquireRequest) (contract.Result, error) {
	if len(r.Metadata) > contract.MaxMetadataPairs {
		cut := *r
		cut.Metadata = map[string]string{}
		for _, name := range slices.Sorted(maps.Keys(r.Metadata))[:contract.MaxMetadataPairs] {
			cut.Metadata[name] = r.Metadata[name]
		}
		r = &cut
	}
	return s.Store.Acquire(ctx, r)
}

// noTokenMatches takes a token that is missing for any.
type noTokenMatches struct{ contract.Store }

func (s noTokenMatches) Release(ctx context.Context, r *contract.ReleaseRequest) (contract.Result, error) {
	if r.Token == 0 {
		if found, err := s.Get(ctx, &contract.GetRequest{Namespace: r.Namespace, LeaseID: r.LeaseID}); err == nil && found.Lease != nil {
			matching := *r
			matching.Token = found.Lease.Token
			r = &matching
		}
	}
	return s.Store.Release(ctx, r)
}

func (s noTokenMatches) Check(ctx context.Context, r *contract.CheckRequest) (contract.Result, error) {
	if r.Token == 0 {
		if key, err := s.GetKey(ctx, &contract.GetKeyRequest{Namespace: r.Namespace, KeyID: r.KeyID}); err == nil && key.Lease != nil {
			matching := *r
			matching.Token = key.Lease.Token
			r = &matching
		}
	}
	return s.Store.Check(ctx, r)
}

// bulkUnbounded takes as many leases as there are.
type bulkUnbounded struct{ contract.Store }

func (s bulkUnbounded) RenewBulk(ctx context.Context, r *contract.RenewBulkRequest) (contract.RenewBulkResult, error) {
	var all contract.RenewBulkResult
	rest := *r
	for len(rest.Leases) > contract.MaxBulk {
		head := rest
		head.Leases, rest.Leases = rest.Leases[:contract.MaxBulk], rest.Leases[contract.MaxBulk:]
		res, err := s.Store.RenewBulk(ctx, &head)
		if err != nil {
			return res, err
		}
		all.Items = append(all.Items, res.Items...)
	}
	res, err := s.Store.RenewBulk(ctx, &rest)
	all.Items = append(all.Items, res.Items...)
	return all, err
}

// bulkBackwards begins with the last lease, as a store may that renews all at once.
type bulkBackwards struct{ contract.Store }

func (s bulkBackwards) RenewBulk(ctx context.Context, r *contract.RenewBulkRequest) (contract.RenewBulkResult, error) {
	back := *r
	back.Leases = slices.Clone(r.Leases)
	slices.Reverse(back.Leases)
	res, err := s.Store.RenewBulk(ctx, &back)
	slices.Reverse(res.Items)
	return res, err
}

// bulkCheckedOnTheWay renews up to the item that is invalid.
type bulkCheckedOnTheWay struct{ contract.Store }

func (s bulkCheckedOnTheWay) RenewBulk(ctx context.Context, r *contract.RenewBulkRequest) (contract.RenewBulkResult, error) {
	res, err := s.Store.RenewBulk(ctx, r)
	if contract.CodeOf(err) == contract.CodeInvalid {
		for i := range r.Leases {
			item := r.Item(i)
			_, _ = s.Renew(ctx, &item)
		}
	}
	return res, err
}

// noDefaultDeadline waits for as long as it is asked to.
type noDefaultDeadline struct{ contract.Store }

func (s noDefaultDeadline) Acquire(ctx context.Context, r *contract.AcquireRequest) (contract.Result, error) {
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, contract.DefaultTimeout+tooLate)
		defer cancel()
	}
	return s.Store.Acquire(ctx, r)
}

// answersInTurn lets those whose wait has ended go one by one.
func answersInTurn() wrap {
	var turn sync.Mutex
	return func(_ contracttest.TB, s *memstore.Store) (contract.Store, func()) {
		return &oneByOne{Store: s, turn: &turn}, s.Kill
	}
}

type oneByOne struct {
	contract.Store
	turn *sync.Mutex
}

func (s *oneByOne) Acquire(ctx context.Context, r *contract.AcquireRequest) (contract.Result, error) {
	res, err := s.Store.Acquire(ctx, r)
	if r.Wait > 0 && res.Outcome == contract.OutcomeConflict {
		s.turn.Lock()
		defer s.turn.Unlock()
		<-time.After(tooLate / 200) // of so many that are answered at once
	}
	return res, err
}

// closeReleases gives back what was acquired through it when it closes, though
// the holders live on.
type closeReleases struct {
	contract.Store
	mu   sync.Mutex
	held []contract.Lease
}

func (s *closeReleases) Acquire(ctx context.Context, r *contract.AcquireRequest) (contract.Result, error) {
	res, err := s.Store.Acquire(ctx, r)
	if res.Outcome == contract.OutcomeAcquired {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.held = append(s.held, *res.Lease)
	}
	return res, err
}

func (s *closeReleases) Close(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.held {
		_, _ = s.Release(ctx, &contract.ReleaseRequest{
			Namespace: l.Namespace, RequestID: "close-" + l.ID.String(), Owner: l.Owner, Instance: l.Instance, LeaseID: l.ID, Token: l.Token,
			Retention: contract.Retention{Idempotency: time.Minute, History: time.Hour, HistoryPerKey: 64},
		})
	}
	s.held = nil
	return s.Store.Close(ctx)
}

// closedButApplied carries out what it answers closed to.
type closedButApplied struct {
	contract.Store
	mu     sync.Mutex
	closed bool
}

func (s *closedButApplied) Close(context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	return nil
}

func (s *closedButApplied) Acquire(ctx context.Context, r *contract.AcquireRequest) (contract.Result, error) {
	res, err := s.Store.Acquire(ctx, r)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return contract.Result{}, contract.Errorf(contract.CodeClosed, nil, "the store is closed")
	}
	return res, err
}

// closeLetsWait leaves its waiters to the ends of their waits.
type closeLetsWait struct {
	contract.Store
	mu      sync.Mutex
	waiting int
	closed  bool
}

func (s *closeLetsWait) Acquire(ctx context.Context, r *contract.AcquireRequest) (contract.Result, error) {
	s.count(1)
	res, err := s.Store.Acquire(ctx, r)
	s.count(-1)
	return res, err
}

func (s *closeLetsWait) count(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.waiting += n; s.closed && s.waiting == 0 {
		_ = s.Store.Close(context.Background())
	}
}

func (s *closeLetsWait) Close(context.Context) error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.count(0)
	return nil
}

// neverReady reports that it cannot serve while it does.
type neverReady struct{ contract.Store }

func (s neverReady) Health(ctx context.Context, r *contract.HealthRequest) (contract.Health, error) {
	h, err := s.Store.Health(ctx, r)
	h.Ready = false
	return h, err
}

// streamOfCall ends a stream with the call that opened it.
type streamOfCall struct{ contract.Store }

func (s streamOfCall) Watch(ctx context.Context, r *contract.WatchRequest) (contract.Stream, error) {
	stream, err := s.Store.Watch(ctx, r)
	if err == nil {
		context.AfterFunc(ctx, stream.Close)
	}
	return stream, err
}
