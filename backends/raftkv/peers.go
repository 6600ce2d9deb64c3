package raftkv

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"sync"
	"time"

	"leased/contract"
)

// PeerHandler serves the calls that followers forward. It carries them out on
// this node or answers that it does not lead: it never forwards.
type PeerHandler struct {
	engine *Engine
	store  *Store
	mux    *http.ServeMux
	calls  map[string]peerCall // by verb

	mu      sync.Mutex
	waiting map[string]context.CancelCauseFunc // by call id
	// refused has when a refused call was last logged, by path.
	refused map[string]time.Time
}

const (
	// refusedLine is how often at most a line says that a kind of call is refused.
	refusedLine = 10 * time.Second
	// refusedCalls bounds how many kinds of calls that is known of.
	refusedCalls = 64
)

// PeerHandler returns the handler for the calls of peers. Like a Store it is
// closed before the Engine.
func (e *Engine) PeerHandler() *PeerHandler {
	p := &PeerHandler{
		engine: e, store: e.Store(), mux: http.NewServeMux(), calls: make(map[string]peerCall),
		waiting: make(map[string]context.CancelCauseFunc),
	}
	s := p.store
	handle(p, "acquire", p.acquire)
	handle(p, "renew", s.Renew)
	handle(p, "renew-bulk", s.renewBulk)
	handle(p, "release", s.Release)
	handle(p, "revoke", s.Revoke)
	handle(p, "check", s.Check)
	handle(p, "get", s.Get)
	handle(p, "get-key", s.GetKey)
	handle(p, "list", s.List)
	handle(p, "history", s.History)
	handle(p, "watch", s.watchFrom)
	handle(p, "raise-floor", s.raiseFloor)
	handle(p, "health", s.health)
	handle(p, "index", s.index)
	p.mux.HandleFunc("POST "+callsPath+restoreVerb, p.restore)
	p.mux.HandleFunc("POST "+callsPath+leaveVerb, p.leave)
	p.mux.HandleFunc("POST "+callsPath+carryVerb, p.carry)
	return p
}

// ServeHTTP implements http.Handler.
func (p *PeerHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) { p.mux.ServeHTTP(w, r) }

// Close ends the calls as Store.Close does.
func (p *PeerHandler) Close(ctx context.Context) error { return p.store.Close(ctx) }

// handle makes a call of a Store's method. It can come alone or with others.
func handle[R, T any](p *PeerHandler, verb string, do func(context.Context, *R) (T, error)) {
	call := func(ctx context.Context, timeLeft time.Duration, body []byte) (int, []byte) {
		request := new(R)
		if err := p.engine.wire.requests.Unmarshal(body, request); err != nil {
			p.unreadable(verb, err)
			return http.StatusBadRequest, nil
		}
		ctx, cancel := context.WithTimeout(ctx, timeLeft)
		defer cancel()
		if p.lead(ctx) != nil {
			// Certainly not applied: the only answer with this status.
			return http.StatusMisdirectedRequest, nil
		}
		answer, err := do(ctx, request)
		out, err := p.engine.wire.encode(wireAnswer[T]{Answer: answer, Err: wireErrorOf(err)})
		if err != nil {
			p.engine.log.Error("raftkv: an answer cannot be encoded", "err", err)
			return http.StatusInternalServerError, nil // unknown, for whoever asked
		}
		return http.StatusOK, out
	}
	p.calls[verb] = call
	p.mux.HandleFunc("POST "+callsPath+verb, func(w http.ResponseWriter, r *http.Request) {
		body, ok := p.body(w, r, maxCall)
		if !ok {
			return
		}
		timeLeft, ok := timeLeftOf(w, r)
		if !ok {
			return
		}
		ctx, leave := context.WithCancelCause(r.Context())
		defer leave(nil)
		if id := r.Header.Get(callIDHeader); id != "" {
			defer p.enter(id, leave)()
		}
		status, answer := call(ctx, timeLeft, body)
		w.Header().Set("Content-Type", callMediaType)
		w.Header().Set("Content-Length", strconv.Itoa(len(answer)))
		w.WriteHeader(status)
		_, _ = w.Write(answer) // a client that went away will not read it
	})
}

// acquire is Acquire for a call whose wait may be over where it came from before this
// node has begun it. That is no deadline that has passed: it is answered like every other
// one whose wait ends, with a grant or a conflict.
func (p *PeerHandler) acquire(ctx context.Context, r *contract.AcquireRequest) (contract.Result, error) {
	res, err := p.store.Acquire(ctx, r)
	if contract.CodeOf(err) != contract.CodeTimeout || !errors.Is(context.Cause(ctx), errWaitOver) {
		return res, err
	}
	deadline, _ := ctx.Deadline() // handle has set one
	ctx, cancel := context.WithDeadline(context.WithoutCancel(ctx), deadline)
	defer cancel()
	last := *r
	last.Wait = 1 // and not 0: it keeps the place that it may have
	return p.store.Acquire(ctx, &last)
}

func timeLeftOf(w http.ResponseWriter, r *http.Request) (time.Duration, bool) {
	micros, err := strconv.ParseInt(r.Header.Get(timeLeftHeader), 10, 64)
	if err != nil || !isTimeLeft(micros) {
		http.Error(w, "no time left", http.StatusBadRequest)
		return 0, false
	}
	return time.Duration(micros) * time.Microsecond, true
}

func isTimeLeft(micros int64) bool {
	return micros >= 0 && micros <= contract.MaxDuration.Microseconds()
}

// body reads a request to its end: only then is the client's going away noticed.
func (p *PeerHandler) body(w http.ResponseWriter, r *http.Request, limit int64) ([]byte, bool) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, limit))
	if err != nil {
		http.Error(w, "body", http.StatusBadRequest)
		return nil, false
	}
	return body, true
}

// decode reads a call. What it refuses was certainly not applied.
func (p *PeerHandler) decode(w http.ResponseWriter, r *http.Request, body []byte, request any) bool {
	if err := p.engine.wire.requests.Unmarshal(body, request); err != nil {
		p.unreadable(r.URL.Path, err)
		http.Error(w, "this release cannot read the call", http.StatusBadRequest)
		return false
	}
	return true
}

// unreadable says that a call cannot be read. Each that clients make may be one.
func (p *PeerHandler) unreadable(call string, err error) {
	p.mu.Lock()
	now := time.Now()
	due := now.Sub(p.refused[call]) >= refusedLine
	if due {
		if p.refused == nil || len(p.refused) >= refusedCalls {
			p.refused = make(map[string]time.Time)
		}
		p.refused[call] = now
	}
	p.mu.Unlock()
	if due {
		p.engine.log.Warn("raftkv: a peer's call cannot be read: is it of another release?", "call", call, "err", err)
	}
}

// lead waits for the beginning of the term of a node that was elected just now.
func (p *PeerHandler) lead(ctx context.Context) error {
	era := p.engine.eras.get()
	if era.leader != p.engine.nodeID {
		return notLeading()
	}
	return p.engine.ready(ctx, era.over)
}

func (p *PeerHandler) answer(w http.ResponseWriter, answer any) {
	buf := new(bytes.Buffer)
	if err := p.engine.wire.enc.MarshalToBuffer(answer, buf); err != nil {
		p.engine.log.Error("raftkv: an answer cannot be encoded", "err", err)
		panic(http.ErrAbortHandler) // unknown, for whoever asked
	}
	w.Header().Set("Content-Type", callMediaType)
	w.Header().Set("Content-Length", strconv.Itoa(buf.Len()))
	_, _ = w.Write(buf.Bytes()) // a client that went away will not read it
}

// enter registers a call that can be asked to leave. The returned function
// forgets it.
func (p *PeerHandler) enter(id string, leave context.CancelCauseFunc) func() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.waiting[id] = leave
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.waiting, id)
	}
}

// leave ends the waits of other calls, which then say what came of them.
func (p *PeerHandler) leave(w http.ResponseWriter, r *http.Request) {
	body, ok := p.body(w, r, maxCall)
	var batch []departure
	if !ok || !p.decode(w, r, body, &batch) {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, d := range batch {
		leave := p.waiting[d.ID]
		switch {
		case leave == nil: // answered already
		case d.Gone:
			leave(nil)
		default:
			leave(errWaitOver)
		}
	}
	w.WriteHeader(http.StatusNoContent)
}

// asError returns err as the error that it is, if a store returned it.
func asError(err error) *contract.Error {
	if e, ok := errors.AsType[*contract.Error](err); ok {
		return e
	}
	return contract.Errorf(contract.CodeInternal, err, "the store returned an error of another kind")
}
