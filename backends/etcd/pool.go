package etcd

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/stats"
)

const (
	// attemptTimeout bounds what one member may take of a call when there are
	// others: a member that hangs would otherwise eat the deadline.
	attemptTimeout = time.Second
	// suspectFor is how long a member that did not answer is tried last, unless
	// a probe finds it well before.
	suspectFor = 2 * time.Second
	// probeEvery is how often members are looked at.
	probeEvery   = 500 * time.Millisecond
	probeTimeout = 800 * time.Millisecond
	// createTimeout bounds the first authentication with a member.
	createTimeout = time.Second
	// reconnectDelay is the longest pause between attempts to connect. It is well
	// below hopeFor: a call that hopes meets the server that came back.
	reconnectDelay = 100 * time.Millisecond
	// unaryRetries is how often etcd's client tries by itself: enough for new
	// credentials, and not for seconds.
	unaryRetries = 3
)

// pool has a client for each member. etcd's own balancer goes round all of them
// and notices one that hangs only after ten seconds.
type pool struct {
	config Config
	eps    []*endpoint
	life   context.Context //nolint:containedctx // the pool's own, for what runs beside calls; ends with close
	stop   context.CancelFunc
	began  time.Time
	beside sync.WaitGroup // what runs beside calls

	commits *committer

	// The highest revision seen, the cluster that it is of and the epoch, to notice
	// an etcd that went back: then wentBack is called.
	seen     atomic.Int64
	cluster  atomic.Uint64
	epoch    atomic.Pointer[string] // nil until it was read
	wentBack func()

	ageMu sync.Mutex
	age   chan struct{} // closed when etcd is found to have gone back; then there is another one
}

type endpoint struct {
	addr    string
	suspect atomic.Int64 // until when, in ns of the process's monotonic clock

	mu     sync.Mutex
	client *clientv3.Client // nil until made
	err    error            // why it is not
	closed bool
}

func newPool(c Config, wentBack func()) *pool {
	p := &pool{config: c, began: time.Now(), wentBack: wentBack, age: make(chan struct{})}
	p.commits = &committer{p: p}
	p.life, p.stop = context.WithCancel(context.Background())
	for _, addr := range c.Endpoints {
		p.eps = append(p.eps, &endpoint{addr: addr})
	}
	var first sync.WaitGroup
	for _, ep := range p.eps {
		first.Go(func() { p.create(ep) })
		p.beside.Go(func() { p.probe(p.life, ep) })
	}
	first.Wait()
	return p
}

// monotonic is a clock for intervals within the process.
func (p *pool) monotonic() int64 { return int64(time.Since(p.began)) }

// create makes the endpoint's client. Without authentication it does no I/O.
func (p *pool) create(ep *endpoint) {
	c, err := clientv3.New(clientv3.Config{
		Context: p.life, Endpoints: []string{ep.addr}, DialTimeout: createTimeout,
		DialKeepAliveTime: 10 * time.Second, DialKeepAliveTimeout: 3 * time.Second, PermitWithoutStream: true,
		Username: p.config.Username, Password: p.config.Password, TLS: p.config.TLS, Logger: zap.NewNop(),
		MaxUnaryRetries: unaryRetries,
		DialOptions: []grpc.DialOption{
			grpc.WithStatsHandler(sentHandler{}),
			grpc.WithChainUnaryInterceptor(failFast),
			grpc.WithConnectParams(grpc.ConnectParams{
				Backoff:           backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: reconnectDelay},
				MinConnectTimeout: createTimeout,
			}),
		},
	})
	ep.mu.Lock()
	defer ep.mu.Unlock()
	switch {
	case err != nil:
		ep.err = err
	case ep.client != nil || ep.closed:
		_ = c.Close() // another was first
	default:
		ep.client, ep.err = c, nil
	}
}

func (ep *endpoint) get() (*clientv3.Client, error) {
	ep.mu.Lock()
	defer ep.mu.Unlock()
	if ep.client == nil && ep.err == nil {
		return nil, errors.New("not connected yet")
	}
	return ep.client, ep.err
}

// probe looks at the member again and again: it makes the client when that did
// not work before, and finds out whether a suspect is well again.
func (p *pool) probe(ctx context.Context, ep *endpoint) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(probeEvery):
		}
		c, _ := ep.get()
		if c == nil {
			p.create(ep)
			continue
		}
		if len(p.eps) == 1 {
			continue
		}
		probe, cancel := context.WithTimeout(ctx, probeTimeout)
		_, err := c.Get(probe, names{p.config.Prefix}.probe(), clientv3.WithCountOnly())
		cancel()
		if newFailure(err, true).elsewhere() && err != nil {
			ep.distrust(p.monotonic())
		} else {
			ep.suspect.Store(0)
		}
	}
}

func (ep *endpoint) distrust(now int64) { ep.suspect.Store(now + int64(suspectFor)) }

// order returns the members, those that are trusted first.
func (p *pool) order() []*endpoint {
	if len(p.eps) == 1 {
		return p.eps
	}
	now := p.monotonic()
	var good, bad []*endpoint
	for _, ep := range p.eps {
		if ep.suspect.Load() > now {
			bad = append(bad, ep)
		} else {
			good = append(good, ep)
		}
	}
	return append(good, bad...)
}

// do runs f on the first member that answers. What may have been applied is
// tried elsewhere only if it is repeatable; what certainly was not is tried for
// as long as the call hopes.
func (p *pool) do(ctx context.Context, repeatable bool, f func(context.Context, *clientv3.Client) error) *failure {
	for pause := hopePause; ; pause = min(2*pause, reconnectDelay) {
		fail := p.round(ctx, repeatable, f)
		if fail == nil || fail.unknown() && !repeatable || !fail.elsewhere() || !hopes(ctx, pause) {
			return fail
		}
	}
}

// round tries the members once.
func (p *pool) round(ctx context.Context, repeatable bool, f func(context.Context, *clientv3.Client) error) *failure {
	var last *failure
	for _, ep := range p.order() {
		if ctx.Err() != nil {
			break
		}
		c, err := ep.get()
		if err != nil {
			last = newFailure(err, false)
			continue
		}
		if last = p.attempt(ctx, c, f); last == nil {
			return nil
		}
		if !last.elsewhere() {
			return last
		}
		ep.distrust(p.monotonic())
		if last.unknown() && !repeatable {
			return last
		}
	}
	if last == nil {
		last = newFailure(ctx.Err(), false)
	}
	return last
}

func (p *pool) attempt(ctx context.Context, c *clientv3.Client, f func(context.Context, *clientv3.Client) error) *failure {
	if len(p.eps) > 1 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, attemptTimeout)
		defer cancel()
	}
	mark := &sentMark{}
	// A member without a leader says so at once, rather than after seconds.
	if err := f(clientv3.WithRequireLeader(context.WithValue(ctx, sentKey{}, mark)), c); err != nil {
		return newFailure(err, mark.sent.Load())
	}
	return nil
}

// txn commits t, provided that etcd is still the one that was read: revisions of
// one that was emptied meanwhile begin again, and would compare as if nothing had
// happened.
func (p *pool) txn(ctx context.Context, cmps []clientv3.Cmp, then []clientv3.Op) (*clientv3.TxnResponse, *failure) {
	epoch := p.epoch.Load()
	if epoch == nil {
		if _, fail := p.read(ctx); fail != nil {
			return nil, &failure{err: fail.err, refused: true, said: fail.said}
		}
		if epoch = p.epoch.Load(); epoch == nil {
			return nil, &failure{err: rpctypes.ErrNoSpace, refused: true}
		}
	}
	name := names{p.config.Prefix}.epoch()
	cmps = append(slices.Clone(cmps), clientv3.Compare(clientv3.Value(name), "=", *epoch))
	var resp *clientv3.TxnResponse
	before := p.seen.Load()
	fail := p.do(ctx, false, func(ctx context.Context, c *clientv3.Client) (err error) {
		resp, err = c.Txn(ctx).If(cmps...).Then(then...).Else(clientv3.OpGet(name)).Commit()
		return err
	})
	if fail != nil {
		return resp, fail
	}
	p.observe(before, resp)
	if !resp.Succeeded {
		_ = p.sameEpoch(ctx, epoch, resp.Responses[0].GetResponseRange()) // else the next read settles it
	}
	return resp, nil
}

// read reads all of ops at one revision, linearisable.
func (p *pool) read(ctx context.Context, ops ...clientv3.Op) (*clientv3.TxnResponse, *failure) {
	var resp *clientv3.TxnResponse
	before, known := p.seen.Load(), p.epoch.Load()
	ops = append(slices.Clone(ops), clientv3.OpGet(names{p.config.Prefix}.epoch()))
	fail := p.do(ctx, true, func(ctx context.Context, c *clientv3.Client) (err error) {
		resp, err = c.Txn(ctx).Then(ops...).Commit()
		return err
	})
	if fail != nil {
		return nil, fail
	}
	p.observe(before, resp)
	return resp, p.sameEpoch(ctx, known, resp.Responses[len(ops)-1].GetResponseRange())
}

// grant makes an etcd lease and returns its id and the TTL that etcd gave it, in
// seconds.
func (p *pool) grant(ctx context.Context, seconds int64) (clientv3.LeaseID, int64, *failure) {
	var id clientv3.LeaseID
	var ttl int64
	fail := p.do(ctx, true, func(ctx context.Context, c *clientv3.Client) error {
		resp, err := c.Grant(ctx, seconds)
		if err == nil {
			id, ttl = resp.ID, resp.TTL
		}
		return err
	})
	if fail != nil && fail.noSpace() {
		fail.refused = true // nothing hangs on it, if it was made
	}
	return id, ttl, fail
}

// keepAlive starts the TTL of an etcd lease again.
func (p *pool) keepAlive(ctx context.Context, id clientv3.LeaseID) *failure {
	return p.do(ctx, true, func(ctx context.Context, c *clientv3.Client) error {
		_, err := c.KeepAliveOnce(ctx, id)
		return err
	})
}

// timeToLive returns what is left of an etcd lease, in whole seconds.
func (p *pool) timeToLive(ctx context.Context, id clientv3.LeaseID) (int64, *failure) {
	var left int64
	fail := p.do(ctx, true, func(ctx context.Context, c *clientv3.Client) error {
		resp, err := c.TimeToLive(ctx, id)
		if err == nil {
			left = resp.TTL
		}
		return err
	})
	return left, fail
}

// revoke ends an etcd lease. One that is gone is as good.
func (p *pool) revoke(ctx context.Context, id clientv3.LeaseID) *failure {
	return p.do(ctx, true, func(ctx context.Context, c *clientv3.Client) error {
		_, err := c.Revoke(ctx, id)
		return err
	})
}

// close ends all clients.
func (p *pool) close() error {
	p.stop()
	p.commits.close()
	p.beside.Wait()
	var errs []error
	for _, ep := range p.eps {
		ep.mu.Lock()
		ep.closed = true
		if ep.client != nil {
			if err := ep.client.Close(); err != nil && !errors.Is(err, context.Canceled) {
				errs = append(errs, err)
			}
		}
		ep.mu.Unlock()
	}
	return errors.Join(errs...)
}

// failFast makes calls fail at once while there is no connection. etcd's client
// lets them wait for one until their deadline.
func failFast(
	ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoker grpc.UnaryInvoker, opts ...grpc.CallOption,
) error {
	return invoker(ctx, method, req, reply, cc, append(opts, grpc.WaitForReady(false))...)
}

// sentMark tells whether a request was written to a connection: one that was
// not has certainly not been applied.
type sentMark struct{ sent atomic.Bool }

type sentKey struct{}

// sentHandler sets the mark of the context that an RPC runs under.
type sentHandler struct{}

func (sentHandler) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context { return ctx }

func (sentHandler) HandleRPC(ctx context.Context, s stats.RPCStats) {
	if _, ok := s.(*stats.OutPayload); ok {
		if m, ok := ctx.Value(sentKey{}).(*sentMark); ok {
			m.sent.Store(true)
		}
	}
}

func (sentHandler) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }
func (sentHandler) HandleConn(context.Context, stats.ConnStats)                       {}
