package valkey

import (
	"context"
	"strconv"

	"github.com/valkey-io/valkey-go"

	"leased/contract"
)

// reply is what a script answered.
type reply struct {
	code string
	now  int64 // µs on the server's clock
	rest []valkey.ValkeyMessage
}

// text returns an item of the reply as text, "" for none.
func (r *reply) text(i int) string {
	if i >= len(r.rest) {
		return ""
	}
	s, err := r.rest[i].ToString()
	if err != nil {
		return ""
	}
	return s
}

// number returns an item of the reply as a number, 0 for none.
func (r *reply) number(i int) int64 {
	if i >= len(r.rest) {
		return 0
	}
	n, err := r.rest[i].AsInt64()
	if err != nil {
		return 0
	}
	return n
}

// exec runs a script on the namespace of the room.
func (s *Store) exec(ctx context.Context, r *room, sc *script, args ...string) (*reply, error) {
	if why := s.link.state.Load().forbid; why != "" && !sc.reads {
		return nil, unavailable(nil, why)
	}
	msg, err := s.link.do(ctx, func(ctx context.Context, c valkey.Client) valkey.ValkeyResult {
		return sc.lua.Exec(ctx, c, r.keys, args)
	})
	if err != nil {
		return nil, s.link.rules.of(ctx, err, sc.reads)
	}
	return s.parse(r, sc, msg)
}

// parse takes an answer apart and tells the observer of the leases that the
// script found to be over.
func (s *Store) parse(r *room, sc *script, msg valkey.ValkeyMessage) (*reply, error) {
	items, err := msg.ToArray()
	if err != nil || len(items) < 3 {
		return nil, contract.Errorf(contract.CodeInternal, err, "the script %s gave an answer of another kind", sc.name)
	}
	out := &reply{rest: items[3:]}
	var errCode, errNow error
	out.code, errCode = items[1].ToString()
	out.now, errNow = items[2].AsInt64()
	if errCode != nil || errNow != nil {
		return nil, contract.Errorf(contract.CodeInternal, nil, "the script %s gave an answer of another kind", sc.name)
	}
	if !items[0].IsNil() {
		if ended, err := items[0].AsStrSlice(); err == nil {
			s.observe(r, ended)
		}
	}
	return out, nil
}

func (s *Store) observe(r *room, ended []string) {
	for _, rec := range ended {
		v, err := parseRecord(r.namespace, rec, false)
		if err != nil {
			s.log.Error("valkey: a lease ended whose record is corrupt", "err", err)
			continue
		}
		if s.cfg.Observer != nil {
			s.cfg.Observer(v.endedEvent())
		}
	}
}

// lease reads a record of the reply, nil for none.
func (s *Store) lease(r *room, rec string, now int64) (*contract.Lease, error) {
	if rec == "" {
		return nil, nil //nolint:nilnil // there is none, and that is no error
	}
	v, err := parseRecord(r.namespace, rec, false)
	if err != nil {
		return nil, contract.Errorf(contract.CodeInternal, err, "a stored record is corrupt")
	}
	r.saw(v.lease.Token)
	return v.view(now), nil
}

// leaseOf is lease for a record that must be the key's.
func (s *Store) leaseOf(r *room, key contract.KeyID, rec string, now int64) (*contract.Lease, error) {
	l, err := s.lease(r, rec, now)
	if err == nil && l != nil && l.KeyID != key {
		return nil, contract.Errorf(contract.CodeInternal, errRecord, "a stored record is corrupt")
	}
	return l, err
}

func num[T ~int | ~int64 | ~uint64](n T) string { return strconv.FormatInt(int64(n), 10) }
