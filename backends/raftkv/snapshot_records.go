package raftkv

import (
	"errors"
	"fmt"
	"io"

	"github.com/fxamacker/cbor/v2"

	"leased/contract"
)

type headRecord struct {
	_          struct{} `cbor:",toarray"`
	Now        int64
	Offset     int64
	Index      uint64
	Namespaces int
	Keys       int
	Answers    int
}

type namespaceRecord struct {
	_     struct{} `cbor:",toarray"`
	Name  string
	Floor uint64
}

// keyRecord is everything that hangs on a key.
type keyRecord struct {
	_         struct{} `cbor:",toarray"`
	Namespace string
	Key       keyParts
	ID        contract.KeyID
	PerKey    int32
	Keep      int64
	Visible   int32
	Oldest    uint64
	Active    *leaseRecord
	// So many records follow the key's: one of them all would have to be read as
	// a whole, and a busy key has hundreds of thousands.
	Ended   int
	Waiters int
}

type leaseRecord struct {
	_            struct{} `cbor:",toarray"`
	Version      int      // contract.RecordVersion
	Nonce        [16]byte
	Token        uint64
	Index        uint64
	N            uint32
	Wall         int64
	Cap          int64
	MaxLifetime  int64
	KeepAnswer   int64
	Scope        contract.Scope
	Owner        string
	Instance     string
	ExecutionID  string
	JobID        string
	TraceID      string
	RequestID    string
	Metadata     []string
	Life         lifeRecord
	AnswersUntil int64
	Attach       uint64
}

type lifeRecord struct {
	_        struct{} `cbor:",toarray"`
	Renewed  int64
	Expires  int64
	Nominal  int64
	TTL      int64
	Renewals uint64
}

type endedRecord struct {
	_         struct{} `cbor:",toarray"`
	Lease     leaseRecord
	Drop      int64
	State     uint8
	Index     uint64
	N         uint32
	When      int64
	Wall      int64
	Late      int64
	By        string
	Reason    string
	RequestID string
	TraceID   string
}

type waiterRecord struct {
	_      struct{} `cbor:",toarray"`
	Seq    uint64
	Attach uint64
	Drop   int64
	Cmd    acquireCmd
}

type answerRecord struct {
	_         struct{} `cbor:",toarray"`
	Scope     contract.Scope
	Print     contract.Fingerprint
	Verb      uint8
	Drop      int64
	Namespace string
	KeyID     contract.KeyID
	Token     uint64
	First     *lifeRecord
}

func lifeRecordOf(l life) lifeRecord {
	return lifeRecord{Renewed: l.renewed, Expires: l.expires, Nominal: l.nominal, TTL: l.ttl, Renewals: l.renewals}
}

func (r *lifeRecord) life() life {
	return life{renewed: r.Renewed, expires: r.Expires, nominal: r.Nominal, ttl: r.TTL, renewals: r.Renewals}
}

func leaseRecordOf(l *lease) leaseRecord {
	return leaseRecord{
		Version: contract.RecordVersion, Nonce: l.nonce, Token: l.token, Index: l.at.index, N: l.at.n,
		Wall: l.wall, Cap: l.cap, MaxLifetime: l.maxLifetime, KeepAnswer: l.keepAnswer, Scope: l.scope,
		Owner: l.owner, Instance: l.instance, ExecutionID: l.executionID, JobID: l.jobID, TraceID: l.traceID,
		RequestID: l.requestID, Metadata: l.metadata, Life: lifeRecordOf(l.life),
		AnswersUntil: l.answersUntil, Attach: l.attach,
	}
}

func (r *leaseRecord) lease(id *ident, texts *interner) (*lease, error) {
	if r.Version != contract.RecordVersion {
		return nil, fmt.Errorf("lease record version %d; this release knows %d", r.Version, contract.RecordVersion)
	}
	for i := range r.Metadata {
		r.Metadata[i] = texts.text(r.Metadata[i])
	}
	return &lease{
		grant: &grant{
			ident: id, nonce: r.Nonce, token: r.Token, at: pos{index: r.Index, n: r.N}, wall: r.Wall, cap: r.Cap,
			maxLifetime: r.MaxLifetime, keepAnswer: r.KeepAnswer, scope: r.Scope, owner: texts.text(r.Owner),
			instance: texts.text(r.Instance), executionID: r.ExecutionID, jobID: r.JobID, traceID: r.TraceID,
			requestID: r.RequestID, metadata: r.Metadata,
		},
		life: r.Life.life(), answersUntil: r.AnswersUntil, attach: r.Attach,
	}, nil
}

// shift moves what is on the state's clock.
func (r *leaseRecord) shift(by int64) {
	r.Cap += by
	r.Life.Expires += by
	r.AnswersUntil += by
}

func (r *endedRecord) shift(by int64) {
	r.Lease.shift(by)
	r.Drop += by
	r.When += by
}

func (r *answerRecord) shift(by int64) {
	if r.Drop != 0 { // else it has no end yet
		r.Drop += by
	}
	if r.First != nil {
		r.First.Expires += by
	}
}

func endedRecordOf(e endedLease) endedRecord {
	return endedRecord{
		Lease: leaseRecordOf(e.lease), Drop: e.drop, State: uint8(e.end.state), Index: e.end.at.index, N: e.end.at.n,
		When: e.end.when, Wall: e.end.wall, Late: e.end.late, By: e.end.by, Reason: e.end.reason,
		RequestID: e.end.requestID, TraceID: e.end.traceID,
	}
}

func (r *endedRecord) ended(id *ident, texts *interner) (endedLease, error) {
	l, err := r.Lease.lease(id, texts)
	if err != nil {
		return endedLease{}, err
	}
	if !contract.State(r.State).Terminal() {
		return endedLease{}, fmt.Errorf("an ended lease is in state %d", r.State)
	}
	l.end = &ending{
		state: contract.State(r.State), at: pos{index: r.Index, n: r.N}, when: r.When, wall: r.Wall,
		late: r.Late, by: r.By, reason: r.Reason, requestID: r.RequestID, traceID: r.TraceID,
	}
	return newEnded(l, r.Drop), nil
}

func answerRecordOf(a answer) answerRecord {
	r := answerRecord{
		Scope: a.scope, Print: a.print, Verb: uint8(a.verb), Drop: a.drop,
		Namespace: a.g.ns, KeyID: a.g.id, Token: a.g.token,
	}
	if a.first != nil {
		first := lifeRecordOf(*a.first)
		r.First = &first
	}
	return r
}

// writeKey writes a key, the leases of it that ended, and its queue, with the state's
// clock moved.
func writeKey(enc *cbor.Encoder, s *state, ks *keyState, shift int64) error {
	r := keyRecord{
		Namespace: ks.ns, Key: partsOf(ks.key), ID: ks.id, PerKey: ks.perKey, Keep: ks.keep,
		Visible: ks.visible, Oldest: ks.oldest, Waiters: int(ks.places),
	}
	if ks.active != nil {
		active := leaseRecordOf(ks.active)
		active.shift(shift)
		r.Active = &active
	}
	eachEnded := func(f func(endedLease) error) error {
		var err error
		s.ended.Ascend(endedAt(ks.ident, 0), func(e endedLease) bool {
			if e.compare(ks.ident) != 0 {
				return false
			}
			err = f(e)
			return err == nil
		})
		return err
	}
	_ = eachEnded(func(endedLease) error { r.Ended++; return nil })
	if err := enc.Encode(r); err != nil {
		return err
	}
	if err := eachEnded(func(e endedLease) error {
		r := endedRecordOf(e)
		r.shift(shift)
		return enc.Encode(r)
	}); err != nil {
		return err
	}
	var err error
	s.queue.Ascend(&waiter{ident: ks.ident}, func(x *waiter) bool {
		if x.compare(ks.ident) != 0 {
			return false
		}
		err = enc.Encode(waiterRecord{Seq: x.seq, Attach: x.attach, Drop: x.drop + shift, Cmd: *x.cmd})
		return err == nil
	})
	return err
}

// reader builds a state from records.
type reader struct {
	dec   *cbor.Decoder
	texts *interner
	s     *state
}

// readState reads the records of a state.
func readState(dec *cbor.Decoder, texts *interner, version uint16, sum *summed) (*state, error) {
	r := reader{dec: dec, texts: texts, s: newState()}
	var head headRecord
	if err := r.next(&head); err != nil {
		return nil, err
	}
	r.s.now, r.s.offset, r.s.index = head.Now, head.Offset, head.Index
	if version >= baseVersion {
		if err := r.next(&r.s.base); err != nil {
			return nil, err
		}
	}
	for range head.Namespaces {
		var n namespaceRecord
		if err := r.next(&n); err != nil {
			return nil, err
		}
		r.s.namespaces.Set(&nsState{name: n.Name, floor: n.Floor})
	}
	for range head.Keys {
		var k keyRecord
		if err := r.next(&k); err != nil {
			return nil, err
		}
		if err := r.key(&k); err != nil {
			return nil, err
		}
	}
	for range head.Answers {
		var a answerRecord
		if err := r.next(&a); err != nil {
			return nil, err
		}
		if err := r.answer(&a); err != nil {
			return nil, err
		}
	}
	return r.s, sum.verify()
}

func (r *reader) next(record any) error {
	err := r.dec.Decode(record)
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

func (r *reader) key(k *keyRecord) error {
	r.texts.key(&k.Key)
	id := &ident{ns: r.texts.text(k.Namespace), key: k.Key.key(), id: k.ID}
	// A record under another key's id would be granted over that key.
	if id.key.ID() != id.id {
		return fmt.Errorf("a record of key %s is stored under the id of another key", id.key.Canonical())
	}
	ks := &keyState{ident: id, perKey: k.PerKey, keep: k.Keep, visible: k.Visible, oldest: k.Oldest}
	for range k.Ended {
		var record endedRecord
		if err := r.next(&record); err != nil {
			return err
		}
		e, err := record.ended(id, r.texts)
		if err != nil {
			return err
		}
		r.s.ended.Set(e)
		r.s.endedDrops.Set(due[*grant]{at: e.drop, what: e.grant})
		if ks.visible > 0 {
			ks.last = e.lease
		}
	}
	if k.Active != nil {
		l, err := k.Active.lease(id, r.texts)
		if err != nil {
			return err
		}
		ks.active = l
		r.s.held.Set(l)
		r.s.expiries.Set(due[*ident]{at: l.expires, what: id})
		r.s.countActive(l.ns, l.owner, 1)
	}
	for range k.Waiters {
		x := new(waiterRecord)
		if err := r.next(x); err != nil {
			return err
		}
		w := &waiter{ident: id, seq: x.Seq, attach: x.Attach, drop: x.Drop, cmd: &x.Cmd}
		r.s.queue.Set(w)
		r.s.places.Set(w)
		ks.places++
		if w.attach == 0 {
			r.s.keepAway(w)
			continue
		}
		ks.present++
		r.s.countWaiters(id.ns, 1)
	}
	r.s.keys.Set(ks)
	return nil
}

func (r *reader) answer(a *answerRecord) error {
	l := r.s.current(&grant{ident: &ident{ns: a.Namespace, id: a.KeyID}, token: a.Token})
	if l == nil {
		return errors.New("a stored answer refers to a lease that is not in the snapshot")
	}
	out := answer{scope: a.Scope, print: a.Print, verb: contract.Verb(a.Verb), drop: a.Drop, g: l.grant}
	if a.First != nil {
		first := a.First.life()
		out.first = &first
	}
	r.s.answers.Set(out)
	drop := out.drop
	if drop == 0 && l.end != nil {
		drop = l.end.when + l.keepAnswer
	}
	if drop != 0 {
		r.s.answerDrops.Set(due[contract.Scope]{at: drop, what: out.scope})
	}
	return nil
}
