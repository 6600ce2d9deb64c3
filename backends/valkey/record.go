package valkey

import (
	"encoding/binary"
	"errors"
	"maps"
	"slices"
	"time"

	"leased/contract"
)

// Where things stand in a record, from 0; scripts/record.lua has the same from 1.
const (
	atState   = 1
	atKey     = 2
	atNonce   = 18
	atHolder  = 34
	atDyn     = 50
	atMaxLife = 122
	atOwner   = 146
	atTarget  = 158
	atJob     = 166
	atInst    = 174
	atTenant  = 182
	atProgram = 190
	atActor   = 198
	atText    = 206
	suffixLen = 52
	minRecord = atText + 4 + 4 + suffixLen

	recordVersion = 1
)

// errRecord is a record that does not parse or does not belong where it stands.
var errRecord = errors.New("a stored record is corrupt")

// head is what the record of a grant begins with.
func head(key contract.KeyID, nonce, holder [16]byte) []byte {
	b := make([]byte, 0, atDyn)
	b = append(b, recordVersion, byte(contract.StateActive))
	b = append(b, key[:]...)
	b = append(b, nonce[:]...)
	return append(b, holder[:]...)
}

// nonceOf returns the nonce that a record, or the head of one, holds.
func nonceOf(rec string) string { return rec[atNonce:atHolder] }

// fixed is what of a record never changes and no script looks into, but for the
// tags, then the empty text of an end.
func fixed(r *contract.AcquireRequest, scope contract.Scope, maxLife int64) []byte {
	b := make([]byte, 0, 512)
	b = binary.BigEndian.AppendUint64(b, uint64(maxLife))
	b = append(b, scope[:]...)
	b = appendTag(b, 'o', r.Owner, ownerTagLen)
	b = appendTag(b, 't', targetText(r.Key.Target), tagLen)
	b = appendTag(b, 'j', r.JobID, tagLen)
	b = appendTag(b, 'i', r.Instance, tagLen)
	b = appendTag(b, 'e', r.Key.Tenant, tagLen)
	b = appendTag(b, 'p', r.Key.Program, tagLen)
	b = appendTag(b, 'a', r.Key.Actor, tagLen)
	length := len(b)
	b = append(b, 0, 0, 0, 0)
	for _, s := range [...]string{
		r.Key.Tenant, r.Key.Program, string(r.Key.Target.Type), r.Key.Target.ID, r.Key.Actor, r.Key.Workflow, r.Key.Operation,
		r.Owner, r.Instance, r.ExecutionID, r.JobID, r.TraceID, r.RequestID,
	} {
		b = appendText(b, s)
	}
	b = binary.AppendUvarint(b, uint64(r.MaxLifetime))
	for _, name := range slices.Sorted(maps.Keys(r.Metadata)) {
		b = appendText(b, name)
		b = appendText(b, r.Metadata[name])
	}
	binary.BigEndian.PutUint32(b[length:], uint32(len(b)-length-4))
	return append(b, 0, 0, 0, 0)
}

// cause is who did something, with which call, and why.
type cause struct{ principal, requestID, traceID, reason string }

func (c cause) encode() string {
	b := make([]byte, 0, 128)
	for _, s := range [...]string{c.principal, c.requestID, c.traceID, c.reason} {
		b = appendText(b, s)
	}
	return string(b)
}

func parseCause(s string) (cause, error) {
	r := reader{s: s}
	c := cause{principal: r.text(), requestID: r.text(), traceID: r.text(), reason: r.text()}
	return c, r.end()
}

func appendText(b []byte, s string) []byte {
	b = binary.AppendUvarint(b, uint64(len(s)))
	return append(b, s...)
}

// reader takes a text apart. Its first failure sticks.
type reader struct {
	s   string
	bad bool
}

func (r *reader) uvarint() uint64 {
	n, size := uint64(0), 0
	for shift := uint(0); size < len(r.s) && shift < 64; shift += 7 {
		c := r.s[size]
		size++
		n |= uint64(c&0x7f) << shift
		if c < 0x80 {
			r.s = r.s[size:]
			return n
		}
	}
	r.bad = true
	return 0
}

func (r *reader) text() string {
	n := r.uvarint()
	if r.bad || n > uint64(len(r.s)) {
		r.bad = true
		return ""
	}
	s := r.s[:n]
	r.s = r.s[n:]
	return s
}

func (r *reader) end() error {
	if r.bad || r.s != "" {
		return errRecord
	}
	return nil
}

// place is where an event stands in the namespace's stream; the zero place is
// none's.
type place struct{ epoch, n uint64 }

// stored is a record taken apart.
type stored struct {
	lease     contract.Lease // without what depends on now
	renewedAt int64          // µs
	expires   int64
	recorded  int64 // when its end was committed
	acquired  place
	ended     place
	end       cause
	keep      contract.Retention
}

func u64(s string) uint64 { return binary.BigEndian.Uint64([]byte(s[:8])) }

func u32(s string) uint32 { return binary.BigEndian.Uint32([]byte(s[:4])) }

func instant(us int64) time.Time { return time.UnixMicro(us).UTC() }

func micros(us uint64) time.Duration { return time.Duration(us) * time.Microsecond }

// parseRecord takes a record of the namespace apart. A body is a record without
// the places of its events, as the stream has it.
func parseRecord(namespace, rec string, body bool) (*stored, error) {
	if body {
		rec += string(make([]byte, suffixLen))
	}
	if len(rec) < minRecord || rec[0] != recordVersion {
		return nil, errRecord
	}
	d := rec[atDyn:]
	v := &stored{
		renewedAt: int64(u64(d[16:])), expires: int64(u64(d[24:])), recorded: int64(u64(d[44:])),
		keep: contract.Retention{History: micros(u64(d[52:])), HistoryPerKey: int(u32(d[60:])), Idempotency: micros(u64(d[64:]))},
	}
	key := contract.KeyID([]byte(rec[atKey:atNonce]))
	l := &v.lease
	l.RecordVersion, l.Namespace, l.KeyID = contract.RecordVersion, namespace, key
	l.ID = contract.NewLeaseID(key, [16]byte([]byte(rec[atNonce:atHolder])))
	l.State, l.Token = contract.State(rec[atState]), contract.Token(u64(d))
	l.AcquiredAt, l.RenewedAt, l.ExpiresAt = instant(int64(u64(d[8:]))), instant(v.renewedAt), instant(v.expires)
	l.TTL, l.Renewals = micros(u64(d[32:])), uint64(u32(d[40:]))
	rest, err := v.parseText(rec[atText:])
	if err != nil {
		return nil, err
	}
	v.acquired = place{u64(rest), u64(rest[8:])}
	v.ended = place{u64(rest[16:]), u64(rest[24:])}
	if l.KeyID != l.Key.ID() || l.State < contract.StateActive || l.State > contract.StateRevoked {
		return nil, errRecord
	}
	return v, nil
}

// parseText reads the texts of a record and returns what follows them.
func (v *stored) parseText(s string) (string, error) {
	n := uint64(u32(s))
	if 4+n+4+suffixLen > uint64(len(s)) {
		return "", errRecord
	}
	r := reader{s: s[4 : 4+n]}
	l := &v.lease
	l.Key = contract.Key{
		Tenant: r.text(), Program: r.text(), Target: contract.Target{Type: contract.TargetType(r.text()), ID: r.text()},
		Actor: r.text(), Workflow: r.text(), Operation: r.text(),
	}
	l.Owner, l.Instance, l.ExecutionID = r.text(), r.text(), r.text()
	l.JobID, l.TraceID, l.RequestID = r.text(), r.text(), r.text()
	l.MaxLifetime = time.Duration(r.uvarint())
	for !r.bad && r.s != "" {
		if l.Metadata == nil {
			l.Metadata = map[string]string{}
		}
		name := r.text()
		l.Metadata[name] = r.text()
	}
	if err := r.end(); err != nil {
		return "", err
	}
	s = s[4+n:]
	n = uint64(u32(s))
	if 4+n+suffixLen != uint64(len(s)) {
		return "", errRecord
	}
	return s[4+n:], v.parseEnd(s[4 : 4+n])
}

// parseEnd reads how the lease ended.
func (v *stored) parseEnd(tail string) error {
	l := &v.lease
	switch l.State {
	case contract.StateActive:
		if tail != "" {
			return errRecord
		}
		return nil
	case contract.StateExpired:
		if len(tail) != 8 {
			return errRecord
		}
		l.EndedAt = instant(v.recorded)
		v.recorded = int64(u64(tail))
		return nil
	default:
		var err error
		v.end, err = parseCause(tail)
		l.EndedAt, l.EndedBy, l.Reason = instant(v.recorded), v.end.principal, v.end.reason
		return err
	}
}

// view returns the lease as it is shown at an instant of the server's clock.
func (v *stored) view(now int64) *contract.Lease {
	l := v.lease
	if l.State == contract.StateActive {
		l.ExpiresIn = max(0, time.Duration(v.expires-now)*time.Microsecond)
	}
	return &l
}
