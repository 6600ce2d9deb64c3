package raftkv

import (
	"time"

	"github.com/fxamacker/cbor/v2"

	"leased/contract"
)

// callsPath is where a node takes the calls of its peers. The version is that of
// all that they say to each other: the requests and answers of package contract
// in CBOR, with the names of their fields. A test holds the bytes.
const callsPath = "/calls/v1/"

// Bounds on what nodes say to each other, in bytes.
const (
	maxCall   = 1 << 20
	maxAnswer = 32 << 20 // a page of the largest leases has 9 MB
)

// What a call says beside its request.
const (
	callMediaType = "application/cbor"
	// timeLeftHeader has the caller's remaining time in microseconds.
	timeLeftHeader = "Leased-Time-Left"
	// callIDHeader names a call that may be asked to leave its queue.
	callIDHeader = "Leased-Call"
)

const (
	// leaveVerb is the call that ends the waits of others.
	leaveVerb = "leave"
	// carryVerb is the call that has others in it: a list of carriedCall, answered
	// by a sequence of carriedAnswer in the order in which they are ready.
	carryVerb = "carry"
)

// carriedCall is a call among others.
type carriedCall struct {
	_        struct{} `cbor:",toarray"`
	Verb     string
	TimeLeft int64  // as timeLeftHeader
	Body     []byte // as of the request of this call if it came alone
}

// carriedAnswer answers one of them.
type carriedAnswer struct {
	_      struct{} `cbor:",toarray"`
	Call   uint32   // its place in the list
	Status int      // as of the answer to this call if it had come alone
	Body   []byte
}

// wireAnswer is what is answered: an answer or an error.
type wireAnswer[T any] struct {
	_      struct{} `cbor:",toarray"`
	Answer T
	Err    *wireError
}

// wireError is a contract.Error. Its cause travels as text, for logs.
type wireError struct {
	_          struct{} `cbor:",toarray"`
	Code       contract.Code
	Field      string
	Detail     string
	RetryAfter time.Duration
	Cause      string
}

// remoteError is the cause of an error on the node that leads.
type remoteError string

func (c remoteError) Error() string { return "on the leader: " + string(c) }

func wireErrorOf(err error) *wireError {
	if err == nil {
		return nil
	}
	e := asError(err)
	w := &wireError{Code: e.Code, Field: e.Field, Detail: e.Detail, RetryAfter: e.RetryAfter}
	if e.Err != nil {
		w.Cause = e.Err.Error()
	}
	return w
}

func (w *wireError) err() error {
	if w == nil {
		return nil
	}
	e := &contract.Error{Code: w.Code, Field: w.Field, Detail: w.Detail, RetryAfter: w.RetryAfter}
	if w.Cause != "" {
		e.Err = remoteError(w.Cause)
	}
	return e
}

// bulkAnswer is contract.RenewBulkResult.
type bulkAnswer struct {
	_     struct{} `cbor:",toarray"`
	Items []wireAnswer[contract.Result]
}

func bulkAnswerOf(r contract.RenewBulkResult) bulkAnswer {
	b := bulkAnswer{Items: make([]wireAnswer[contract.Result], len(r.Items))}
	for i := range r.Items {
		b.Items[i] = wireAnswer[contract.Result]{Answer: r.Items[i].Result, Err: wireErrorOf(r.Items[i].Err)}
	}
	return b
}

func (b *bulkAnswer) result() contract.RenewBulkResult {
	r := contract.RenewBulkResult{Items: make([]contract.RenewItemResult, len(b.Items))}
	for i := range b.Items {
		r.Items[i] = contract.RenewItemResult{Result: b.Items[i].Answer, Err: b.Items[i].Err.err()}
	}
	return r
}

// healthAnswer is contract.Health and how far the leader's state is.
type healthAnswer struct {
	_      struct{} `cbor:",toarray"`
	Health contract.Health
	Index  uint64
	Clock  int64
}

// watchAnswer is where a stream begins.
type watchAnswer struct {
	_     struct{} `cbor:",toarray"`
	Index uint64
	N     uint32
}

func (a watchAnswer) pos() pos { return pos{index: a.Index, n: a.N} }

// none is the answer of a call that has none.
type none struct{}

// wire is how calls are written and read.
type wire struct {
	enc cbor.UserBufferEncMode
	// requests are read strictly: what is not known may have been meant to change
	// what they do. A later release may say more in an answer.
	requests cbor.DecMode
	answers  cbor.DecMode
}

func newWire() wire {
	enc, err := cbor.EncOptions{
		Time: cbor.TimeRFC3339Nano, IndefLength: cbor.IndefLengthForbidden, TagsMd: cbor.TagsForbidden,
	}.UserBufferEncMode()
	if err != nil {
		panic(err) // the options are constants
	}
	options := cbor.DecOptions{
		DupMapKey: cbor.DupMapKeyEnforcedAPF, IndefLength: cbor.IndefLengthForbidden, TagsMd: cbor.TagsForbidden,
		UTF8: cbor.UTF8RejectInvalid, MaxArrayElements: 1 << 16, MaxMapPairs: 1 << 10,
	}
	answers, err := options.DecMode()
	if err != nil {
		panic(err)
	}
	options.ExtraReturnErrors = cbor.ExtraDecErrorUnknownField
	requests, err := options.DecMode()
	if err != nil {
		panic(err)
	}
	return wire{enc: enc, requests: requests, answers: answers}
}

func (w wire) encode(v any) ([]byte, error) {
	return w.enc.Marshal(v) // of the right size, while a buffer would have to grow
}
