package valkey

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/valkey-io/valkey-go"

	"leased/contract"
)

const (
	// checkEvery is how often a connected server is looked at: its policy, its
	// role, whether it was restarted.
	checkEvery = 2 * time.Second
	// checkAgain is how often a server is looked at that does not serve: it must
	// serve within 2 s of being able to.
	checkAgain = 500 * time.Millisecond
	// checkTimeout bounds one look.
	checkTimeout = 5 * time.Second
	// redialFirst and redialMost are the pauses between attempts to connect. A
	// server that came back serves again within 2 s.
	redialFirst = 50 * time.Millisecond
	redialMost  = 500 * time.Millisecond
	// stuckAfter is how long a connection may be silent before it is given up.
	stuckAfter = 3 * time.Second
	// inFlight is from how many commands on a command gets a goroutine of its
	// own: the client's rings block without a deadline when they are full.
	inFlight = 2048
	// mostStuck bounds the commands that hang in the client.
	mostStuck = 16384
	// mostReasons bounds what is logged of one outage.
	mostReasons = 8
	// multiplex is the power of two of how many connections carry commands.
	multiplex = 1
)

// link is the connection to the server. It connects in the background, again
// when the server changed its role, and tells everybody else how things are.
type link struct {
	cfg    Config
	rights *script
	rules  classifier
	log    *slog.Logger
	// changed is told that what the server knows may have gone back.
	changed func()
	// known are the run ids of the primaries by address, as last seen; only run
	// uses them.
	known map[string]string
	// told has the reasons why the server does not serve that were logged since it
	// did; only run uses them.
	told map[string]bool
	// generation counts the times that a primary was another than before.
	generation atomic.Int64

	client    atomic.Pointer[clientRef]
	state     atomic.Pointer[condition]
	first     chan struct{} // closed after the first attempt to connect
	broken    chan struct{} // a client met something that another one may not meet
	running   atomic.Int64
	dialing   atomic.Int64
	suspect   atomic.Bool
	stop      context.CancelFunc
	done      chan struct{}
	closeOnce sync.Once
}

type clientRef struct{ valkey.Client }

// condition is what the last look at the server found.
type condition struct {
	err         error  // why there is no connection
	refuse      string // why nothing may be granted
	forbid      string // why nothing may be changed
	runID       string
	persistence string
	policy      string
}

func newLink(cfg Config, rights *script, changed func()) *link {
	ctx, cancel := context.WithCancel(context.Background())
	l := &link{
		cfg: cfg, rights: rights, rules: classifier{refusals()}, log: cfg.Logger, changed: changed,
		known: map[string]string{}, told: map[string]bool{}, first: make(chan struct{}),
		broken: make(chan struct{}, 1), stop: cancel, done: make(chan struct{}),
	}
	l.suspect.Store(true)
	l.state.Store(&condition{err: errors.New("not connected yet")})
	go l.run(ctx)
	return l
}

func (l *link) close() {
	l.closeOnce.Do(func() {
		l.stop()
		<-l.done
		if c := l.client.Swap(nil); c != nil {
			c.Close()
		}
	})
}

// options returns what all clients have in common. Nothing is retried inside
// the client: a retried write would be a second one, and a retried read would
// outlive its caller.
func (l *link) options() valkey.ClientOption {
	return valkey.ClientOption{
		InitAddress: l.cfg.Addresses, Username: l.cfg.Username, Password: l.cfg.Password, TLSConfig: l.cfg.TLS,
		Dialer:           net.Dialer{Timeout: defaultDialTimeout, KeepAlive: time.Second},
		ConnWriteTimeout: stuckAfter, PipelineMultiplex: multiplex, AlwaysPipelining: true,
		DisableRetry: true, DisableCache: true, ClientName: "leased", RingScaleEachConn: 11,
		DialCtxFn: l.dial, ReadBufferEachConn: 64 << 10, WriteBufferEachConn: 64 << 10,
		BlockingPoolCleanup: time.Minute,
		ClusterOption:       valkey.ClusterOption{ShardsRefreshInterval: 5 * time.Second, MaxMovedRedirections: 5},
	}
}

// run keeps a client until ctx ends.
func (l *link) run(ctx context.Context) {
	defer close(l.done)
	pause := redialFirst
	var once sync.Once
	tried := func() { once.Do(func() { close(l.first) }) }
	defer tried()
	for ctx.Err() == nil {
		c, err := l.connect(ctx)
		if err == nil {
			err = l.look(ctx, c)
			if err != nil {
				c.Close()
			}
		}
		if err != nil {
			l.trouble(err)
			tried()
			if !sleep(ctx, pause) {
				return
			}
			pause = min(2*pause, redialMost)
			continue
		}
		pause = redialFirst
		l.client.Store(&clientRef{c})
		tried()
		l.changed() // what was said on the last connection may not have been heard
		l.log.Info("valkey: connected", "run_id", l.state.Load().runID)
		l.watch(ctx, c)
		if ctx.Err() != nil {
			return // close has the client
		}
		l.client.Store(nil)
		l.suspect.Store(true)
		// Calls on it may still get their answers.
		time.AfterFunc(stuckAfter, c.Close)
	}
}

// watch returns when the client should be replaced.
func (l *link) watch(ctx context.Context, c valkey.Client) {
	next := time.NewTimer(l.pause())
	defer next.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.broken:
		case <-next.C:
		}
		if err := l.look(ctx, c); err != nil {
			l.trouble(err)
			if l.stale(c, err) {
				return
			}
		}
		next.Reset(l.pause())
	}
}

// pause returns how long after one look at the server the next one comes.
func (l *link) pause() time.Duration {
	if s := l.state.Load(); s.err != nil || s.refuse != "" || s.forbid != "" {
		return checkAgain
	}
	return checkEvery
}

// stale tells whether another connection may lead to a server that serves. The
// client dials again by itself when a connection breaks, but it does not notice
// a server that is another now.
func (l *link) stale(c valkey.Client, err error) bool {
	if l.clustered(c) {
		return false // it follows the cluster by itself, and one node down is not all
	}
	if errors.Is(err, errRole) || l.cfg.Mode == ModeSentinel || len(l.cfg.Addresses) > 1 {
		return true
	}
	r, ok := l.rules.refused(err)
	return ok && (r.code == "READONLY" || r.code == "MASTERDOWN")
}

// reason is what is wrong without where: the ports of connections differ each time.
func reason(err error) string {
	if e, ok := errors.AsType[*net.OpError](err); ok {
		return e.Op + ": " + e.Err.Error()
	}
	return err.Error()
}

func (l *link) trouble(err error) {
	old := l.state.Load()
	if r := reason(err); !l.told[r] && len(l.told) < mostReasons {
		l.told[r] = true
		l.log.Warn("valkey: the server cannot serve", "err", err)
	}
	next := *old
	next.err = err
	l.state.Store(&next)
}

// report tells the link that a command failed in a way that may mean that the
// client is connected to the wrong server.
func (l *link) report() {
	select {
	case l.broken <- struct{}{}:
	default:
	}
}

// get returns the client, waiting for the first attempt to connect only.
func (l *link) get(ctx context.Context) (valkey.Client, error) {
	if c := l.client.Load(); c != nil {
		return c.Client, nil
	}
	select {
	case <-l.first:
	case <-ctx.Done():
		return nil, contract.NotSubmitted(ctx)
	}
	if c := l.client.Load(); c != nil {
		return c.Client, nil
	}
	err := l.state.Load().err
	if r, ok := l.rules.refused(err); ok {
		return nil, unavailable(err, r.detail)
	}
	return nil, unavailable(err, "the server cannot be reached")
}

// do runs f, which sends a command, again if nothing of it was sent, and returns
// by the end of ctx whatever f does. f must not touch what the caller owns.
func (l *link) do(ctx context.Context, f func(context.Context, valkey.Client) valkey.ValkeyResult) (valkey.ValkeyMessage, error) {
	if ctx.Err() != nil {
		return valkey.ValkeyMessage{}, contract.NotSubmitted(ctx)
	}
	c, err := l.get(ctx)
	if err != nil {
		return valkey.ValkeyMessage{}, err
	}
	n := l.running.Add(1)
	if n < inFlight && !l.suspect.Load() && l.dialing.Load() == 0 {
		res := patiently(ctx, c, f)
		l.running.Add(-1)
		l.judge(res)
		return res.ToMessage()
	}
	if n > mostStuck {
		l.running.Add(-1)
		return valkey.ValkeyMessage{}, unavailable(nil, "too many commands wait for the server")
	}
	return l.apart(ctx, func(ctx context.Context) valkey.ValkeyResult {
		defer l.running.Add(-1)
		return patiently(ctx, c, f)
	})
}

// apart runs f on a goroutine of its own, which is left behind when ctx ends.
func (l *link) apart(ctx context.Context, f func(context.Context) valkey.ValkeyResult) (valkey.ValkeyMessage, error) {
	answered := make(chan valkey.ValkeyResult, 1)
	var busy atomic.Int64
	go func() { answered <- f(context.WithValue(ctx, dials{}, &busy)) }()
	select {
	case res := <-answered:
		l.judge(res)
		return res.ToMessage()
	case <-ctx.Done():
		if busy.Load() > 0 {
			// The client dials for this very call, and sends nothing for a call
			// whose context has ended.
			return valkey.ValkeyMessage{}, contract.NotSubmitted(ctx)
		}
		return valkey.ValkeyMessage{}, context.Cause(ctx)
	}
}

// judge takes the health of the connection from an answer.
func (l *link) judge(res valkey.ValkeyResult) {
	switch err := res.NonValkeyError(); {
	case errors.Is(err, context.Canceled):
		// The caller's doing, but what it left behind still waits for its answer.
		l.suspect.Store(true)
		return
	case err != nil:
		if !l.suspect.Swap(true) {
			l.report()
		}
		return
	}
	if l.suspect.Load() {
		l.suspect.Store(false)
	}
	if err := res.Error(); err != nil && !valkey.IsValkeyNil(err) {
		if _, ok := l.rules.refused(err); ok || forbidden(err) {
			l.report()
		}
	}
}

// sleep waits for d, and reports whether ctx is still on.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
