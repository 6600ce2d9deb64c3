package etcd

import (
	"context"
	"strconv"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"leased/contract"
)

// The floor of a namespace is a number that is added to the revision of a grant.

func decodeFloor(value []byte) (int64, error) {
	n, err := strconv.ParseInt(string(value), 10, 64)
	if err != nil || n < 0 || n > int64(contract.MaxToken) {
		return 0, corrupt(err, "a stored floor is not a number")
	}
	return n, nil
}

// RaiseFloor implements contract.Store.
func (s *Store) RaiseFloor(ctx context.Context, r *contract.RaiseFloorRequest) error {
	ctx, end, err := s.begin(ctx, r.Validate)
	if err != nil {
		return err
	}
	defer end()
	return s.raiseFloor(ctx, r.Namespace, r.Above)
}

// raiseFloor makes every token of a transaction after this one higher than
// above.
func (s *Store) raiseFloor(ctx context.Context, ns string, above contract.Token) error {
	name := s.names.floor(ns)
	maybe := false
	var full *failure
	for {
		resp, fail := s.pool.read(ctx, clientv3.OpGet(name))
		if fail != nil {
			return writeError(ctx, fail, maybe)
		}
		var floor, mod int64
		for _, kv := range resp.Responses[0].GetResponseRange().GetKvs() {
			var err error
			if floor, err = decodeFloor(kv.Value); err != nil {
				return err
			}
			mod = kv.ModRevision
		}
		// The next transaction's revision is at least one more than this one.
		need := int64(above) - resp.Header.Revision
		switch {
		case need <= floor:
			return nil
		case full != nil: // and it was not applied
			return writeError(ctx, full, maybe)
		}
		done, fail := s.pool.txn(ctx,
			[]clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(name), "=", mod)},
			[]clientv3.Op{clientv3.OpPut(name, strconv.FormatInt(need, 10))})
		switch {
		case fail == nil && done.Succeeded:
			return nil
		case fail != nil && fail.noSpace():
			full = &failure{err: fail.err, sent: true, refused: true}
		case fail != nil && !fail.unknown():
			return writeError(ctx, fail, maybe)
		case fail != nil:
			maybe = true
		}
	}
}

// tokens has the highest token that this store has seen, and the one that every
// new token must be above since etcd was found to have gone back.
type tokens struct{ top, above atomic.Int64 }

func (t *tokens) see(token contract.Token) { raise(&t.top, int64(token)) }

func raise(v *atomic.Int64, to int64) {
	for have := v.Load(); to > have && !v.CompareAndSwap(have, to); have = v.Load() {
	}
}

// wentBack is told when etcd shows an older state than before: it was restored
// from a backup or emptied. Leases that were granted in between are gone, and
// their tokens, which may be anywhere, must stay lower than what comes now. No
// revision rises by more than one a microsecond, so that the clock is above all
// that were ever granted.
func (s *Store) wentBack() {
	raise(&s.tokens.above, max(s.tokens.top.Load(), time.Now().UnixMicro()))
	s.hints.clear()
	s.buckets.forget()
	s.spares.expire(true)
	s.wakeLines()
	s.config.Logger.Warn("etcd has gone back to an older state; tokens continue above the highest one seen")
}

// lags tells that a grant of the state would have a token that is too low.
func (s *Store) lags(st *state) bool { return st.floor+st.rev < s.tokens.above.Load() }

// catchUp raises the floor of a namespace that lags.
func (s *Store) catchUp(ctx context.Context, ns string) error {
	above := contract.Token(s.tokens.above.Load())
	if err := s.raiseFloor(ctx, ns, above); err != nil {
		return err
	}
	return undoneError{} // look again
}

// tokenLeft reports whether a grant that is sent now still has a token. The
// revision is known only afterwards, so it is looked at again then.
func (st *state) tokenLeft() bool { return st.floor+st.rev < int64(contract.MaxToken) }
