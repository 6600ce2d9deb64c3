package etcd

import (
	"context"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

const (
	// askProgress is how long a watch may be silent before etcd is asked whether
	// it still runs, and silentFor how long until it is given up for another.
	askProgress = time.Second
	silentFor   = 4 * time.Second
	// retryPause is the pause before what failed in the background is repeated.
	retryPause = 200 * time.Millisecond
)

func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// follow hands f the events of key from a revision on, those of a revision all
// at once, until ctx ends or etcd no longer has a revision that is due: then it
// returns the first one that it has. It also returns when the age is over. Watches that end, or go silent, are started
// again where they were.
func (p *pool) follow(
	ctx context.Context, age <-chan struct{}, key string, from int64, f func([]*clientv3.Event), opts ...clientv3.OpOption,
) (compacted int64) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := make(chan struct{})
	defer close(stop)
	go func() {
		select {
		case <-age:
			cancel()
		case <-stop:
		}
	}()
	for turn := 0; ctx.Err() == nil; turn++ {
		order := p.order()
		c, err := order[turn%len(order)].get()
		if err != nil {
			sleep(ctx, retryPause)
			continue
		}
		if compacted = p.followOn(ctx, c, key, &from, f, opts); compacted != 0 {
			return compacted
		}
		sleep(ctx, retryPause/4)
	}
	return 0
}

// followOn is follow at one member, until the watch ends.
func (p *pool) followOn(
	ctx context.Context, c *clientv3.Client, key string, from *int64, f func([]*clientv3.Event), opts []clientv3.OpOption,
) (compacted int64) {
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel()
	ch := c.Watch(ctx, key, append([]clientv3.OpOption{clientv3.WithRev(*from)}, opts...)...)
	tick := time.NewTicker(askProgress)
	defer tick.Stop()
	heard := time.Now()
	for {
		select {
		case resp, ok := <-ch:
			switch {
			case !ok:
				return 0
			case resp.CompactRevision != 0:
				return resp.CompactRevision
			case resp.Err() != nil:
				return 0
			}
			heard = time.Now()
			if len(resp.Events) > 0 {
				f(resp.Events)
				*from = resp.Events[len(resp.Events)-1].Kv.ModRevision + 1
			} else if resp.IsProgressNotify() {
				*from = max(*from, resp.Header.Revision+1)
			}
		case <-tick.C:
			switch silent := time.Since(heard); {
			case silent > silentFor:
				return 0
			case silent > askProgress:
				_ = c.RequestProgress(ctx) // if that fails nothing is heard, which is noticed
			}
		case <-ctx.Done():
			return 0
		}
	}
}
