package raftkv

import (
	"context"
	"errors"
	"time"

	"leased/contract"
)

// Pauses before a call is tried again at a node that did not carry it out. Who
// leads is told, so they are only for a node that leads and cannot serve, or of
// which nobody has noticed yet that it died.
const (
	firstPause = 20 * time.Millisecond
	maxPause   = 100 * time.Millisecond
	// refusedPause is how long another leader is waited for after the one there is
	// said that it does not take such a call, as one of another release may. Asking
	// it again would change nothing.
	refusedPause = time.Second
)

// Forwarder is a handle on the store of a cluster. It implements contract.Store
// on any of its nodes: a call is carried out by the node that leads, here or, one
// hop away, there.
//
// What was certainly not carried out is tried again until its deadline: who leads
// may change meanwhile. An answer that was lost is outcome_unknown, except that a
// read is asked again, and so is an acquire that waits, which keeps its place
// under its request id.
type Forwarder struct {
	engine *Engine
	local  *Store
	// closing ends with Close, cut when Close can wait no longer.
	closing context.Context //nolint:containedctx // the life of this handle, for context.AfterFunc
	close   context.CancelFunc
	cut     context.Context //nolint:containedctx // as closing
	end     context.CancelFunc
}

var _ contract.Store = (*Forwarder)(nil)

// Forwarder returns another handle. The Engine must have Peers.
func (e *Engine) Forwarder() *Forwarder {
	f := &Forwarder{engine: e, local: e.Store()}
	f.closing, f.close = context.WithCancel(context.Background())
	f.cut, f.end = context.WithCancel(context.Background())
	return f
}

// Close implements contract.Store. The engine and the log stay open.
func (f *Forwarder) Close(ctx context.Context) error {
	f.close()
	stop := context.AfterFunc(ctx, f.end)
	defer func() { stop(); f.end() }()
	return f.local.Close(ctx)
}

// operation is a call on its way.
type operation[R, T any] struct {
	f    *Forwarder
	verb string
	// request returns what is to be asked now.
	request func() *R
	here    func(context.Context, *R) (T, error)
	// reads tells that it changes nothing, waits that it may wait in a queue, large
	// that its answer may be.
	reads, waits, large bool
	over                time.Time // when the wait is over
}

// begin starts a call and carries it out.
func begin[R, T any](ctx context.Context, validate func() error, o operation[R, T]) (T, error) {
	ctx, end, err := o.f.local.handle.Begin(ctx, validate)
	if err != nil {
		var none T
		return none, err
	}
	defer end()
	return o.run(ctx)
}

func read[R, T any](f *Forwarder, verb string, r *R, here func(context.Context, *R) (T, error)) operation[R, T] {
	o := write(f, verb, r, here)
	o.reads = true
	return o
}

func write[R, T any](f *Forwarder, verb string, r *R, here func(context.Context, *R) (T, error)) operation[R, T] {
	return operation[R, T]{f: f, verb: verb, request: func() *R { return r }, here: here}
}

// largely is o with an answer that may be large.
func largely[R, T any](o operation[R, T]) operation[R, T] {
	o.large = true
	return o
}

// run tries until there is an answer, or certainty that there will be none.
func (o *operation[R, T]) run(ctx context.Context) (T, error) {
	var none T
	var lost error
	for pause := firstPause; ; pause = min(2*pause, maxPause) {
		era := o.f.engine.eras.get()
		answer, err := o.try(ctx, era)
		switch code := contract.CodeOf(err); {
		case code == contract.CodeOutcomeUnknown && o.waits && time.Now().Before(o.over):
			lost = err
		case code == contract.CodeUnavailable:
		case err != nil && code != contract.CodeInvalid && lost != nil:
			return none, lost
		default:
			return answer, err
		}
		refused := errors.Is(err, errRefused)
		if refused {
			pause = refusedPause
		}
		if !o.f.rest(ctx, era, pause) || refused && o.f.engine.eras.get() == era {
			if lost != nil {
				err = lost
			}
			if contract.CodeOf(err) == contract.CodeUnavailable && o.f.closing.Err() != nil {
				err = contract.Errorf(contract.CodeClosed, err, "the store is closed")
			}
			return none, err
		}
	}
}

// rest waits before the next try. It returns false when there will be none.
func (f *Forwarder) rest(ctx context.Context, era *era, pause time.Duration) bool {
	var elapsed <-chan time.Time
	if era.leader != "" {
		timer := time.NewTimer(pause)
		defer timer.Stop()
		elapsed = timer.C
	}
	select {
	case <-era.over:
	case <-elapsed:
	case <-ctx.Done():
	case <-f.closing.Done():
	}
	return ctx.Err() == nil && f.closing.Err() == nil
}

// try asks the node that leads in era.
func (o *operation[R, T]) try(ctx context.Context, era *era) (T, error) {
	switch era.leader {
	case "":
		var none T
		return none, unavailable(nil, "no node leads: a majority of the cluster cannot be reached, or is electing one")
	case o.f.engine.nodeID:
		if err := o.f.engine.ready(ctx, era.over); err != nil {
			var none T
			return none, err
		}
		return o.here(ctx, o.request())
	}
	return o.ask(ctx, era)
}

// Acquire implements contract.Store.
func (f *Forwarder) Acquire(ctx context.Context, r *contract.AcquireRequest) (contract.Result, error) {
	o := write(f, "acquire", r, f.local.Acquire)
	if r.Wait > 0 {
		o.waits, o.over = true, time.Now().Add(r.Wait)
		over := o.over
		o.request = func() *contract.AcquireRequest {
			left := *r
			left.Wait = min(r.Wait, max(time.Until(over), time.Millisecond))
			return &left
		}
	}
	return begin(ctx, r.Validate, o)
}

// Renew implements contract.Store.
func (f *Forwarder) Renew(ctx context.Context, r *contract.RenewRequest) (contract.Result, error) {
	return begin(ctx, r.Validate, write(f, "renew", r, f.local.Renew))
}

// RenewBulk implements contract.Store.
func (f *Forwarder) RenewBulk(ctx context.Context, r *contract.RenewBulkRequest) (contract.RenewBulkResult, error) {
	b, err := begin(ctx, r.Validate, largely(write(f, "renew-bulk", r, f.local.renewBulk)))
	if err != nil {
		return contract.RenewBulkResult{}, err
	}
	return b.result(), nil
}

// Release implements contract.Store.
func (f *Forwarder) Release(ctx context.Context, r *contract.ReleaseRequest) (contract.Result, error) {
	return begin(ctx, r.Validate, write(f, "release", r, f.local.Release))
}

// Revoke implements contract.Store.
func (f *Forwarder) Revoke(ctx context.Context, r *contract.RevokeRequest) (contract.Result, error) {
	return begin(ctx, r.Validate, write(f, "revoke", r, f.local.Revoke))
}

// Check implements contract.Store.
func (f *Forwarder) Check(ctx context.Context, r *contract.CheckRequest) (contract.Result, error) {
	return begin(ctx, r.Validate, read(f, "check", r, f.local.Check))
}

// Get implements contract.Store.
func (f *Forwarder) Get(ctx context.Context, r *contract.GetRequest) (contract.Result, error) {
	return begin(ctx, r.Validate, read(f, "get", r, f.local.Get))
}

// GetKey implements contract.Store.
func (f *Forwarder) GetKey(ctx context.Context, r *contract.GetKeyRequest) (contract.KeyResult, error) {
	return begin(ctx, r.Validate, read(f, "get-key", r, f.local.GetKey))
}

// List implements contract.Store.
func (f *Forwarder) List(ctx context.Context, r *contract.ListRequest) (contract.ListResult, error) {
	return begin(ctx, r.Validate, largely(read(f, "list", r, f.local.List)))
}

// History implements contract.Store.
func (f *Forwarder) History(ctx context.Context, r *contract.HistoryRequest) (contract.HistoryResult, error) {
	return begin(ctx, r.Validate, largely(read(f, "history", r, f.local.History)))
}

// RaiseFloor implements contract.Store.
func (f *Forwarder) RaiseFloor(ctx context.Context, r *contract.RaiseFloorRequest) error {
	_, err := begin(ctx, r.Validate, write(f, "raise-floor", r, f.local.raiseFloor))
	return err
}

// Watch implements contract.Store. The node that leads says where the stream
// begins; the events come from this node's copy of the log, so that a stream does
// not end when another node leads.
func (f *Forwarder) Watch(ctx context.Context, r *contract.WatchRequest) (contract.Stream, error) {
	from, err := begin(ctx, r.Validate, read(f, "watch", r, f.local.watchFrom))
	if err != nil {
		return nil, err
	}
	return f.local.stream(r, from.pos())
}

// Health implements contract.Store.
func (f *Forwarder) Health(ctx context.Context, r *contract.HealthRequest) (contract.Health, error) {
	// That nobody leads is an answer, and not to be waited for as long as for a grant.
	ctx, cancel := context.WithTimeout(ctx, leaderWait)
	defer cancel()
	a, err := begin(ctx, r.Validate, read(f, "health", r, f.local.health))
	h, failed := a.healthOr(err)
	if err == nil {
		h.Lag = f.engine.fsm.lag(ctx, a.Index, a.Clock)
		behind(&h)
	}
	return h, failed
}
