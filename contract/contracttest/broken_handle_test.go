package contracttest_test

import (
	"context"
	"errors"
	"sync"
	"time"

	"leased/contract"
	"leased/contract/contracttest"
	"leased/contract/memstore"
)

// Faults of a handle: what a gateway's side of a store gets wrong while the
// store itself is right.

// plain returns a wrap for a fault that Kill needs to know nothing of.
func plain(w func(contract.Store) contract.Store) func() wrap {
	return func() wrap {
		return func(_ contracttest.TB, s *memstore.Store) (contract.Store, func()) { return w(s), s.Kill }
	}
}

// worksAfterClose says that it closed.
type worksAfterClose struct{ contract.Store }

func (worksAfterClose) Close(context.Context) error { return nil }

// closeFailsTwice reports that it was closed before.
type closeFailsTwice struct {
	contract.Store
	mu     sync.Mutex
	closed bool
}

func (s *closeFailsTwice) Close(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return contract.Errorf(contract.CodeClosed, nil, "closed already")
	}
	s.closed = true
	return s.Store.Close(ctx)
}

// closedEarly tells its waiters that it is closed, and has them leave a little later.
type closedEarly struct {
	contract.Store
	closing chan struct{}
	once    sync.Once
}

func (s *closedEarly) Acquire(ctx context.Context, r *contract.AcquireRequest) (contract.Result, error) {
	type answer struct {
		res contract.Result
		err error
	}
	ch := make(chan answer, 1)
	go func() { res, err := s.Store.Acquire(ctx, r); ch <- answer{res, err} }()
	select {
	case a := <-ch:
		return a.res, a.err
	case <-s.closing:
		return contract.Result{}, contract.Errorf(contract.CodeClosed, nil, "the store is closed")
	}
}

func (s *closedEarly) Close(ctx context.Context) error {
	s.once.Do(func() {
		close(s.closing)
		timer := time.NewTimer(20 * time.Millisecond)
		defer timer.Stop()
		<-timer.C
	})
	return s.Store.Close(ctx)
}

// tooLate is by how much too late a wrong store answers. What the machine was
// stalled meanwhile the rules take off: of a second little is left on a busy one.
const tooLate = 5 * time.Second

// waitOverruns does not see in time that a wait is over.
type waitOverruns struct{ contract.Store }

func (s waitOverruns) Acquire(ctx context.Context, r *contract.AcquireRequest) (contract.Result, error) {
	if r.Wait == 0 {
		return s.Store.Acquire(ctx, r)
	}
	longer := *r
	longer.Wait += tooLate
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), longer.Wait)
	defer cancel()
	return s.Store.Acquire(ctx, &longer)
}

// deadlineOutwaited notices a deadline too late.
type deadlineOutwaited struct{ contract.Store }

func (s deadlineOutwaited) Acquire(ctx context.Context, r *contract.AcquireRequest) (contract.Result, error) {
	deadline, ok := ctx.Deadline()
	if !ok || ctx.Err() != nil {
		return s.Store.Acquire(ctx, r)
	}
	longer, cancel := context.WithDeadline(context.WithoutCancel(ctx), deadline.Add(tooLate))
	defer cancel()
	stop := context.AfterFunc(ctx, func() {
		if cancelled(ctx) {
			cancel()
		}
	})
	defer stop()
	return s.Store.Acquire(longer, r)
}

// lateSubmitted sends what it is asked to though the deadline has passed.
type lateSubmitted struct{ contract.Store }

func (s lateSubmitted) Acquire(ctx context.Context, r *contract.AcquireRequest) (contract.Result, error) {
	res, err := s.Store.Acquire(ctx, r)
	if contract.CodeOf(err) == contract.CodeTimeout {
		_, _ = s.Store.Acquire(context.WithoutCancel(ctx), r)
	}
	return res, err
}

// errorsUntyped returns errors that say nothing of the write.
type errorsUntyped struct{ contract.Store }

func (s errorsUntyped) Get(ctx context.Context, r *contract.GetRequest) (contract.Result, error) {
	res, err := s.Store.Get(ctx, r)
	if err != nil {
		err = errors.New(err.Error())
	}
	return res, err
}

// withGhosts returns the maker of a store that serves waiters who have gone: of
// those that answered a call without a grant, the ones that remember picks.
func withGhosts(remember func(ctx context.Context) bool) func(contracttest.TB) *contracttest.Harness {
	return func(t contracttest.TB) *contracttest.Harness {
		g := &ghosts{gone: map[contract.Scope]bool{}}
		return harness(t, machine{memstore.NewModel(ring), g.step()}, func(_ contracttest.TB, s *memstore.Store) (contract.Store, func()) {
			return &haunted{s, g, remember}, s.Kill
		})
	}
}

type haunted struct {
	contract.Store
	g        *ghosts
	remember func(ctx context.Context) bool
}

func (s *haunted) Acquire(ctx context.Context, r *contract.AcquireRequest) (contract.Result, error) {
	res, err := s.Store.Acquire(ctx, r)
	if r.Wait > 0 && res.Outcome == contract.OutcomeConflict && s.remember(ctx) {
		s.g.add(r)
	}
	return res, err
}

func cancelled(ctx context.Context) bool { return errors.Is(ctx.Err(), context.Canceled) }

func told(ctx context.Context) bool { return !cancelled(ctx) }

// deadHandle leaves its waiters in the queue when it is killed, as a store does
// that hears of an end only from those who say goodbye.
type deadHandle struct {
	contract.Store
	dead  chan struct{}
	calls sync.WaitGroup
}

func deadHandleWaits() wrap {
	return func(t contracttest.TB, s *memstore.Store) (contract.Store, func()) {
		h := &deadHandle{Store: s, dead: make(chan struct{})}
		t.Cleanup(func() {
			s.Kill()
			h.calls.Wait()
		})
		return h, func() { close(h.dead) }
	}
}

func (h *deadHandle) Acquire(ctx context.Context, r *contract.AcquireRequest) (contract.Result, error) {
	type answer struct {
		res contract.Result
		err error
	}
	here, leave := context.WithTimeout(context.WithoutCancel(ctx), r.Wait+time.Minute)
	stop := context.AfterFunc(ctx, leave)
	done := make(chan answer, 1)
	h.calls.Go(func() {
		defer leave()
		res, err := h.Store.Acquire(here, r)
		done <- answer{res, err}
	})
	select {
	case a := <-done:
		return a.res, a.err
	case <-h.dead:
		stop()
		return contract.Result{}, contract.Errorf(contract.CodeOutcomeUnknown, nil, "the handle was killed")
	}
}
