package contracttest

import (
	"context"
	"fmt"

	"leased/contract"
)

// sight is what one read showed of a key's newest lease, in the order in which
// a lease and its successors go through it: free before the first grant, then
// token 1 active, token 1 ended, token 2 active, and so on.
type sight struct {
	token contract.Token
	ended bool
}

func (s sight) before(t sight) bool {
	return s.token < t.token || s.token == t.token && !s.ended && t.ended
}

func (s sight) String() string {
	switch {
	case s.token == 0:
		return "a free key"
	case s.ended:
		return fmt.Sprintf("token %d ended", s.token)
	}
	return fmt.Sprintf("token %d active", s.token)
}

// readsNeverGoBack lets readers follow a key over both gateways in turns while
// its leases come and go. A reader's next read begins after its last one was
// answered, so that it must show as much or more.
func readsNeverGoBack(e *Env) {
	a, b := e.pair()
	key := e.key("busy")
	// The writer lets some reads pass after each grant: a fast store would else be
	// done before its readers have begun, or a slow machine let them all read
	// between the same two writes.
	const grants, looks = 40, 10
	ctx, stop := context.WithCancel(e.Context())
	defer stop()
	seen := make(chan struct{}, looks/2)
	e.race(5, func(i int) {
		defer stop()
		if i == 0 {
			for n := range grants {
				if !e.comeAndGo(pick(n, a, b), pick(n/2, a, b), key) || !receive(ctx, seen, looks) {
					return
				}
			}
			return
		}
		var last sight
		for n := i; ctx.Err() == nil; n++ {
			now, err := e.look(pick(n, a, b), n/2, key)
			if err != nil {
				e.Errorf("reader %d: got error %v", i, err)
				return
			}
			if now.before(last) {
				e.Errorf("reader %d: saw %v, and %v afterwards", i, last, now)
				return
			}
			last = now
			select {
			case seen <- struct{}{}:
			default:
			}
		}
	})
}

// receive takes n signals. It reports false if ctx ends before.
func receive(ctx context.Context, signals <-chan struct{}, n int) bool {
	for range n {
		select {
		case <-signals:
		case <-ctx.Done():
			return false
		}
	}
	return true
}

// comeAndGo grants the key and releases it. It runs beside the rule.
func (e *Env) comeAndGo(s, t contract.Store, key contract.Key) bool {
	res, err := s.Acquire(e.ctx(), e.newAcquire(key, alice))
	if err != nil || res.Outcome != contract.OutcomeAcquired || res.Lease == nil {
		e.Errorf("acquire: got %s, error %v, want acquired", describe(res), err)
		return false
	}
	res, err = t.Release(e.ctx(), e.newRelease(*res.Lease))
	if err != nil || res.Outcome != contract.OutcomeReleased {
		e.Errorf("release: got %s, error %v, want released", describe(res), err)
		return false
	}
	return true
}

// look reads the key by one of the linearisable reads. It runs beside the rule.
func (e *Env) look(s contract.Store, which int, key contract.Key) (sight, error) {
	if which%2 == 0 {
		page, err := s.History(e.ctx(), &contract.HistoryRequest{Namespace: e.ns, KeyID: key.ID(), Limit: 1})
		if err != nil || len(page.Events) == 0 {
			return sight{}, err
		}
		return sight{page.Events[0].Token, page.Events[0].State.Terminal()}, nil
	}
	now, err := s.GetKey(e.ctx(), &contract.GetKeyRequest{Namespace: e.ns, KeyID: key.ID()})
	switch {
	case err != nil:
		return sight{}, err
	case now.Lease != nil:
		return sight{token: now.Lease.Token}, nil
	case now.Last != nil:
		return sight{now.Last.Token, true}, nil
	}
	return sight{}, nil
}
