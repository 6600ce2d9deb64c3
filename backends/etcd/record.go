package etcd

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"maps"
	"time"

	"github.com/fxamacker/cbor/v2"
	"go.etcd.io/etcd/api/v3/mvccpb"

	"leased/contract"
)

// recordVersion is the version of every value that this release writes. Another
// one fails closed.
const recordVersion = 1

// record is a lease as it is stored: under its key's head while it is the newest
// one of the key, in the archive afterwards. Instants are microseconds of the
// wall clock of the gateway that wrote them; they are shown and decide nothing.
// A field's number in the stored value is never given to another one.
type record struct {
	Version int    `cbor:"1,keyasint"`
	Ordinal uint64 `cbor:"2,keyasint"` // rises with each grant of the key

	Tenant     string `cbor:"3,keyasint"`
	Program    string `cbor:"4,keyasint"`
	TargetType string `cbor:"5,keyasint"`
	Target     string `cbor:"6,keyasint"`
	Actor      string `cbor:"7,keyasint"`
	Workflow   string `cbor:"8,keyasint"`
	Operation  string `cbor:"9,keyasint"`

	LeaseID  string         `cbor:"10,keyasint"`
	Owner    string         `cbor:"11,keyasint"`
	Instance string         `cbor:"12,keyasint"`
	State    contract.State `cbor:"13,keyasint"`

	// Floor and Rev make the token. Rev is the revision of the grant, and 0 in
	// the very value that the grant wrote, which cannot know it: there it is the
	// value's own revision.
	Floor int64 `cbor:"14,keyasint"`
	Rev   int64 `cbor:"15,keyasint,omitempty"`
	// EndRev is the revision of the end, in the archive; in the head it is the
	// value's own.
	EndRev int64 `cbor:"16,keyasint,omitempty"`

	// Prev is the lease that was ended in the step of the grant, for its event,
	// until the head is written again.
	Prev *record `cbor:"17,keyasint,omitempty"`

	Acquired int64         `cbor:"18,keyasint"`
	Renewed  int64         `cbor:"19,keyasint"`
	Expires  int64         `cbor:"20,keyasint"`
	TTL      time.Duration `cbor:"21,keyasint"`
	MaxLife  time.Duration `cbor:"22,keyasint"`
	Renewals uint64        `cbor:"23,keyasint,omitempty"`

	ExecutionID string            `cbor:"24,keyasint,omitempty"`
	JobID       string            `cbor:"25,keyasint,omitempty"`
	TraceID     string            `cbor:"26,keyasint,omitempty"`
	RequestID   string            `cbor:"27,keyasint"`
	Metadata    map[string]string `cbor:"28,keyasint,omitempty"`

	// Of the latest renewal, for its event.
	RenewRequestID string `cbor:"29,keyasint,omitempty"`
	RenewTraceID   string `cbor:"30,keyasint,omitempty"`

	// Once it has ended.
	Ended        int64  `cbor:"31,keyasint,omitempty"`
	Recorded     int64  `cbor:"32,keyasint,omitempty"` // when the end was written down
	EndedBy      string `cbor:"33,keyasint,omitempty"`
	Reason       string `cbor:"34,keyasint,omitempty"`
	EndRequestID string `cbor:"35,keyasint,omitempty"`
	EndTraceID   string `cbor:"36,keyasint,omitempty"`

	// The etcd leases of the TTL, with the TTL that etcd granted, and of the
	// maximum lifetime.
	Lease    int64 `cbor:"37,keyasint"`
	LeaseTTL int64 `cbor:"38,keyasint"`
	Life     int64 `cbor:"39,keyasint,omitempty"`

	// Retention of the latest request that changed something.
	KeepAnswer  time.Duration `cbor:"40,keyasint"`
	KeepHistory time.Duration `cbor:"41,keyasint"`
	KeepEvents  int           `cbor:"42,keyasint"`

	// rev is the revision of the value that this was decoded from; those of what
	// it hangs on are known only of values that this store wrote.
	rev      int64
	aliveRev int64
	lifeRev  int64
	fresh    time.Time // see held
	lifeEnds time.Time // when the maximum lifetime is over, if this store made the grant
	id       contract.LeaseID
}

func (r *record) key() contract.Key {
	return contract.Key{
		Tenant: r.Tenant, Program: r.Program, Target: contract.Target{Type: contract.TargetType(r.TargetType), ID: r.Target},
		Actor: r.Actor, Workflow: r.Workflow, Operation: r.Operation,
	}
}

// grantRev is the revision of the transaction that granted.
func (r *record) grantRev() int64 {
	if r.Rev != 0 {
		return r.Rev
	}
	return r.rev
}

func (r *record) endRev() int64 {
	if r.EndRev != 0 {
		return r.EndRev
	}
	return r.rev
}

func (r *record) token() contract.Token { return contract.Token(r.Floor + r.grantRev()) }

// next returns a copy to be changed and written, with what only the value's
// revision told filled in.
func (r *record) next() *record {
	c := *r
	c.Rev = r.grantRev()
	c.Prev = nil
	c.Metadata = maps.Clone(r.Metadata)
	return &c
}

// isOf tells that the lease was granted to the attempt, or to a copy of it.
func (r *record) isOf(a *attempt) bool {
	return r.Owner == a.req.Owner && r.RequestID == a.req.RequestID
}

// keep notes how long another request wants to find the record. Earlier ones may
// want it for longer: what they were answered is made of it.
func (r *record) keep(k contract.Retention) {
	r.KeepAnswer = max(r.KeepAnswer, k.Idempotency)
	r.KeepHistory, r.KeepEvents = k.History, k.HistoryPerKey
}

// keepFor is how long the record must be kept once it has ended.
func (r *record) keepFor() time.Duration { return max(r.KeepAnswer, r.KeepHistory) }

// lease returns the record as an answer shows it at now.
func (r *record) lease(ns string, now int64) *contract.Lease {
	l := &contract.Lease{
		RecordVersion: contract.RecordVersion, Namespace: ns, Key: r.key(), KeyID: r.id.KeyID(), ID: r.id,
		Owner: r.Owner, Instance: r.Instance, Token: r.token(), State: r.State,
		AcquiredAt: instant(r.Acquired), RenewedAt: instant(r.Renewed), ExpiresAt: instant(r.Expires),
		TTL: r.TTL, MaxLifetime: r.MaxLife, Renewals: r.Renewals,
		ExecutionID: r.ExecutionID, JobID: r.JobID, TraceID: r.TraceID, RequestID: r.RequestID,
		Metadata: maps.Clone(r.Metadata),
	}
	if r.State == contract.StateActive {
		l.ExpiresIn = left(r.Expires, now, r.TTL)
		return l
	}
	l.EndedAt, l.EndedBy, l.Reason = instant(r.Ended), r.EndedBy, r.Reason
	return l
}

// left is what is shown of the time that is left: something while the lease is
// alive, since etcd may end it late, and never more than its TTL.
func left(expires, now int64, ttl time.Duration) time.Duration {
	return min(max(time.Duration(expires-now)*time.Microsecond, time.Millisecond), ttl)
}

func instant(us int64) time.Time { return time.UnixMicro(us).UTC() }

// encode returns the value to store. Every field is text, a number or a map of
// texts, which cannot fail.
func encode(v any) string {
	b, err := cbor.Marshal(v)
	if err != nil {
		panic("etcd: a record that CBOR cannot hold: " + err.Error())
	}
	return string(b)
}

// decodeRecord reads a lease of the key with the given id. What does not belong
// there is corrupt: nothing is granted over it.
func decodeRecord(value []byte, rev int64, id contract.KeyID) (*record, error) {
	var r record
	if err := cbor.Unmarshal(value, &r); err != nil {
		return nil, corrupt(err, "a stored lease cannot be read")
	}
	if r.Version != recordVersion {
		return nil, corrupt(nil, "a stored lease has version %d; this release knows %d", r.Version, recordVersion)
	}
	leaseID, err := contract.ParseLeaseID(r.LeaseID)
	if err != nil || leaseID.KeyID() != id || r.key().ID() != id {
		return nil, corrupt(err, "a stored lease is not of the key that it is stored under")
	}
	if r.State < contract.StateActive || r.State > contract.StateRevoked {
		return nil, corrupt(nil, "a stored lease is in no state")
	}
	r.rev, r.id = rev, leaseID
	if r.Prev != nil {
		r.Prev.rev = rev
		if r.Prev.id, err = contract.ParseLeaseID(r.Prev.LeaseID); err != nil || r.Prev.id.KeyID() != id {
			return nil, corrupt(err, "a stored lease came after one of another key")
		}
	}
	return &r, nil
}

func corrupt(err error, format string, args ...any) error {
	return contract.Errorf(contract.CodeInternal, err, format, args...)
}

// answer is what a request id was answered: which lease it is about, and of a
// renewal how the lease stood then.
type answer struct {
	Version     int           `cbor:"1,keyasint"`
	Verb        contract.Verb `cbor:"2,keyasint"`
	Fingerprint []byte        `cbor:"3,keyasint"`
	Ordinal     uint64        `cbor:"4,keyasint"`
	// Attempt tells the call that wrote this from its copies: etcd's client, or
	// this one, may have sent the transaction twice.
	Attempt []byte `cbor:"5,keyasint"`
	// Unseen tells of a grant to a waiter that nobody but the gateway at which it
	// waits knows of: it may be taken back. Whoever repeats the answer clears it
	// first.
	Unseen bool `cbor:"6,keyasint,omitempty"`

	Renewed  int64         `cbor:"7,keyasint,omitempty"`
	Expires  int64         `cbor:"8,keyasint,omitempty"`
	TTL      time.Duration `cbor:"9,keyasint,omitempty"`
	Renewals uint64        `cbor:"10,keyasint,omitempty"`

	// Of the value that this was decoded from.
	rev   int64
	lease int64
}

func decodeAnswer(kv *mvccpb.KeyValue) (*answer, error) {
	var a answer
	if err := cbor.Unmarshal(kv.Value, &a); err != nil || a.Version != recordVersion {
		return nil, corrupt(err, "a stored answer cannot be read")
	}
	a.rev, a.lease = kv.ModRevision, kv.Lease
	return &a, nil
}

// newLeaseID makes the id of a key's lease with the ordinal. Ten of the nonce's
// bytes are random; the others are the ordinal under a mask that they make, so
// that an id leads to its record without an index.
func newLeaseID(key contract.KeyID, ordinal uint64) contract.LeaseID {
	var nonce [16]byte
	_, _ = rand.Read(nonce[:10]) // never fails, see its documentation
	mask := ordinalMask(key, nonce)
	var n [8]byte
	binary.BigEndian.PutUint64(n[:], ordinal)
	for i := range 6 {
		nonce[10+i] = n[2+i] ^ mask[i]
	}
	return contract.NewLeaseID(key, nonce)
}

// ordinalOf returns the ordinal that the id carries; one that was never granted
// carries any.
func ordinalOf(id contract.LeaseID) uint64 {
	nonce := [16]byte(id[16:])
	mask := ordinalMask(id.KeyID(), nonce)
	var n [8]byte
	for i := range 6 {
		n[2+i] = nonce[10+i] ^ mask[i]
	}
	return binary.BigEndian.Uint64(n[:])
}

func ordinalMask(key contract.KeyID, nonce [16]byte) []byte {
	sum := sha256.Sum256(append(key[:], nonce[:10]...))
	return sum[:6]
}
