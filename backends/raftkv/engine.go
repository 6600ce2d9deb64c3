package raftkv

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"leased/contract"
)

// Proposer is what the store needs of the node that runs the log.
type Proposer interface {
	// Propose appends the command and returns what FSM.Apply answered. ctx bounds
	// the whole wait. Errors that tell whether the command was handed to the log
	// have a method Submitted() bool; raft's own errors can be found with
	// errors.Is.
	Propose(ctx context.Context, command []byte) (any, error)
	// Confirm returns nil once this node was the leader at a moment after the
	// call began and its FSM has applied everything committed before.
	Confirm(ctx context.Context) error
	// Leadership returns the term in which this node leads, 0 when it does not,
	// and a channel that is closed when that changes. A term is told only after
	// everything before it was applied.
	Leadership() (term uint64, changed <-chan struct{})
}

const (
	// leaderWait is how long an operation waits for this node to lead before it
	// answers unavailable, where no other node could lead.
	leaderWait = time.Second
	// pollInterval is how often the sweeper looks at the agenda when nothing is
	// due sooner.
	pollInterval = 50 * time.Millisecond
	// tickInterval bounds how long the state's clock stands still while a lease
	// is active: a new leader resumes from it, so that it stretches a lease by
	// the fail-over gap and at most this much.
	tickInterval = 500 * time.Millisecond
	// cleanDelay lets answers and history that may be forgotten gather, so that
	// one entry drops many.
	cleanDelay = time.Second
	// sweepMax bounds the records that one entry touches: Apply stays short.
	sweepMax = 1024
	// ownTimeout bounds commands that nobody waits for.
	ownTimeout = 5 * time.Second
)

// Options is what an Engine is made of.
type Options struct {
	FSM      *FSM
	Proposer Proposer
	// Members says which commands the other nodes apply; nil where there are none.
	Members Members
	// NodeID is the name of the node that runs the log: what health calls the
	// leader while it leads.
	NodeID string
	// Peers leads to the node that leads; nil for a node alone. With it the stores
	// of Store serve only while this node leads, at once or not at all: Forwarder
	// is the store for users.
	Peers Peers
	// Observer is told of expiries, on the node that leads; may be nil.
	Observer contract.ExpiryObserver
	Logger   *slog.Logger // nil discards
	// Clock is a monotonic clock and Wall the wall clock; nil for the machine's.
	Clock func() time.Duration
	Wall  func() time.Time
}

// Engine is what runs beside the log on each node: the leader's clock, the
// sweeper, and the calls that wait. All Stores of a node share one.
type Engine struct {
	fsm      *FSM
	proposer Proposer
	nodeID   string
	peers    Peers
	members  Members
	observer contract.ExpiryObserver
	log      *slog.Logger
	mono     func() time.Duration
	wall     func() time.Time
	waiters  *waiters
	wire     wire  // how nodes speak to each other
	eras     *eras // nil for a node alone
	// departures end waits at the leader.
	departures *departures
	// carriers bring calls to the leader.
	carriers *carriers

	cancel context.CancelFunc
	own    sync.WaitGroup // what runs until Close
	// readSweep is held by the read that sweeps: others that met the same due
	// lease wait for it instead of sweeping too.
	readSweep chan struct{}
	restoring sync.Mutex // held by the one restore that may run
	// background counts commands that outlive the call that caused them.
	background sync.WaitGroup

	mu      sync.Mutex
	clock   *leaderClock // nil while this node does not lead
	changed chan struct{}
	closed  bool
	// leavers are the calls that wait to leave their queues, see leave.
	leavers    []leaving
	leaverRuns bool
}

// New starts an Engine. Close it before the node that runs the log.
func New(o Options) *Engine {
	ctx, cancel := context.WithCancel(context.Background())
	e := &Engine{
		fsm: o.FSM, proposer: o.Proposer, nodeID: o.NodeID, peers: o.Peers, members: o.Members, observer: o.Observer, log: o.Logger, mono: o.Clock, wall: o.Wall,
		waiters: newWaiters(), cancel: cancel, changed: make(chan struct{}),
		readSweep: make(chan struct{}, 1),
	}
	if e.log == nil {
		e.log = slog.New(slog.DiscardHandler)
	}
	if e.mono == nil {
		e.mono = monotonic()
	}
	if e.wall == nil {
		e.wall = time.Now
	}
	e.fsm.listen(e.hear, func() { e.waiters.fail(unavailableRestored()) })
	if e.peers != nil {
		e.wire, e.eras, e.departures, e.carriers = newWire(), newEras(), newDepartures(e), newCarriers(e)
		e.own.Go(func() { e.eras.follow(ctx, e.peers.Leader) })
	}
	e.own.Go(func() { e.run(ctx) })
	return e
}

// Close ends the Engine and waits for everything it started, until ctx ends.
// Stores must be closed first: their waiters leave the queue through the log.
func (e *Engine) Close(ctx context.Context) error {
	e.mu.Lock()
	e.closed = true
	e.mu.Unlock()
	idle := make(chan struct{})
	go func() {
		e.background.Wait()
		e.cancel()
		e.own.Wait()
		close(idle)
	}()
	select {
	case <-idle:
		e.fsm.listen(nil, nil)
		return nil
	case <-ctx.Done():
		e.cancel()
		return contract.Errorf(contract.CodeTimeout, ctx.Err(), "commands of the store were still running")
	}
}

// start runs f in the background unless the Engine is closed.
func (e *Engine) start(f func()) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return false
	}
	e.background.Go(f)
	return true
}

// hear is told of each batch that was applied.
func (e *Engine) hear(b batch) {
	for i := range b.served {
		e.waiters.serve(&b.served[i])
	}
	if e.observer == nil || !e.leads() {
		return
	}
	for i := range b.events {
		if b.events[i].kind == contract.EventExpired {
			e.observer(eventView(&b.events[i]))
		}
	}
}

func (e *Engine) leads() bool { return e.term() != 0 }

// term returns the term in which this node leads, 0 when it does not.
func (e *Engine) term() uint64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.clock == nil {
		return 0
	}
	return e.clock.term
}

func (e *Engine) isClosed() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.closed
}

// leading returns the clock of the current term. A node alone waits a little for
// one. In a cluster another node may lead, and a call that its caller has given
// up and asked of that one must not be carried out here at the next term.
func (e *Engine) leading(ctx context.Context) (*leaderClock, error) {
	e.mu.Lock()
	c, changed := e.clock, e.changed
	e.mu.Unlock()
	if c != nil {
		return c, nil
	}
	if e.peers != nil {
		return nil, notLeading()
	}
	patience := time.NewTimer(leaderWait)
	defer patience.Stop()
	for {
		select {
		case <-changed:
		case <-patience.C:
			return nil, unavailable(nil, "there is no leader here")
		case <-ctx.Done():
			return nil, contract.NotSubmitted(ctx)
		}
		e.mu.Lock()
		c, changed = e.clock, e.changed
		e.mu.Unlock()
		if c != nil {
			return c, nil
		}
	}
}

// ready returns when this node leads in a term that has begun, or fails.
func (e *Engine) ready(ctx context.Context, over <-chan struct{}) error {
	for {
		e.mu.Lock()
		c, changed := e.clock, e.changed
		e.mu.Unlock()
		if c != nil {
			return nil
		}
		select {
		case <-changed:
		case <-over:
			return notLeading()
		case <-ctx.Done():
			return notLeading()
		}
	}
}

func (e *Engine) setClock(c *leaderClock) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.clock = c
	close(e.changed)
	e.changed = make(chan struct{})
}

// propose stamps a command, puts it through the log and returns what Apply
// answered.
func (e *Engine) propose(ctx context.Context, k kind, body any) (any, error) {
	if ctx.Err() != nil {
		return nil, contract.NotSubmitted(ctx)
	}
	clock, err := e.leading(ctx)
	if err != nil {
		return nil, err
	}
	return e.proposeAt(ctx, clock, k, body)
}

func (e *Engine) proposeAt(ctx context.Context, clock *leaderClock, k kind, body any) (any, error) {
	data, err := e.fsm.codec.encode(clock.stamp(k), body)
	if err != nil {
		return nil, contract.Errorf(contract.CodeInternal, err, "the command cannot be encoded")
	}
	answer, err := e.proposer.Propose(ctx, data)
	if err != nil {
		return nil, classify(ctx, err)
	}
	return answer, nil
}

// run follows the leadership and sweeps while this node leads.
func (e *Engine) run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	var clock *leaderClock
	for {
		term, changed := e.proposer.Leadership()
		if clock != nil && clock.term != term {
			clock = nil
			e.setClock(nil)
			e.waiters.fail(unavailableWait())
		}
		wait := pollInterval
		if term != 0 && clock == nil {
			clock = e.takeOver(ctx, term)
		}
		if clock != nil {
			wait = e.sweep(ctx, clock)
		}
		timer.Reset(wait)
		select {
		case <-changed:
		case <-timer.C:
		case <-ctx.Done():
			return
		}
	}
}

// unavailableWait is what a waiting call is told when its leader is gone. Its
// turn may have come in an entry that this node has not seen.
func unavailableWait() *contract.Error {
	e := contract.Errorf(contract.CodeOutcomeUnknown, nil,
		"the leader changed while this call waited; repeat it with the same request id to keep the place")
	e.RetryAfter = retryAfter
	return e
}

// takeOver begins a term: the clock starts where the state's clock stands, and
// the first entry ends the waits of earlier leaders. It returns nil when that
// entry did not get through; the caller tries again.
func (e *Engine) takeOver(ctx context.Context, term uint64) *leaderClock {
	clock := &leaderClock{term: term, base: e.fsm.agenda().now, start: e.mono(), mono: e.mono}
	ctx, cancel := context.WithTimeout(ctx, ownTimeout)
	defer cancel()
	if _, err := e.proposeAt(ctx, clock, kindTakeover, &takeoverCmd{Wall: e.wall().UnixNano()}); err != nil {
		if !errors.Is(err, context.Canceled) {
			e.log.Warn("raftkv: the first entry of a term did not get through", "term", term, "err", err)
		}
		return nil
	}
	e.setClock(clock)
	e.log.Debug("raftkv: leading", "term", term)
	return clock
}

// sweep brings the state up to the clock where something is due and returns when
// to look again.
func (e *Engine) sweep(ctx context.Context, clock *leaderClock) time.Duration {
	a, now := e.fsm.agenda(), clock.now()
	drift := e.wall().UnixNano() - now - a.offset
	expired := a.expiry != 0 && a.expiry <= now
	due := expired ||
		a.cleaning != 0 && a.cleaning <= now-int64(cleanDelay) ||
		a.expiry != 0 && a.now <= now-int64(tickInterval) ||
		a.expiry != 0 && (drift > wallDrift || drift < -wallDrift)
	if due {
		if err := e.sweepOnce(ctx, clock); err != nil {
			if ctx.Err() == nil {
				e.log.Warn("raftkv: a sweep did not get through", "err", err)
			}
			return pollInterval
		}
		a, now = e.fsm.agenda(), clock.now()
		if a.cleaning != 0 && a.cleaning <= now-int64(cleanDelay) {
			return 0
		}
	}
	if a.expiry == 0 {
		return pollInterval
	}
	return min(pollInterval, max(0, time.Duration(a.expiry-now)))
}

func (e *Engine) sweepOnce(ctx context.Context, clock *leaderClock) error {
	ctx, cancel := context.WithTimeout(ctx, ownTimeout)
	defer cancel()
	_, err := e.proposeAt(ctx, clock, kindSweep, &sweepCmd{Wall: e.wall().UnixNano(), Max: sweepMax})
	return err
}
