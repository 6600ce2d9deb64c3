package etcd

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"maps"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"leased/contract"
)

// recordVersion is the version of every value that this release writes. Another
// one fails closed.
const recordVersion = 1

// record is a lease as it is stored: under its key's head while it is the newest
// one of the key, in the archive afterwards. Instants are microseconds of the
// wall clock of the gateway that wrote them; they are shown and decide nothing.
type record struct {
	Version int    `json:"v"`
	Ordinal uint64 `json:"n"` // rises with each grant of the key

	Tenant     string `json:"tenant"`
	Program    string `json:"program"`
	TargetType string `json:"target_type"`
	Target     string `json:"target"`
	Actor      string `json:"actor"`
	Workflow   string `json:"workflow"`
	Operation  string `json:"operation"`

	LeaseID  string         `json:"lease_id"`
	Owner    string         `json:"owner"`
	Instance string         `json:"instance"`
	State    contract.State `json:"state"`

	// Floor and Rev make the token. Rev is the revision of the grant, and 0 in
	// the very value that the grant wrote, which cannot know it: there it is the
	// value's own revision.
	Floor int64 `json:"floor"`
	Rev   int64 `json:"rev,omitempty"`
	// EndRev is the revision of the end, in the archive; in the head it is the
	// value's own.
	EndRev int64 `json:"end_rev,omitempty"`

	// Prev is the lease that was ended in the step of the grant, for its event,
	// until the head is written again.
	Prev *record `json:"prev,omitempty"`

	Acquired int64         `json:"acquired"`
	Renewed  int64         `json:"renewed"`
	Expires  int64         `json:"expires"`
	TTL      time.Duration `json:"ttl"`
	MaxLife  time.Duration `json:"max_life"`
	Renewals uint64        `json:"renewals,omitempty"`

	ExecutionID string            `json:"execution_id,omitempty"`
	JobID       string            `json:"job_id,omitempty"`
	TraceID     string            `json:"trace_id,omitempty"`
	RequestID   string            `json:"request_id"`
	Metadata    map[string]string `json:"metadata,omitempty"`

	// Of the latest renewal, for its event.
	RenewRequestID string `json:"renew_request_id,omitempty"`
	RenewTraceID   string `json:"renew_trace_id,omitempty"`

	// Once it has ended.
	Ended        int64  `json:"ended,omitempty"`
	Recorded     int64  `json:"recorded,omitempty"` // when the end was written down
	EndedBy      string `json:"ended_by,omitempty"`
	Reason       string `json:"reason,omitempty"`
	EndRequestID string `json:"end_request_id,omitempty"`
	EndTraceID   string `json:"end_trace_id,omitempty"`

	// The etcd leases of the TTL, with the TTL that etcd granted, and of the
	// maximum lifetime.
	Lease    int64 `json:"lease"`
	LeaseTTL int64 `json:"lease_ttl"`
	Life     int64 `json:"life,omitempty"`

	// Retention of the latest request that changed something.
	KeepAnswer  time.Duration `json:"keep_answer"`
	KeepHistory time.Duration `json:"keep_history"`
	KeepEvents  int           `json:"keep_events"`

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

func (r *record) keep(k contract.Retention) {
	r.KeepAnswer, r.KeepHistory, r.KeepEvents = k.Idempotency, k.History, k.HistoryPerKey
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
	b, err := json.Marshal(v)
	if err != nil {
		panic("etcd: a record that JSON cannot hold: " + err.Error())
	}
	return string(b)
}

// decodeRecord reads a lease of the key with the given id. What does not belong
// there is corrupt: nothing is granted over it.
func decodeRecord(value []byte, rev int64, id contract.KeyID) (*record, error) {
	var r record
	if err := json.Unmarshal(value, &r); err != nil {
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
	Version     int           `json:"v"`
	Verb        contract.Verb `json:"verb"`
	Fingerprint []byte        `json:"fp"`
	Ordinal     uint64        `json:"n"`
	// Attempt tells the call that wrote this from its copies: etcd's client, or
	// this one, may have sent the transaction twice.
	Attempt []byte `json:"attempt"`
	// Unseen tells of a grant to a waiter that nobody but the gateway at which it
	// waits knows of: it may be taken back. Whoever repeats the answer clears it
	// first.
	Unseen bool `json:"unseen,omitempty"`

	Renewed  int64         `json:"renewed,omitempty"`
	Expires  int64         `json:"expires,omitempty"`
	TTL      time.Duration `json:"ttl,omitempty"`
	Renewals uint64        `json:"renewals,omitempty"`

	// Of the value that this was decoded from.
	rev   int64
	lease int64
}

func decodeAnswer(kv *mvccpb.KeyValue) (*answer, error) {
	var a answer
	if err := json.Unmarshal(kv.Value, &a); err != nil || a.Version != recordVersion {
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
