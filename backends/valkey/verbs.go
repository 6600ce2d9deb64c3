package valkey

import (
	"context"
	"encoding/binary"
	"time"

	"leased/contract"
)

// renewChunk is how many renewals one script does: a bulk must not keep others
// waiting for long.
const renewChunk = 64

func reused() contract.Result { return contract.Result{Outcome: contract.OutcomeRequestIDReused} }

// µs of a duration that is granted in whole milliseconds, rounded up.
func grantable(d time.Duration) int64 {
	ms := (d + time.Millisecond - 1) / time.Millisecond
	return int64(ms) * 1000
}

// kept is a retention in µs, rounded up.
func kept(d time.Duration) uint64 { return uint64((d + time.Microsecond - 1) / time.Microsecond) }

// appendRetention appends a retention as scripts unpack it: I8I4I8.
func appendRetention(b []byte, keep contract.Retention) []byte {
	b = binary.BigEndian.AppendUint64(b, kept(keep.History))
	b = binary.BigEndian.AppendUint32(b, uint32(keep.HistoryPerKey))
	return binary.BigEndian.AppendUint64(b, kept(keep.Idempotency))
}

// endArgs are those that release and revoke share; holder is empty for revoke.
func (s *Store) endArgs(id contract.LeaseID, scope contract.Scope, mark contract.Fingerprint, c cause, keep contract.Retention, holder []byte, token contract.Token) []string {
	numbers := make([]byte, 0, 28)
	numbers = binary.BigEndian.AppendUint64(appendRetention(numbers, keep), uint64(token))
	return []string{id.KeyID().String(), string(scope[:]), string(mark[:]), string(id[16:]), c.encode(), string(numbers), string(holder), s.gateway}
}

// Release implements contract.Store.
func (s *Store) Release(ctx context.Context, r *contract.ReleaseRequest) (contract.Result, error) {
	ctx, room, end, err := s.begin(ctx, r.Namespace, r.Validate)
	if err != nil {
		return contract.Result{}, err
	}
	defer end()
	holder := holderTag(r.Owner, r.Instance)
	a, err := s.exec(ctx, room, s.scripts.release, s.endArgs(r.LeaseID, r.Scope(), r.Fingerprint(),
		cause{principal: r.Owner, requestID: r.RequestID, traceID: r.TraceID}, r.Retention, holder[:], r.Token)...)
	if err != nil {
		return contract.Result{}, err
	}
	return s.concluded(room, a, contract.OutcomeReleased)
}

// Revoke implements contract.Store.
func (s *Store) Revoke(ctx context.Context, r *contract.RevokeRequest) (contract.Result, error) {
	ctx, room, end, err := s.begin(ctx, r.Namespace, r.Validate)
	if err != nil {
		return contract.Result{}, err
	}
	defer end()
	a, err := s.exec(ctx, room, s.scripts.revoke, s.endArgs(r.LeaseID, r.Scope(), r.Fingerprint(),
		cause{r.Principal, r.RequestID, r.TraceID, r.Reason}, r.Retention, nil, 0)...)
	if err != nil {
		return contract.Result{}, err
	}
	return s.concluded(room, a, contract.OutcomeRevoked)
}

// concluded is the answer of release and revoke.
func (s *Store) concluded(r *room, a *reply, done contract.Outcome) (contract.Result, error) {
	for i := 2; i < len(a.rest); i++ {
		r.wake(a.text(i)) // it became the turn of a waiter here
	}
	switch a.code {
	case "reused":
		return reused(), nil
	case "none":
		return contract.Result{Outcome: contract.OutcomeNotFound}, nil
	case "owner":
		return contract.Result{Outcome: contract.OutcomeNotOwner}, nil
	case "stale":
		return contract.Result{Outcome: contract.OutcomeStaleToken}, nil
	}
	l, err := s.lease(r, a.text(0), a.now)
	if err != nil {
		return contract.Result{}, err
	}
	switch {
	case l == nil:
	case a.code == "done":
		return contract.Result{Outcome: done, Lease: l, Replayed: a.number(1) == 1}, nil
	case a.code == "over":
		return contract.Result{Outcome: contract.EndedOutcome(l.State), Lease: l}, nil
	}
	return contract.Result{}, unexpected(a)
}

func unexpected(a *reply) error {
	return contract.Errorf(contract.CodeInternal, nil, "a script gave the unknown answer %q", a.code)
}

// Renew implements contract.Store.
func (s *Store) Renew(ctx context.Context, r *contract.RenewRequest) (contract.Result, error) {
	ctx, room, end, err := s.begin(ctx, r.Namespace, r.Validate)
	if err != nil {
		return contract.Result{}, err
	}
	defer end()
	items, err := s.renew(ctx, room, []contract.RenewRequest{*r})
	if err != nil {
		return contract.Result{}, err
	}
	return items[0].Result, items[0].Err
}

// RenewBulk implements contract.Store.
func (s *Store) RenewBulk(ctx context.Context, r *contract.RenewBulkRequest) (contract.RenewBulkResult, error) {
	ctx, room, end, err := s.begin(ctx, r.Namespace, r.Validate)
	if err != nil {
		return contract.RenewBulkResult{}, err
	}
	defer end()
	out := contract.RenewBulkResult{Items: make([]contract.RenewItemResult, 0, len(r.Leases))}
	for from := 0; from < len(r.Leases); from += renewChunk {
		chunk := make([]contract.RenewRequest, 0, renewChunk)
		for i := from; i < min(from+renewChunk, len(r.Leases)); i++ {
			chunk = append(chunk, r.Item(i))
		}
		items, err := s.renew(ctx, room, chunk)
		if err != nil {
			if from == 0 && len(chunk) == len(r.Leases) {
				return contract.RenewBulkResult{}, err
			}
			if from == 0 && contract.CodeOf(err) != contract.CodeOutcomeUnknown {
				return contract.RenewBulkResult{}, err // nothing was done for any
			}
			items = make([]contract.RenewItemResult, len(chunk))
			for i := range items {
				items[i].Err = err
			}
		}
		out.Items = append(out.Items, items...)
	}
	return out, nil
}

// renew renews leases of one holder, all in one script.
func (s *Store) renew(ctx context.Context, room *room, rs []contract.RenewRequest) ([]contract.RenewItemResult, error) {
	r := &rs[0]
	holder := holderTag(r.Owner, r.Instance)
	by := cause{principal: r.Owner, requestID: r.RequestID, traceID: r.TraceID}
	args := make([]string, 0, 6+5*len(rs))
	args = append(args, string(holder[:]), num(grantable(r.TTL)), num(kept(r.Retention.History)), num(r.Retention.HistoryPerKey),
		num(kept(r.Retention.Idempotency)), by.encode())
	for i := range rs {
		scope, mark := rs[i].Scope(), rs[i].Fingerprint()
		args = append(args, rs[i].LeaseID.KeyID().String(), string(scope[:]), string(mark[:]), string(rs[i].LeaseID[16:]), num(rs[i].Token))
	}
	a, err := s.exec(ctx, room, s.scripts.renew, args...)
	if err != nil {
		return nil, err
	}
	if a.code != "renewals" || len(a.rest) != len(rs) {
		return nil, unexpected(a)
	}
	items := make([]contract.RenewItemResult, len(rs))
	for i := range items {
		parts, err := a.rest[i].ToArray()
		if err != nil || len(parts) == 0 {
			return nil, unexpected(a)
		}
		code, _ := parts[0].ToString() // "" is no code
		items[i].Result, items[i].Err = s.renewed(room, &reply{code: code, now: a.now, rest: parts[1:]})
	}
	return items, nil
}

// renewed is the answer to one renewal.
func (s *Store) renewed(r *room, a *reply) (contract.Result, error) {
	switch a.code {
	case "failed":
		return contract.Result{}, contract.Errorf(contract.CodeInternal, errRecord, "a stored record is corrupt")
	case "renewed":
	default:
		res, err := s.concluded(r, a, 0)
		res.Replayed = a.number(1) == 1
		return res, err
	}
	v, err := parseRecord(r.namespace, a.text(0), false)
	first := a.text(2)
	if err != nil || len(first) != 28 {
		return contract.Result{}, contract.Errorf(contract.CodeInternal, errRecord, "a stored record is corrupt")
	}
	r.due(v.expires, a.now)
	// What this renewal set, also when a later one has set more.
	v.renewedAt, v.expires = int64(u64(first)), int64(u64(first[8:]))
	v.lease.RenewedAt, v.lease.ExpiresAt = instant(v.renewedAt), instant(v.expires)
	v.lease.TTL, v.lease.Renewals = micros(u64(first[16:])), uint64(u32(first[24:]))
	return contract.Result{Outcome: contract.OutcomeRenewed, Lease: v.view(a.now), Replayed: a.number(1) == 1}, nil
}

// RaiseFloor implements contract.Store.
func (s *Store) RaiseFloor(ctx context.Context, r *contract.RaiseFloorRequest) error {
	ctx, room, end, err := s.begin(ctx, r.Namespace, r.Validate)
	if err != nil {
		return err
	}
	defer end()
	_, err = s.exec(ctx, room, s.scripts.floor, num(r.Above))
	if err == nil {
		room.saw(r.Above)
	}
	return err
}
