package etcd

import (
	"cmp"
	"context"
	"slices"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"

	"leased/contract"
)

// endedScan is how many values a step of a listing of ended leases reads from
// either place.
const endedScan = 500

// endedFrom reads the remembered leases after a place, in order, and how far it
// came; the zero place when that is the end.
func (l *listing) endedFrom(ctx context.Context, after endedCursor) ([]*record, endedCursor, error) {
	s, ns := l.s, l.r.Namespace
	keys, archives := s.names.keys(ns), s.names.archives(ns)
	fromKey, fromArchive := keys, archives
	if after.key != "" {
		fromKey = keys + after.key + "/"
		fromArchive = archives + after.key + "/" + ordinalText(after.ordinal) + "\x00"
	}
	resp, fail := s.pool.read(ctx,
		clientv3.OpGet(fromKey, clientv3.WithRange(clientv3.GetPrefixRangeEnd(keys)), clientv3.WithLimit(endedScan)),
		clientv3.OpGet(fromArchive, clientv3.WithRange(clientv3.GetPrefixRangeEnd(archives)), clientv3.WithLimit(endedScan)))
	if fail != nil {
		return nil, endedCursor{}, errorOf(ctx, fail, false)
	}
	heads, archived := resp.Responses[0].GetResponseRange(), resp.Responses[1].GetResponseRange()
	end := endedCursor{}
	states := map[string]*state{}
	for _, kv := range heads.Kvs {
		_, id, _, ok := s.names.splitKey(string(kv.Key))
		if !ok {
			continue
		}
		st := states[id.String()]
		if st == nil {
			st = &state{ref: keyRef{ns, id}, queue: &queue{}}
			states[id.String()] = st
		}
		if err := st.takeKey(s.names.key(ns, id), append(heads.Kvs[:0:0], kv)); err != nil {
			return nil, endedCursor{}, err
		}
	}
	if heads.More {
		// The last key may have been cut: it is left to the next step.
		_, id, _, _ := s.names.splitKey(string(heads.Kvs[len(heads.Kvs)-1].Key))
		delete(states, id.String())
		end = lower(end, endedCursor{id.String(), 0})
	}
	var recs []*record
	for _, kv := range archived.Kvs {
		rec, err := s.decodeArchived(kv.Key, kv.Value, kv.ModRevision, archives)
		if err != nil {
			return nil, endedCursor{}, err
		}
		recs = append(recs, rec)
	}
	if archived.More {
		last := recs[len(recs)-1]
		end = lower(end, endedCursor{last.id.KeyID().String(), last.Ordinal})
	}
	recs, err := l.withHeads(ctx, states, recs, after)
	if err != nil {
		return nil, endedCursor{}, err
	}
	slices.SortFunc(recs, func(a, b *record) int { return endedOrder(placeOf(a), placeOf(b)) })
	if end.key != "" {
		recs = slices.DeleteFunc(recs, func(r *record) bool { return endedOrder(placeOf(r), end) > 0 })
	}
	return recs, end, nil
}

func placeOf(r *record) endedCursor { return endedCursor{r.id.KeyID().String(), r.Ordinal} }

func endedOrder(a, b endedCursor) int {
	return cmp.Or(strings.Compare(a.key, b.key), cmp.Compare(a.ordinal, b.ordinal))
}

// lower returns the lower of two ends of a step; the zero one is none.
func lower(a, b endedCursor) endedCursor {
	if a.key == "" || endedOrder(b, a) < 0 {
		return b
	}
	return a
}

func (s *Store) decodeArchived(name, value []byte, rev int64, archives string) (*record, error) {
	key, _, _ := strings.Cut(strings.TrimPrefix(string(name), archives), "/")
	id, err := contract.ParseKeyID(key)
	if err != nil {
		return nil, corrupt(err, "the archive has something that is of no key")
	}
	return decodeRecord(value, rev, id)
}

// withHeads adds the newest leases of the keys that were read, and drops what is
// no longer remembered. One that is over and not written down is settled first.
func (l *listing) withHeads(ctx context.Context, states map[string]*state, recs []*record, after endedCursor) ([]*record, error) {
	t := now()
	for key, st := range states {
		if st.due() {
			settled, err := l.s.view(ctx, st.ref, want{})
			if err != nil {
				return nil, err
			}
			states[key] = settled
		}
	}
	recs = slices.DeleteFunc(recs, func(r *record) bool {
		st := states[r.id.KeyID().String()]
		return st != nil && st.head != nil && !st.remembers(r, t)
	})
	for _, st := range states {
		if st.head != nil && st.remembers(st.head, t) && endedOrder(placeOf(st.head), after) > 0 {
			recs = append(recs, st.head)
		}
	}
	return recs, nil
}
