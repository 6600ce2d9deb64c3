package etcd

import (
	"context"
	"slices"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

const (
	// lanes is how many transactions of calls are on their way at once. What comes
	// meanwhile goes together with the next: with more lanes fewer do, and what a
	// request costs by itself is more than what is gained by not waiting.
	lanes = 1
	// groupMost is how many go together, and groupRoom how many comparisons or
	// operations each of them may have then: etcd takes 128 of a transaction, those
	// of each level taken off for the next.
	groupMost = 32
	groupRoom = 128 - groupMost
	// groupBytes bounds the request, of which etcd takes 1.5 MiB.
	groupBytes = 512 << 10
)

// committer puts the transactions of concurrent calls, on different keys, into
// one: one request, one entry of etcd's log and one wait for its disk serve all
// of them. Each keeps its comparisons and its outcome, as a nested transaction of
// etcd; they share the revision. None waits for others to come: only for a lane.
type committer struct {
	p *pool

	mu     sync.Mutex
	queue  []*commit
	flying int // lanes in use
	closed bool
}

// commit is a call's transaction on its way.
type commit struct {
	ref      keyRef
	deadline time.Time
	cmps     []clientv3.Cmp
	ops      []clientv3.Op
	bytes    int
	alone    bool
	sent     bool          // it left the queue
	done     chan struct{} // closed when it is answered
	resp     *clientv3.TxnResponse
	fail     *failure
}

// commit is txn for what is about one key: it may go with others.
func (p *pool) commit(ctx context.Context, ref keyRef, cmps []clientv3.Cmp, ops []clientv3.Op) (*clientv3.TxnResponse, *failure) {
	for pause := hopePause; ; pause = min(2*pause, reconnectDelay) {
		resp, fail := p.commits.do(ctx, ref, cmps, ops)
		if fail == nil || fail.unknown() || !fail.elsewhere() || !hopes(ctx, pause) {
			return resp, fail
		}
	}
}

func (g *committer) do(ctx context.Context, ref keyRef, cmps []clientv3.Cmp, ops []clientv3.Op) (*clientv3.TxnResponse, *failure) {
	g.mu.Lock()
	if g.closed {
		g.mu.Unlock()
		return nil, newFailure(context.Canceled, false)
	}
	if g.flying < lanes && len(g.queue) == 0 {
		g.flying++
		g.mu.Unlock()
		defer g.land()
		return g.p.txn(hopeless(ctx), cmps, ops) // alone, under its own deadline
	}
	c := &commit{ref: ref, cmps: cmps, ops: ops, done: make(chan struct{})}
	c.deadline, _ = ctx.Deadline()
	for i := range ops {
		c.bytes += len(ops[i].ValueBytes())
	}
	c.alone = max(len(cmps), len(ops)) > groupRoom || c.bytes > groupBytes
	g.queue = append(g.queue, c)
	g.mu.Unlock()
	select {
	case <-c.done:
		return c.resp, c.fail
	case <-ctx.Done():
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if !c.sent {
		g.queue = slices.DeleteFunc(g.queue, func(o *commit) bool { return o == c })
		return nil, newFailure(ctx.Err(), false)
	}
	select {
	case <-c.done:
		return c.resp, c.fail
	default:
		return nil, newFailure(ctx.Err(), true)
	}
}

// land gives a lane to those that wait, or back.
func (g *committer) land() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.queue) == 0 {
		g.flying--
		return
	}
	g.p.beside.Go(g.fly)
}

// close turns away what waits.
func (g *committer) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
	for _, c := range g.queue {
		c.fail = newFailure(context.Canceled, false)
		close(c.done)
	}
	g.queue = nil
}

// fly sends what waits, until nothing does.
func (g *committer) fly() {
	for {
		g.mu.Lock()
		group := g.take()
		if len(group) == 0 {
			g.flying--
			g.mu.Unlock()
			return
		}
		g.mu.Unlock()
		g.send(group)
	}
}

// take takes those out of the queue that go together: no two of them are about
// the same key or write the same one of etcd's, which it refuses, or would make
// the same events' ids. The caller holds the lock.
func (g *committer) take() []*commit {
	var group, rest []*commit
	size := 0
	written := map[string]bool{}
	keys := map[eventSub]bool{}
	for i, c := range g.queue {
		if len(group) == groupMost || len(group) > 0 && group[0].alone {
			rest = append(rest, g.queue[i:]...)
			break
		}
		if len(group) > 0 && (c.alone || size+c.bytes > groupBytes || keys[subOf(c.ref.id)] || c.writes(written)) {
			rest = append(rest, c)
			continue
		}
		c.sent = true
		group = append(group, c)
		size += c.bytes
		keys[subOf(c.ref.id)] = true
		c.note(written)
	}
	g.queue = rest
	return group
}

func (c *commit) writes(written map[string]bool) bool {
	return slices.ContainsFunc(c.ops, func(op clientv3.Op) bool { return !op.IsGet() && written[string(op.KeyBytes())] })
}

func (c *commit) note(written map[string]bool) {
	for i := range c.ops {
		if !c.ops[i].IsGet() {
			written[string(c.ops[i].KeyBytes())] = true
		}
	}
}

// send sends a group and answers each of it.
func (g *committer) send(group []*commit) {
	deadline := group[0].deadline
	for _, c := range group[1:] {
		if c.deadline.After(deadline) {
			deadline = c.deadline
		}
	}
	ctx, cancel := context.WithDeadline(g.p.life, deadline)
	defer cancel()
	if len(group) == 1 {
		c := group[0]
		c.resp, c.fail = g.p.txn(ctx, c.cmps, c.ops)
		close(c.done)
		return
	}
	all := make([]clientv3.Op, len(group))
	for i, c := range group {
		all[i] = clientv3.OpTxn(c.cmps, c.ops, nil)
	}
	resp, fail := g.p.txn(ctx, nil, all)
	if fail != nil && fail.said && !fail.elsewhere() {
		// It refused all because of one: an etcd lease that is gone, say.
		for i := range group {
			g.send(group[i : i+1])
		}
		return
	}
	for i, c := range group {
		if c.fail = fail; fail == nil {
			c.resp = &clientv3.TxnResponse{Header: resp.Header}
			if resp.Succeeded {
				own := resp.Responses[i].GetResponseTxn()
				c.resp.Succeeded, c.resp.Responses = own.Succeeded, own.Responses
			}
		}
		close(c.done)
	}
}
