package etcd

import (
	"context"
	"errors"
	"slices"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"

	"leased/contract"
)

// What a cursor starts with tells which method made it.
const (
	historyCursor = "h"
	listCursor    = "l"
)

// History implements contract.Store. Events are not stored by themselves: each
// lease's record has its two.
func (s *Store) History(ctx context.Context, r *contract.HistoryRequest) (contract.HistoryResult, error) {
	ctx, end, err := s.begin(ctx, r.Validate)
	if err != nil {
		return contract.HistoryResult{}, err
	}
	defer end()
	before := ""
	if r.Cursor != "" {
		var ok bool
		if before, ok = strings.CutPrefix(r.Cursor, historyCursor); ok {
			_, _, ok = parseEventID(before)
		}
		if !ok {
			return contract.HistoryResult{}, contract.Invalid("cursor", "is not one that history gave")
		}
	}
	st, archive, err := s.story(ctx, keyRef{r.Namespace, r.KeyID})
	if err != nil || st.head == nil {
		return contract.HistoryResult{}, err
	}
	var res contract.HistoryResult
	limit := pageSize(r.Limit)
	for _, ev := range st.events(archive, now()) {
		if before != "" && ev.ID >= before {
			continue
		}
		if len(res.Events) == limit {
			res.NextCursor = historyCursor + res.Events[limit-1].ID
			break
		}
		res.Events = append(res.Events, ev)
	}
	return res, nil
}

func pageSize(limit int) int {
	if limit == 0 {
		return contract.DefaultPage
	}
	return limit
}

// story reads a key with as much of its archive as its history can show, oldest
// first, at one revision.
func (s *Store) story(ctx context.Context, ref keyRef) (*state, []*record, error) {
	prefix := s.names.archivesOf(ref.ns, ref.id)
	from := uint64(0)
	for {
		ops := append(s.ops(ref, want{}), clientv3.OpGet(
			prefix+ordinalText(from), clientv3.WithRange(clientv3.GetPrefixRangeEnd(prefix))))
		resp, fail := s.pool.read(ctx, ops...)
		if fail != nil {
			return nil, nil, errorOf(ctx, fail, false)
		}
		st, err := s.parse(ref, want{}, resp, 0)
		if err != nil {
			return nil, nil, err
		}
		if st.due() {
			err := s.settle(ctx, st)
			if err == nil {
				continue
			}
			// Without space the expiry is not on record yet, and so not shown.
			if f, ok := errors.AsType[*failure](err); !ok || !f.noSpace() {
				return nil, nil, errorOf(ctx, err, false)
			}
		}
		var archive []*record
		for _, kv := range resp.Responses[len(ops)-1].GetResponseRange().GetKvs() {
			rec, err := decodeRecord(kv.Value, kv.ModRevision, ref.id)
			if err != nil {
				return nil, nil, err
			}
			archive = append(archive, rec)
		}
		return st, archive, nil
	}
}

// events returns the key's history, newest first: as many as are kept, and none
// that is too old.
func (st *state) events(archive []*record, t int64) []contract.Event {
	all := slices.Concat(archive, []*record{st.head})
	var out []contract.Event
	for i := len(all) - 1; i >= 0 && len(out) < st.keepEvents(); i-- {
		r := all[i]
		if r.State.Terminal() {
			if tooOld(r.Recorded, t, st.head) {
				break
			}
			out = append(out, endedEvent(st.ref.ns, r))
		}
		if tooOld(r.Acquired, t, st.head) {
			break
		}
		out = append(out, acquiredEvent(st.ref.ns, r))
	}
	return out[:min(len(out), st.keepEvents())]
}
