package etcd

import (
	"context"

	clientv3 "go.etcd.io/etcd/client/v3"

	"leased/contract"
)

// ownerAtLimit reports whether the owner has as many active leases in the
// namespace as it may have. The index may have some that are over and not
// written down: before anybody is refused, those are.
func (s *Store) ownerAtLimit(ctx context.Context, st *state, a *attempt) (bool, error) {
	limit := int64(a.req.Limits.LeasesPerOwner)
	if limit == 0 || st.owned < limit {
		return false, nil
	}
	prefix := s.names.ownedBy(st.ref.ns, a.req.Owner)
	from, end := prefix, clientv3.GetPrefixRangeEnd(prefix)
	active := int64(0)
	for {
		resp, fail := s.pool.read(ctx, clientv3.OpGet(from, clientv3.WithRange(end), clientv3.WithKeysOnly(), clientv3.WithLimit(maxOps)))
		if fail != nil {
			return false, fail
		}
		found := resp.Responses[0].GetResponseRange()
		var ops []clientv3.Op
		var refs []keyRef
		for _, kv := range found.Kvs {
			from = string(kv.Key) + "\x00"
			id, err := contract.ParseKeyID(string(kv.Key)[len(prefix):])
			if err != nil {
				return false, corrupt(err, "the index of owners has something that is no key")
			}
			refs = append(refs, keyRef{st.ref.ns, id})
			ops = append(ops, clientv3.OpGet(s.names.key(st.ref.ns, id), clientv3.WithPrefix()))
		}
		if len(ops) == 0 {
			return false, nil
		}
		if resp, fail = s.pool.read(ctx, ops...); fail != nil {
			return false, fail
		}
		for i, ref := range refs {
			other := &state{ref: ref, queue: &queue{}}
			if err := other.takeKey(s.names.key(ref.ns, ref.id), resp.Responses[i].GetResponseRange().GetKvs()); err != nil {
				return false, err
			}
			if other.due() {
				if err := s.settle(ctx, other); err != nil {
					return false, err
				}
				continue
			}
			if other.active() != nil {
				active++
			}
		}
		if active >= limit || !found.More {
			return active >= limit, nil
		}
	}
}
