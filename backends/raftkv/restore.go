package raftkv

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"leased/contract"
)

// restoredReason is the reason in the record of a lease that a backup held.
const restoredReason = "the store was restored from a backup: whoever held this lease no longer does"

// anyNamespace is the name under which the state keeps the floor of the namespaces
// that it does not know. No namespace has it.
const anyNamespace = ""

// restoreVerb is the call that restores a backup.
const restoreVerb = "restore"

// partSize is how much of a state one entry of a restore carries, in bytes. A
// follower that is behind is sent up to 512 entries at once.
const partSize = 64 << 10

// Members is what a restore needs of the node that runs the log.
type Members interface {
	// Applies returns nil when every member of the cluster has said that it applies
	// commands of the version, and otherwise which of them has not.
	Applies(ctx context.Context, version int) error
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
// every token that was ever granted in it, whether or not the backup knows the
// namespace: to the wall clock in microseconds, and above those of the backup and of
// the state that is replaced. Calls that wait are answered outcome_unknown.
//
// A backup that does not come whole, for reading it fails or ctx ends, is answered
// timeout. Close ends one that has not yet come whole; a read of from that hangs then is
// ended if from has a SetReadDeadline, as a connection has.
func (f *Forwarder) Restore(ctx context.Context, from io.Reader) (Restored, error) {
	ctx, end, err := f.local.handle.Begin(ctx, func() error { return nil })
	if err != nil {
		return Restored{}, err
	}
	defer end()
	ctx, u, done := receive(ctx, from, f.local.handle.Closing())
	defer done()
	defer context.AfterFunc(f.cut, func() { u.stop(errCallerGone) })()
	era := f.engine.eras.get()
	switch era.leader {
	case "":
		return Restored{}, unavailable(nil, "no node leads")
	case f.engine.nodeID:
		return f.engine.restore(ctx, u)
	}
	return f.askRestore(ctx, era.leader, u)
}

// askRestore hands the backup on to the node that leads.
func (f *Forwarder) askRestore(ctx context.Context, leader string, u *upload) (Restored, error) {
	h := http.Header{timeLeftHeader: {timeLeft(ctx)}, "Content-Type": {"application/octet-stream"}}
	status, answer, err := f.engine.stream(ctx, leader, restoreVerb, h, u)
	switch {
	case isNotSent(err):
		return Restored{}, unavailable(err, "the node that leads cannot be reached")
	case err != nil || status >= http.StatusInternalServerError:
		// The node that leads restores nothing before it has seen the end.
		lost := unavailable(err, "the node that leads was lost before it had the whole backup: nothing was restored")
		if err := u.cut(lost); err != nil {
			return Restored{}, err
		}
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
	restored, err := p.store.restore(ctx, &peerBody{r.Body, http.NewResponseController(w)})
	p.answer(w, wireAnswer[Restored]{Answer: restored, Err: wireErrorOf(err)})
}

// peerBody is the body of a peer's request, of which a read that hangs can be ended.
type peerBody struct {
	io.Reader
	control *http.ResponseController
}

// SetReadDeadline ends reads at the instant.
func (b *peerBody) SetReadDeadline(at time.Time) error { return b.control.SetReadDeadline(at) }

func (s *Store) restore(ctx context.Context, from io.Reader) (Restored, error) {
	ctx, end, err := s.handle.Begin(ctx, func() error { return nil })
	if err != nil {
		return Restored{}, err
	}
	defer end()
	ctx, u, done := receive(ctx, from, s.handle.Closing())
	defer done()
	return s.engine.restore(ctx, u)
}

// restore does the work on the node that leads: it reads the backup, ends its
// leases, and puts the state that comes of it through the log in parts. What it
// needs is looked at before the backup is read as well: that takes minutes.
func (e *Engine) restore(ctx context.Context, u *upload) (Restored, error) {
	if !e.restoring.TryLock() {
		return Restored{}, unavailable(nil, "another backup is being restored")
	}
	defer e.restoring.Unlock()
	if _, err := e.mayRestore(ctx); err != nil {
		return Restored{}, err
	}
	head, s, err := readBackup(e.fsm.codec, e.wire, u)
	switch failed := u.failed(); {
	case failed != nil:
		return Restored{}, failed
	case err != nil:
		return Restored{}, contract.Invalid("body", "is not a backup that can be restored: %v", err)
	}
	clock, err := e.mayRestore(ctx)
	if err != nil {
		return Restored{}, err
	}
	p := &parts{ctx: ctx, engine: e, clock: clock}
	_, _ = rand.Read(p.id[:])
	out := Restored{Backup: *head}
	floor, err := p.send(s, &out.Ended)
	if err != nil {
		e.start(p.giveUp)
		return Restored{}, err
	}
	out.Floor = contract.Token(floor)
	return out, nil
}

// mayRestore returns the clock of this node's term, in which all members apply the
// parts of a restore.
func (e *Engine) mayRestore(ctx context.Context) (*leaderClock, error) {
	clock, err := e.leading(ctx)
	if err != nil || e.members == nil {
		return clock, err
	}
	if err := e.members.Applies(ctx, restoreVersion); err != nil {
		return nil, notRestored(ctx, err, "a restore needs every member to run a release that applies it: %v", err)
	}
	return clock, nil
}

// parts puts a state through the log.
type parts struct {
	ctx    context.Context //nolint:containedctx // an io.Writer has no other way to be told
	engine *Engine
	clock  *leaderClock
	id     [16]byte
	next   uint32
}

// send returns what every later token is higher than. Only an error of the last
// part can leave the restore done.
func (p *parts) send(s *state, ended *int64) (floor uint64, err error) {
	began, err := p.put(&restoreCmd{Above: s.index})
	if err != nil {
		return 0, err
	}
	// No other event has the place of the entry that begins.
	s.index, s.base, s.offset = began.index, 0, p.engine.wall().UnixNano()-s.now
	*ended = s.endAll()
	// The state has the clock of the backup's cluster. It is moved to this one's now,
	// and not before the backup was read: what it remembers does not age on its way.
	now := max(p.clock.now(), p.engine.fsm.Clock())
	if err := (&frozen{codec: p.engine.fsm.codec, state: s, shift: now - s.now}).write(p); err != nil {
		if told, ok := errors.AsType[*contract.Error](err); ok {
			return 0, told
		}
		return 0, contract.Errorf(contract.CodeInternal, err, "the restored state cannot be written")
	}
	last, err := p.put(&restoreCmd{End: restoreDone, Floor: uint64(p.engine.wall().UnixMicro())})
	if err == nil && last.err != nil {
		err = contract.Errorf(contract.CodeInternal, last.err, "the restored state cannot be read")
	}
	return last.floor, err
}

// Write implements io.Writer.
func (p *parts) Write(b []byte) (n int, err error) {
	for n < len(b) {
		part := b[n:min(n+partSize, len(b))]
		if _, err := p.put(&restoreCmd{Data: part}); err != nil {
			return n, err
		}
		n += len(part)
	}
	return n, nil
}

// put puts the next part through the log.
func (p *parts) put(c *restoreCmd) (restoreReply, error) {
	c.ID, c.Part = p.id, p.next
	p.next++
	if p.ctx.Err() != nil {
		return restoreReply{}, contract.NotSubmitted(p.ctx)
	}
	answer, err := p.engine.proposeAt(p.ctx, p.clock, kindRestore, c)
	if err != nil {
		if c.End == restoreDone && contract.CodeOf(err) == contract.CodeOutcomeUnknown {
			return restoreReply{}, contract.Errorf(contract.CodeOutcomeUnknown, err,
				"it is not known whether the backup was restored; look at the leases before you repeat it")
		}
		return restoreReply{}, notRestored(p.ctx, err, "nothing was restored: this node takes no commands now")
	}
	r, ok := answer.(restoreReply)
	if !ok {
		return restoreReply{}, contract.Errorf(contract.CodeInternal, nil, "the log gave an answer of another kind")
	}
	if !r.taken {
		return restoreReply{}, notRestored(p.ctx, nil, "nothing was restored: another node has led meanwhile")
	}
	return r, nil
}

// giveUp has all nodes forget the parts, so that they can take snapshots again. The
// first entry of another leader does the same.
func (p *parts) giveUp() {
	again := time.NewTicker(leaveRetry)
	defer again.Stop()
	for p.engine.term() == p.clock.term && !p.engine.isClosed() {
		ctx, cancel := context.WithTimeout(context.Background(), ownTimeout)
		_, err := p.engine.proposeAt(ctx, p.clock, kindRestore, &restoreCmd{ID: p.id, Part: p.next, End: restoreGivenUp})
		cancel()
		if err == nil {
			return
		}
		<-again.C
	}
}

// notRestored is the answer where the state is certainly not replaced.
func notRestored(ctx context.Context, err error, format string, args ...any) error {
	if ctx.Err() != nil {
		return contract.NotSubmitted(ctx)
	}
	return unavailable(err, fmt.Sprintf(format, args...))
}

// unavailableRestored is what a call is told that waited in a queue when the
// store was restored: there is no such queue any more.
func unavailableRestored() *contract.Error {
	e := contract.Errorf(contract.CodeOutcomeUnknown, errors.New("raftkv: restored"),
		"the store was restored from a backup while this call waited; repeat it with the same request id")
	e.RetryAfter = retryAfter
	return e
}
