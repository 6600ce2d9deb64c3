package etcd

import (
	"context"
	"net/url"
	"strings"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"leased/contract"
)

// maxOps is how many operations a transaction has at most: as many as etcd takes
// by default, less those that the pool adds.
const maxOps = 120

// List implements contract.Store. Held leases are found by the index of owners,
// ended ones among the keys and the archive.
func (s *Store) List(ctx context.Context, r *contract.ListRequest) (contract.ListResult, error) {
	ctx, end, err := s.begin(ctx, r.Validate)
	if err != nil {
		return contract.ListResult{}, err
	}
	defer end()
	l := &listing{s: s, r: r, limit: pageSize(r.Limit)}
	if r.State == 0 || r.State == contract.StateActive {
		return l.active(ctx)
	}
	return l.ended(ctx)
}

// listing is a page on its way.
type listing struct {
	s     *Store
	r     *contract.ListRequest
	limit int
	out   contract.ListResult
	last  string // cursor of the last lease of the page
}

// add takes a lease that matches, and reports whether the page is over: there is
// one more than it holds.
func (l *listing) add(rec *record, cursor string) (full bool) {
	if !l.matches(rec) {
		return false
	}
	if len(l.out.Leases) == l.limit {
		l.out.NextCursor = listCursor + l.last
		return true
	}
	l.out.Leases = append(l.out.Leases, *rec.lease(l.r.Namespace, now()))
	l.last = cursor
	return false
}

func (l *listing) matches(rec *record) bool {
	r := l.r
	is := func(filter, value string) bool { return filter == "" || filter == value }
	return is(r.Owner, rec.Owner) && is(r.Instance, rec.Instance) && is(r.JobID, rec.JobID) &&
		is(r.Tenant, rec.Tenant) && is(r.Program, rec.Program) && is(r.Actor, rec.Actor) &&
		(r.Target == contract.Target{} || r.Target == rec.key().Target) &&
		(r.ExpiresBefore.IsZero() || instant(rec.Expires).Before(r.ExpiresBefore))
}

// active pages through the index of owners. A lease keeps its place in it from
// its grant to its end.
func (l *listing) active(ctx context.Context) (contract.ListResult, error) {
	base := l.s.names.owned(l.r.Namespace)
	prefix := base
	if l.r.Owner != "" {
		prefix = l.s.names.ownedBy(l.r.Namespace, l.r.Owner)
	}
	from, end := prefix, clientv3.GetPrefixRangeEnd(prefix)
	if l.r.Cursor != "" {
		at, ok := activeCursor(l.r.Cursor)
		if !ok {
			return contract.ListResult{}, errCursor()
		}
		from = max(from, base+at+"\x00")
	}
	for {
		resp, fail := l.s.pool.read(ctx, clientv3.OpGet(from, clientv3.WithRange(end), clientv3.WithKeysOnly(), clientv3.WithLimit(int64(min(l.limit+1, maxOps)))))
		if fail != nil {
			return contract.ListResult{}, errorOf(ctx, fail, false)
		}
		found := resp.Responses[0].GetResponseRange()
		if len(found.Kvs) == 0 {
			return l.out, nil
		}
		full, err := l.takeOwned(ctx, base, found.Kvs)
		if err != nil || full || !found.More {
			return l.out, err
		}
		from = string(found.Kvs[len(found.Kvs)-1].Key) + "\x00"
	}
}

// activeCursor takes the cursor of a listing of held leases apart: owner and key.
func activeCursor(cursor string) (string, bool) {
	at, ok := strings.CutPrefix(cursor, listCursor)
	if !ok {
		return "", false
	}
	owner, key, ok := strings.Cut(at, "/")
	if !ok || owner == "" {
		return "", false
	}
	raw, err := url.PathUnescape(owner)
	if err != nil || escape(raw) != owner {
		return "", false
	}
	_, err = contract.ParseKeyID(key)
	return at, err == nil
}

func errCursor() error { return contract.Invalid("cursor", "is not one that list gave") }

// takeOwned adds the leases that entries of the index lead to.
func (l *listing) takeOwned(ctx context.Context, base string, entries []*mvccpb.KeyValue) (full bool, err error) {
	refs := make([]keyRef, len(entries))
	ops := make([]clientv3.Op, len(entries))
	for i, kv := range entries {
		name := string(kv.Key)
		id, err := contract.ParseKeyID(name[strings.LastIndexByte(name, '/')+1:])
		if err != nil {
			return false, corrupt(err, "the index of owners has something that is no key")
		}
		refs[i] = keyRef{l.r.Namespace, id}
		ops[i] = clientv3.OpGet(l.s.names.key(l.r.Namespace, id), clientv3.WithPrefix())
	}
	resp, fail := l.s.pool.read(ctx, ops...)
	if fail != nil {
		return false, errorOf(ctx, fail, false)
	}
	for i, ref := range refs {
		st := &state{ref: ref, queue: &queue{}}
		if err := st.takeKey(l.s.names.key(ref.ns, ref.id), resp.Responses[i].GetResponseRange().GetKvs()); err != nil {
			return false, err
		}
		rec := st.active()
		at := strings.TrimPrefix(string(entries[i].Key), base)
		// Another owner's is listed at its own place in the index.
		if rec == nil || l.s.names.own(ref.ns, rec.Owner, ref.id) != base+at {
			continue
		}
		if l.add(rec, at) {
			return true, nil
		}
	}
	return false, nil
}

// ended pages through keys, and for each through the archive and then the newest
// lease. A lease moves from one to the other, but its ordinal keeps its place.
func (l *listing) ended(ctx context.Context) (contract.ListResult, error) {
	var after endedCursor
	if l.r.Cursor != "" {
		var ok bool
		if after, ok = parseEndedCursor(l.r.Cursor); !ok {
			return contract.ListResult{}, errCursor()
		}
	}
	for {
		recs, next, err := l.endedFrom(ctx, after)
		if err != nil {
			return contract.ListResult{}, err
		}
		for _, rec := range recs {
			if rec.State == l.r.State && l.add(rec, endedCursor{rec.id.KeyID().String(), rec.Ordinal}.String()) {
				return l.out, nil
			}
		}
		if next.key == "" {
			return l.out, nil
		}
		after = next
	}
}

// endedCursor names a lease by key and ordinal.
type endedCursor struct {
	key     string
	ordinal uint64
}

func (c endedCursor) String() string { return c.key + "." + ordinalText(c.ordinal) }

func parseEndedCursor(cursor string) (endedCursor, bool) {
	at, ok := strings.CutPrefix(cursor, listCursor)
	if !ok {
		return endedCursor{}, false
	}
	key, ordinal, ok := strings.Cut(at, ".")
	if !ok {
		return endedCursor{}, false
	}
	n, ok := parseOrdinal(ordinal)
	_, err := contract.ParseKeyID(key)
	return endedCursor{key, n}, ok && err == nil
}
