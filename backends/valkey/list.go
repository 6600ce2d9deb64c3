package valkey

import (
	"context"
	"strconv"
	"strings"
	"time"

	"leased/contract"
)

// mostLooked bounds how many leases one script looks at, so that a list with a
// filter that matches little keeps nobody waiting. A page may be shorter for
// it, and has a cursor then.
const mostLooked = 1000

// keyIDLen is the length of a key's id as text.
const keyIDLen = 22

// List implements contract.Store. Active leases are in the order of their owners'
// tags and keys, ended ones in the order in which they are forgotten.
func (s *Store) List(ctx context.Context, r *contract.ListRequest) (contract.ListResult, error) {
	ctx, room, end, err := s.begin(ctx, r.Namespace, r.Validate)
	if err != nil {
		return contract.ListResult{}, err
	}
	defer end()
	if r.State != 0 && r.State != contract.StateActive {
		return s.listEnded(ctx, room, r)
	}
	after := ""
	if r.Cursor != "" {
		var ok bool
		if after, ok = parseListCursor(r.Cursor); !ok {
			return contract.ListResult{}, errListCursor()
		}
	}
	prefix, rest := indexOf(r)
	args := append([]string{prefix, after}, bounds(r, rest)...)
	a, err := s.exec(ctx, room, s.scripts.list, args...)
	if err != nil {
		return contract.ListResult{}, err
	}
	out, err := s.page(room, r, a, 1)
	if last := a.text(0); last != "" && err == nil {
		out.NextCursor = listCursor + contract.EncodeText([]byte(last))
	}
	return out, err
}

// parseListCursor returns what of an index's member follows the prefix: a key id,
// and the tag of the owner before it where every owner is listed.
func parseListCursor(cursor string) (string, bool) {
	text, ok := strings.CutPrefix(cursor, listCursor)
	raw, whole := contract.DecodeText(text)
	if !ok || !whole || (len(raw) != keyIDLen && len(raw) != ownerTagLen+keyIDLen) {
		return "", false
	}
	_, err := contract.ParseKeyID(string(raw[len(raw)-keyIDLen:]))
	return string(raw), err == nil
}

func errListCursor() error { return contract.Invalid("cursor", "is not one that list gave") }

// bounds are the arguments that both list scripts share.
func bounds(r *contract.ListRequest, filters []string) []string {
	before := "0"
	if !r.ExpiresBefore.IsZero() {
		before = num(max(1, r.ExpiresBefore.Add(time.Microsecond-1).UnixMicro()))
	}
	return append([]string{num(pageSize(r.Limit)), num(mostLooked), before}, filters...)
}

// indexOf returns the index that leads to the fewest leases, and what is left to
// compare.
func indexOf(r *contract.ListRequest) (string, []string) {
	filters := filtersOf(r)
	switch {
	case r.JobID != "":
		return "j" + textTag('j', r.JobID, tagLen), filters
	case r.Target != (contract.Target{}):
		return "t" + textTag('t', targetText(r.Target), tagLen), filters
	case r.Owner != "":
		return "o" + textTag('o', r.Owner, ownerTagLen), filters
	}
	return "o", filters // of every owner
}

// filtersOf returns where in a record which tag has to stand.
func filtersOf(r *contract.ListRequest) []string {
	var out []string
	for _, f := range [...]struct {
		kind byte
		text string
		n    int
		at   int
	}{
		{'o', r.Owner, ownerTagLen, atOwner},
		{'t', targetText(r.Target), tagLen, atTarget},
		{'j', r.JobID, tagLen, atJob},
		{'i', r.Instance, tagLen, atInst},
		{'e', r.Tenant, tagLen, atTenant},
		{'p', r.Program, tagLen, atProgram},
		{'a', r.Actor, tagLen, atActor},
	} {
		if f.text != "" {
			out = append(out, strconv.Itoa(f.at+1), textTag(f.kind, f.text, f.n))
		}
	}
	return out
}

// page reads the leases of an answer. Tags stand for texts, so the texts
// themselves have the last word.
func (s *Store) page(room *room, r *contract.ListRequest, a *reply, from int) (contract.ListResult, error) {
	var out contract.ListResult
	if a.code != "list" {
		return out, unexpected(a)
	}
	for i := from; i < len(a.rest); i++ {
		l, err := s.lease(room, a.text(i), a.now)
		if err != nil {
			return contract.ListResult{}, err
		}
		if l != nil && matches(r, l) {
			out.Leases = append(out.Leases, *l)
		}
	}
	return out, nil
}

func matches(r *contract.ListRequest, l *contract.Lease) bool {
	is := func(filter, value string) bool { return filter == "" || filter == value }
	return is(r.Owner, l.Owner) && is(r.Instance, l.Instance) && is(r.JobID, l.JobID) &&
		is(r.Tenant, l.Key.Tenant) && is(r.Program, l.Key.Program) && is(r.Actor, l.Key.Actor) &&
		(r.Target == contract.Target{} || r.Target == l.Key.Target) &&
		(r.ExpiresBefore.IsZero() || l.ExpiresAt.Before(r.ExpiresBefore))
}

// listEnded lists leases that are over and still remembered.
func (s *Store) listEnded(ctx context.Context, room *room, r *contract.ListRequest) (contract.ListResult, error) {
	score, after := "0", ""
	if r.Cursor != "" {
		var ok bool
		if score, after, ok = parseEndedCursor(r.Cursor); !ok {
			return contract.ListResult{}, errListCursor()
		}
	}
	args := append([]string{strconv.Itoa(int(r.State)), score, after}, bounds(r, filtersOf(r))...)
	for {
		a, err := s.exec(ctx, room, s.scripts.listEnded, args...)
		if err != nil {
			return contract.ListResult{}, err
		}
		if a.code == "again" {
			continue // many were over and nobody had noticed
		}
		out, err := s.page(room, r, a, 2)
		if last := a.text(0); last != "" && err == nil {
			out.NextCursor = endedCursor + a.text(1) + "." + contract.EncodeText([]byte(last))
		}
		return out, err
	}
}

func parseEndedCursor(cursor string) (score, member string, ok bool) {
	rest, ok := strings.CutPrefix(cursor, endedCursor)
	score, text, cut := strings.Cut(rest, ".")
	raw, whole := contract.DecodeText(text)
	n, errScore := strconv.ParseUint(score, 10, 53)
	ok = ok && cut && whole && errScore == nil && strconv.FormatUint(n, 10) == score && len(raw) == 38
	return score, string(raw), ok
}
