package raftkv

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"sync"

	"github.com/fxamacker/cbor/v2"

	"leased/contract"
)

// CommandVersion is the highest version of a command that this release applies. A
// command has the lowest version that can say it, so that a node of an earlier
// release applies all that it can.
const CommandVersion = restoreVersion

const (
	firstVersion   = 1
	restoreVersion = 2 // has kindRestore
)

// version returns the version of the commands of a kind.
func (k kind) version() byte {
	if k == kindRestore {
		return restoreVersion
	}
	return firstVersion
}

// kind says what a command does. The numbers are in the log and never change
// their meaning.
type kind uint8

const (
	_ kind = iota
	kindAcquire
	kindRenew
	kindRelease
	kindRevoke
	kindAway
	kindSweep
	kindTakeover
	kindFloor
	kindRestore
)

// headerLen: version, kind, term of the stamp, stamp. It stands before the body
// and is not CBOR, so that an entry written by a later release is recognised
// as such whatever its body looks like.
const headerLen = 1 + 1 + 8 + 8

type header struct {
	kind kind
	// term and now are the stamp: the leader's clock in nanoseconds and the term
	// in which that clock ran.
	term uint64
	now  int64
}

// retention is contract.Retention in nanoseconds, on the wire.
type retention struct {
	_             struct{} `cbor:",toarray"`
	Idempotency   int64
	History       int64
	HistoryPerKey int32
}

type acquireCmd struct {
	_           struct{} `cbor:",toarray"`
	Scope       contract.Scope
	Print       contract.Fingerprint
	Namespace   string
	Key         keyParts
	KeyID       contract.KeyID
	Nonce       [16]byte
	Owner       string
	Instance    string
	RequestID   string
	ExecutionID string
	JobID       string
	TraceID     string
	Metadata    []string // name, value, name, value, … sorted by name
	TTL         int64    // ns
	MaxLifetime int64    // ns
	Wait        bool
	Keep        retention
	MaxLeases   int64 // per owner; 0 = unlimited
	MaxWaiters  int64 // per key; 0 = unlimited
}

// keyParts is contract.Key on the wire.
type keyParts struct {
	_          struct{} `cbor:",toarray"`
	Tenant     string
	Program    string
	TargetType string
	TargetID   string
	Actor      string
	Workflow   string
	Operation  string
}

func partsOf(k contract.Key) keyParts {
	return keyParts{
		Tenant: k.Tenant, Program: k.Program, TargetType: string(k.Target.Type), TargetID: k.Target.ID,
		Actor: k.Actor, Workflow: k.Workflow, Operation: k.Operation,
	}
}

func (p *keyParts) key() contract.Key {
	return contract.Key{
		Tenant: p.Tenant, Program: p.Program,
		Target: contract.Target{Type: contract.TargetType(p.TargetType), ID: p.TargetID},
		Actor:  p.Actor, Workflow: p.Workflow, Operation: p.Operation,
	}
}

// renewCmd renews one lease or many: a bulk is one entry.
type renewCmd struct {
	_         struct{} `cbor:",toarray"`
	Namespace string
	Owner     string
	Instance  string
	RequestID string
	TraceID   string
	Keep      retention
	Items     []renewItem
}

type renewItem struct {
	_       struct{} `cbor:",toarray"`
	Scope   contract.Scope
	Print   contract.Fingerprint
	LeaseID contract.LeaseID
	Token   uint64
	TTL     int64 // ns; 0 = as granted last
}

type releaseCmd struct {
	_         struct{} `cbor:",toarray"`
	Scope     contract.Scope
	Print     contract.Fingerprint
	Namespace string
	Owner     string
	Instance  string
	RequestID string
	TraceID   string
	LeaseID   contract.LeaseID
	Token     uint64
	Keep      retention
}

type revokeCmd struct {
	_         struct{} `cbor:",toarray"`
	Scope     contract.Scope
	Print     contract.Fingerprint
	Namespace string
	Principal string
	RequestID string
	TraceID   string
	LeaseID   contract.LeaseID
	Reason    string
	Keep      retention
}

// awayCmd says that calls which waited in queues have ended. Those that end at
// the same time share an entry.
type awayCmd struct {
	_     struct{} `cbor:",toarray"`
	Items []awayItem
}

type awayItem struct {
	_         struct{} `cbor:",toarray"`
	Namespace string
	KeyID     contract.KeyID
	Scope     contract.Scope
	// Attach is the index of the entry that brought the caller to its place. An
	// away that was overtaken by a return of the caller names an older one and
	// does nothing.
	Attach uint64
	// Undo ends a grant that crossed this command: nobody is there to take it.
	Undo bool
}

// sweepCmd ends what is due and drops what need not be remembered.
type sweepCmd struct {
	_    struct{} `cbor:",toarray"`
	Wall int64    // the leader's wall clock, Unix ns: for display, never for a decision
	Max  int32    // how many records to touch, of each sort
}

// takeoverCmd is the first entry of a leader: every wait of an earlier leader
// has ended.
type takeoverCmd struct {
	_    struct{} `cbor:",toarray"`
	Wall int64
}

type floorCmd struct {
	_         struct{} `cbor:",toarray"`
	Namespace string
	Above     uint64
}

// restoreCmd is a part of a state that is to take the place of this one. Part 0
// begins, the next ones carry a snapshot of the state, and the last one, with End,
// makes it the state or gives it up.
type restoreCmd struct {
	_    struct{} `cbor:",toarray"`
	ID   [16]byte // names the restore
	Part uint32
	// Above is what the indices of all entries from part 0 on are higher than: part
	// 0 only.
	Above uint64
	Data  []byte
	End   restoreEnd
	// Floor is what all later tokens are higher than: the last part only.
	Floor uint64
}

// restoreEnd says what the last part of a restore does. The numbers are in the log.
type restoreEnd uint8

const (
	restoreGoesOn restoreEnd = iota
	restoreDone
	restoreGivenUp
)

// codec is the one CBOR configuration for commands and snapshots: canonical
// when written, and strict when read, so that bytes decode in one way only.
type codec struct {
	enc cbor.UserBufferEncMode
	dec cbor.DecMode
	// buffers are where entries grow. The log keeps an entry, so it gets a copy of
	// just its size.
	buffers *sync.Pool
}

func newCodec() codec {
	enc, err := cbor.EncOptions{Sort: cbor.SortCanonical, IndefLength: cbor.IndefLengthForbidden, TagsMd: cbor.TagsForbidden}.UserBufferEncMode()
	if err != nil {
		panic(err) // the options are constants
	}
	dec, err := cbor.DecOptions{
		DupMapKey: cbor.DupMapKeyEnforcedAPF, IndefLength: cbor.IndefLengthForbidden, TagsMd: cbor.TagsForbidden,
		ExtraReturnErrors: cbor.ExtraDecErrorUnknownField, UTF8: cbor.UTF8RejectInvalid,
		MaxArrayElements: 1 << 24, MaxMapPairs: 1 << 16,
	}.DecMode()
	if err != nil {
		panic(err)
	}
	return codec{enc: enc, dec: dec, buffers: &sync.Pool{New: func() any { return new(bytes.Buffer) }}}
}

// encode returns the log entry for body.
func (c codec) encode(h header, body any) ([]byte, error) {
	buf := c.buffers.Get().(*bytes.Buffer) //nolint:errcheck,forcetypeassert // nothing else is put there
	defer c.buffers.Put(buf)
	buf.Reset()
	head := append(buf.AvailableBuffer(), h.kind.version(), byte(h.kind))
	head = binary.BigEndian.AppendUint64(head, h.term)
	head = binary.BigEndian.AppendUint64(head, uint64(h.now))
	buf.Write(head)
	if err := c.enc.MarshalToBuffer(body, buf); err != nil {
		return nil, err
	}
	return bytes.Clone(buf.Bytes()), nil
}

// decode returns the header and body of a log entry.
func (c codec) decode(data []byte) (header, any, error) {
	if len(data) < headerLen {
		return header{}, nil, fmt.Errorf("entry of %d bytes is shorter than a command's header", len(data))
	}
	if data[0] < firstVersion || data[0] > CommandVersion {
		return header{}, nil, fmt.Errorf("command version %d; this release knows %d to %d", data[0], firstVersion, CommandVersion)
	}
	h := header{
		kind: kind(data[1]),
		term: binary.BigEndian.Uint64(data[2:]),
		now:  int64(binary.BigEndian.Uint64(data[10:])),
	}
	body := newBody(h.kind)
	if body == nil || data[0] != h.kind.version() {
		return h, nil, fmt.Errorf("unknown command kind %d of version %d", h.kind, data[0])
	}
	if err := c.dec.Unmarshal(data[headerLen:], body); err != nil {
		return h, nil, fmt.Errorf("command kind %d: %w", h.kind, err)
	}
	return h, body, nil
}

func newBody(k kind) any {
	switch k {
	case kindAcquire:
		return new(acquireCmd)
	case kindRenew:
		return new(renewCmd)
	case kindRelease:
		return new(releaseCmd)
	case kindRevoke:
		return new(revokeCmd)
	case kindAway:
		return new(awayCmd)
	case kindSweep:
		return new(sweepCmd)
	case kindTakeover:
		return new(takeoverCmd)
	case kindFloor:
		return new(floorCmd)
	case kindRestore:
		return new(restoreCmd)
	}
	return nil
}
