package etcd

import (
	"context"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// sighting is when another gateway's session was last seen to change.
type sighting struct {
	at  time.Time
	mod int64
}

// others follows the sessions of the other gateways, whether or not anybody waits
// here: a free key is not to be had while the first in its queue is taken for
// present.
type others struct {
	s *Store

	mu   sync.Mutex
	seen map[string]sighting
}

// run ends the sessions of gateways that are gone, until the store ends. It also
// notices that etcd went back, or is not there.
func (o *others) run() {
	watching := make(chan struct{})
	go func() { defer close(watching); o.watch(o.s.life) }()
	defer func() { <-watching }()
	tick := time.NewTicker(beatEvery)
	defer tick.Stop()
	acks := 0
	reach := reach{log: o.s.config.Logger}
	last := time.Now()
	for n := 0; ; n++ {
		select {
		case <-o.s.life.Done():
			return
		case <-tick.C:
		}
		foreign := o.foreign()
		if !foreign && n%int(lookEvery/beatEvery) != 0 {
			last, acks = time.Now(), 0
			continue
		}
		fail := o.s.pool.look(o.s.life)
		if o.s.life.Err() != nil {
			return
		}
		reach.note(fail)
		if fail != nil || time.Since(last) > beatStall || !o.s.presence.served() {
			acks = 0
		} else {
			acks++
		}
		last = time.Now()
		if foreign && acks >= int(deadAfter/beatEvery) {
			o.judge(o.s.life, o.s)
		}
	}
}

// foreign tells whether another gateway has waiters.
func (o *others) foreign() bool {
	own, _ := o.s.presence.current()
	o.mu.Lock()
	defer o.mu.Unlock()
	for id := range o.seen {
		if id != own {
			return true
		}
	}
	return false
}

func (o *others) watch(ctx context.Context) {
	prefix := o.s.names.sessions()
	for ctx.Err() == nil {
		age := o.s.pool.present()
		resp, fail := o.s.pool.read(ctx, clientv3.OpGet(prefix, clientv3.WithPrefix(), clientv3.WithKeysOnly()))
		if fail != nil {
			sleep(ctx, retryPause)
			continue
		}
		o.mu.Lock()
		clear(o.seen)
		for _, kv := range resp.Responses[0].GetResponseRange().GetKvs() {
			o.seen[strings.TrimPrefix(string(kv.Key), prefix)] = sighting{time.Now(), kv.ModRevision}
		}
		o.mu.Unlock()
		o.s.pool.follow(ctx, age, prefix, resp.Header.Revision+1, o.take, clientv3.WithPrefix())
	}
}

func (o *others) take(evs []*clientv3.Event) {
	gone := false
	o.mu.Lock()
	for _, ev := range evs {
		id := strings.TrimPrefix(string(ev.Kv.Key), o.s.names.sessions())
		if ev.Type == clientv3.EventTypeDelete {
			delete(o.seen, id)
			gone = true
			continue
		}
		o.seen[id] = sighting{time.Now(), ev.Kv.ModRevision}
	}
	o.mu.Unlock()
	if gone {
		o.s.wakeLines()
	}
}

// judge ends the sessions of gateways that have not been heard of.
func (o *others) judge(ctx context.Context, s *Store) {
	own, _ := s.presence.current()
	o.mu.Lock()
	silent := map[string]int64{}
	for id, at := range o.seen {
		if id != own && time.Since(at.at) > deadAfter {
			silent[id] = at.mod
		}
	}
	o.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, beatStall)
	defer cancel()
	for id, mod := range silent {
		name := s.names.session(id)
		resp, fail := s.pool.txn(ctx, []clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(name), "=", mod)},
			[]clientv3.Op{clientv3.OpDelete(name)})
		if fail == nil && resp.Succeeded {
			s.config.Logger.Info("a gateway is gone; its waiters no longer count", "session", id)
		}
	}
}
