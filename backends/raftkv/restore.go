package raftkv

import (
	"context"
	"errors"
	"io"
	"net/http"

	"leased/contract"
)

// restoredReason is the reason in the record of a lease that a backup held.
const restoredReason = "the store was restored from a backup: whoever held this lease no longer does"

// anyNamespace is the name under which the state keeps the floor of the namespaces
// that it does not know. No namespace has it.
const anyNamespace = ""

// restoreVerb is the call that restores a backup.
const restoreVerb = "restore"

// Restorer is what a restore needs of the node that runs the log.
type Restorer interface {
	// Restore replaces the FSM's state by a snapshot of size bytes on all nodes of
	// the cluster. The log goes on above index and above all that it had.
	Restore(ctx context.Context, index uint64, size int64, snapshot io.Reader) error
}

// Restored says what came of a restore.
type Restored struct {
	_ struct{} `cbor:",toarray"`
	// Backup is the head of the backup.
	Backup BackupHead
	// Ended is how many leases of the backup ended.
	Ended int64
	// Floor is what every token from now on is higher than.
	Floor contract.Token
}

// Restore replaces the state of the cluster by that of a backup, on any node. The
// backup is read whole and found right before anything changes.
//
// All leases of the backup end as expired, with a reason. Their histories and the
// answers to request ids are there again. Every namespace's floor is raised above
// every token that was ever granted, whether or not the backup knows the
// namespace: to the wall clock in microseconds, and above those of the state that
// is replaced. Calls that wait are answered outcome_unknown.
func (f *Forwarder) Restore(ctx context.Context, from io.Reader) (Restored, error) {
	ctx, end, err := f.local.handle.Begin(ctx, func() error { return nil })
	if err != nil {
		return Restored{}, err
	}
	defer end()
	era := f.engine.eras.get()
	switch era.leader {
	case "":
		return Restored{}, unavailable(nil, "no node leads")
	case f.engine.nodeID:
		return f.engine.restore(ctx, from)
	}
	return f.askRestore(ctx, era.leader, from)
}

// askRestore hands the backup on to the node that leads.
func (f *Forwarder) askRestore(ctx context.Context, leader string, from io.Reader) (Restored, error) {
	h := http.Header{timeLeftHeader: {timeLeft(ctx)}, "Content-Type": {"application/octet-stream"}}
	status, answer, err := f.engine.stream(ctx, leader, restoreVerb, h, from)
	switch {
	case isNotSent(err):
		return Restored{}, unavailable(err, "the node that leads cannot be reached")
	case err != nil || status >= http.StatusInternalServerError:
		return Restored{}, contract.Errorf(contract.CodeOutcomeUnknown, err,
			"the node that leads did not say whether the backup was restored; look at the leases before you repeat it")
	case status != http.StatusOK:
		return Restored{}, unavailable(nil, "the node that should lead does not; repeat it")
	}
	var a wireAnswer[Restored]
	if err := f.engine.wire.answers.Unmarshal(answer, &a); err != nil {
		return Restored{}, contract.Errorf(contract.CodeOutcomeUnknown, err, "the answer of the node that leads cannot be read")
	}
	if a.Err != nil && a.Err.Code == contract.CodeClosed {
		return Restored{}, unavailable(a.Err.err(), "the node that leads is stopping")
	}
	return a.Answer, a.Err.err()
}

// restore takes a backup that a peer handed on.
func (p *PeerHandler) restore(w http.ResponseWriter, r *http.Request) {
	timeLeft, ok := timeLeftOf(w, r)
	if !ok {
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), timeLeft)
	defer cancel()
	if p.lead(ctx) != nil {
		w.WriteHeader(http.StatusMisdirectedRequest)
		return
	}
	restored, err := p.store.restore(ctx, r.Body)
	p.answer(w, wireAnswer[Restored]{Answer: restored, Err: wireErrorOf(err)})
}

func (s *Store) restore(ctx context.Context, from io.Reader) (Restored, error) {
	ctx, end, err := s.handle.Begin(ctx, func() error { return nil })
	if err != nil {
		return Restored{}, err
	}
	defer end()
	return s.engine.restore(ctx, from)
}

// restore does the work on the node that leads.
func (e *Engine) restore(ctx context.Context, from io.Reader) (Restored, error) {
	if e.restorer == nil {
		return Restored{}, contract.Errorf(contract.CodeInternal, nil, "this node cannot restore")
	}
	if !e.restoring.TryLock() {
		return Restored{}, unavailable(nil, "another backup is being restored")
	}
	defer e.restoring.Unlock()
	clock, err := e.leading(ctx)
	if err != nil {
		return Restored{}, err
	}
	head, s, err := readBackup(e.fsm.codec, e.wire, max(clock.now(), e.fsm.Clock()), from)
	switch {
	case ctx.Err() != nil:
		return Restored{}, contract.NotSubmitted(ctx)
	case err != nil:
		return Restored{}, contract.Invalid("body", "is not a backup that can be restored: %v", err)
	}
	out := Restored{Backup: *head}
	e.fsm.mu.RLock()
	before := e.fsm.state
	s.index, s.offset = max(s.index, before.index), e.wall().UnixNano()-s.now
	out.Floor = contract.Token(s.raiseFloors(before, uint64(e.wall().UnixMicro())))
	e.fsm.mu.RUnlock()
	out.Ended = s.endAll()

	var size counter
	state := &frozen{codec: e.fsm.codec, state: s}
	if err := state.write(&size); err != nil {
		return Restored{}, contract.Errorf(contract.CodeInternal, err, "the restored state cannot be written")
	}
	r, w := io.Pipe()
	go func() { w.CloseWithError(state.write(w)) }()
	err = e.restorer.Restore(ctx, s.index, int64(size), r)
	_ = r.Close() // ends the writer, whatever was read
	if err != nil {
		return Restored{}, classify(ctx, err)
	}
	return out, nil
}

// counter counts what is written to it.
type counter int64

// Write implements io.Writer.
func (c *counter) Write(p []byte) (int, error) {
	*c += counter(len(p))
	return len(p), nil
}

// raiseFloors makes every later token of every namespace, known or not, higher
// than all that s or before granted and than above, and returns the least of what
// they will be higher than. s takes the place of before at its next index, which
// is higher than any that either had.
func (s *state) raiseFloors(before *state, above uint64) uint64 {
	s.index++ // the entry in whose place the restored state stands
	floor := max(above, s.index) - s.index
	names := []string{anyNamespace}
	for _, of := range []*state{s, before} {
		of.namespaces.Scan(func(n *nsState) bool {
			floor = max(floor, n.floor)
			names = append(names, n.name)
			return true
		})
	}
	for _, name := range names {
		n := *s.namespace(name)
		n.name, n.floor = name, floor
		s.namespaces.Set(&n)
	}
	return floor + s.index
}

// endAll ends every lease and forgets every place in a queue.
func (s *state) endAll() (ended int64) {
	st := step{state: s}
	var places []*waiter
	s.queue.Scan(func(w *waiter) bool { places = append(places, w); return true })
	for _, w := range places {
		ks := *st.key(w.ident)
		st.removePlace(&ks, w)
		st.putKey(&ks)
	}
	var held []*ident
	s.keys.Scan(func(ks *keyState) bool {
		if ks.active != nil {
			held = append(held, ks.ident)
		}
		return true
	})
	for _, id := range held {
		ks := *st.key(id)
		l := *ks.active
		// What is displayed as its end is not to lie in the future.
		l.nominal = min(l.nominal, st.wall())
		ks.active = &l
		st.end(&ks, ending{state: contract.StateExpired, reason: restoredReason}, 0)
	}
	return int64(len(held))
}

// unavailableRestored is what a call is told that waited in a queue when the
// store was restored: there is no such queue any more.
func unavailableRestored() *contract.Error {
	e := contract.Errorf(contract.CodeOutcomeUnknown, errors.New("raftkv: restored"),
		"the store was restored from a backup while this call waited; repeat it with the same request id")
	e.RetryAfter = retryAfter
	return e
}
