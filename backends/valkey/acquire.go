package valkey

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/binary"

	"leased/contract"
)

// How an acquire takes a held key.
const (
	modeNow   = 0 // answer at once
	modeWait  = 1 // take a place in the queue
	modeFinal = 2 // the wait is over: take the key if it is free, leave the place if not
)

const (
	argHead    = 3
	argNumbers = 5
	// Where what a try changes stands in the numbers.
	atNumber = 36
	atMode   = 56
)

// attempt is an acquire as the script wants it. It keeps nothing of the
// request.
type attempt struct {
	room  *room
	scope contract.Scope
	key   contract.KeyID
	by    cause
	args  []string // without mode and number, see with
}

func (s *Store) attempt(r *contract.AcquireRequest, room *room) *attempt {
	a := &attempt{
		room: room, scope: r.Scope(), key: r.Key.ID(),
		by: cause{principal: r.Owner, requestID: r.RequestID, traceID: r.TraceID, reason: undoneReason},
	}
	mark := r.Fingerprint()
	nonce := newNonce()
	maxLife := grantable(r.MaxLifetime)
	sure := byte(0)
	if s.cfg.ReplicaAcks > 0 {
		sure = 1
	}
	numbers := make([]byte, 0, atMode+2)
	numbers = binary.BigEndian.AppendUint64(numbers, uint64(min(grantable(r.TTL), maxLife)))
	numbers = appendRetention(numbers, r.Retention)
	numbers = binary.BigEndian.AppendUint32(numbers, uint32(r.Limits.LeasesPerOwner))
	numbers = binary.BigEndian.AppendUint32(numbers, uint32(r.Limits.WaitersPerKey))
	numbers = binary.BigEndian.AppendUint64(numbers, 0) // the attachment's number
	numbers = binary.BigEndian.AppendUint64(numbers, room.top.Load())
	numbers = binary.BigEndian.AppendUint32(numbers, uint32(heartbeatLife.Milliseconds()))
	numbers = append(numbers, modeNow, sure)
	a.args = []string{
		a.key.String(), string(a.scope[:]), string(mark[:]), string(head(a.key, nonce, holderTag(r.Owner, r.Instance))),
		string(fixed(r, a.scope, maxLife)), string(numbers), s.gateway, a.by.encode(),
	}
	return a
}

// newNonce names the lease should a try be granted.
func newNonce() (nonce [16]byte) {
	_, _ = rand.Read(nonce[:]) // never fails, see its documentation
	return nonce
}

// with returns the script's arguments for a mode and the attachment's number.
func (a *attempt) with(mode byte, n uint64) []string {
	args := append([]string(nil), a.args...)
	numbers := []byte(args[argNumbers])
	binary.BigEndian.PutUint64(numbers[atNumber:], n)
	numbers[atMode] = mode
	args[argNumbers] = string(numbers)
	// The grant of an earlier try may have been undone: its id is used up.
	nonce, head := newNonce(), args[argHead]
	args[argHead] = head[:18] + string(nonce[:]) + head[34:]
	return args
}

// Acquire implements contract.Store.
func (s *Store) Acquire(ctx context.Context, r *contract.AcquireRequest) (contract.Result, error) {
	ctx, room, end, err := s.begin(ctx, r.Namespace, r.Validate)
	if err != nil {
		return contract.Result{}, err
	}
	defer end()
	a := s.attempt(r, room)
	if r.Wait > 0 {
		return s.acquireWaiting(ctx, a, r.Wait)
	}
	rep, err := s.try(ctx, a, a.args)
	if err != nil {
		return contract.Result{}, err
	}
	return s.acquired(room, rep)
}

// try runs the acquire script once, unless nothing may be granted.
func (s *Store) try(ctx context.Context, a *attempt, args []string) (*reply, error) {
	if _, err := s.link.get(ctx); err != nil {
		return nil, err
	}
	if st := s.link.state.Load(); st.refuse != "" || st.forbid != "" {
		return nil, unavailable(nil, cmp.Or(st.forbid, st.refuse))
	}
	if s.cfg.ReplicaAcks > 0 {
		return s.tryAcknowledged(ctx, a, args)
	}
	return s.exec(ctx, a.room, s.scripts.acquire, args...)
}

// acquired is the answer of the acquire script, but for parked.
func (s *Store) acquired(r *room, a *reply) (contract.Result, error) {
	switch a.code {
	case "reused":
		return reused(), nil
	case "quota":
		return contract.Result{Outcome: contract.OutcomeQuotaExceeded, Limit: a.text(0)}, nil
	case "exhausted":
		return contract.Result{}, contract.Errorf(contract.CodeInternal, nil, "the namespace has no fencing token left")
	case "conflict":
		l, err := s.lease(r, a.text(0), a.now)
		if err != nil {
			return contract.Result{}, err
		}
		q := contract.Queue{Length: int(a.number(1)), Position: int(a.number(2))}
		return contract.Result{Outcome: contract.OutcomeConflict, Lease: l, Queue: q}, nil
	case "acquired":
		v, err := parseRecord(r.namespace, a.text(0), false)
		if err != nil {
			return contract.Result{}, contract.Errorf(contract.CodeInternal, err, "a stored record is corrupt")
		}
		r.saw(v.lease.Token)
		res := contract.Result{Outcome: contract.OutcomeAcquired, Lease: v.view(a.now), Replayed: a.number(1) == 1}
		if v.lease.State != contract.StateActive {
			res.Outcome = contract.EndedOutcome(v.lease.State)
		} else {
			r.due(v.expires, a.now)
		}
		return res, nil
	}
	return contract.Result{}, unexpected(a)
}

// undoneReason stands in the record of a lease that was granted to a caller who
// had gone by then, or that the replicas did not confirm.
const undoneReason = "undone: nobody was there to take the grant"

// undo takes a grant back, on a context of its own. It answers the conflict that
// the caller is owed, or the grant when somebody knows of it already.
func (s *Store) undo(ctx context.Context, a *attempt, id contract.LeaseID) (contract.Result, error) {
	rep, err := s.take(ctx, a, string(id[16:]))
	if err != nil {
		return contract.Result{}, err
	}
	return s.acquired(a.room, rep)
}

// take is undo for a lease that is named by its nonce.
func (s *Store) take(ctx context.Context, a *attempt, nonce string) (*reply, error) {
	return s.exec(ctx, a.room, s.scripts.undo, a.key.String(), string(a.scope[:]), nonce, a.by.encode())
}
