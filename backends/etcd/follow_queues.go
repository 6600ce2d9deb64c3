package etcd

import (
	"context"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"leased/contract"
)

// followLinger is for how long the queues are followed when nobody waits here any
// more.
const followLinger = 10 * time.Second

// follower tells the lines of a store what becomes of their queues. One watch does
// for all of them: etcd tells each watch apart.
type follower struct {
	s *Store

	since atomic.Int64 // from which revision on nothing is left out

	mu      sync.Mutex // taken before that of the lines
	running bool
}

// use makes it run.
func (f *follower) use() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.running {
		f.running = f.s.start(f.run)
	}
}

func (f *follower) run() {
	ctx, cancel := context.WithCancel(f.s.life)
	following := make(chan struct{})
	go func() { defer close(following); f.follow(ctx) }()
	defer func() { cancel(); <-following }()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for last := time.Now(); ; {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if f.s.anyLine() {
			last = time.Now()
		} else if time.Since(last) > followLinger && f.ends() {
			return
		}
	}
}

// ends notes that it does not run any more, unless a line has come.
func (f *follower) ends() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.s.anyLine() {
		return false
	}
	f.running = false
	return true
}

func (s *Store) anyLine() bool {
	s.linesMu.Lock()
	defer s.linesMu.Unlock()
	return len(s.lines) > 0
}

func (f *follower) follow(ctx context.Context) {
	p := f.s.pool
	for ctx.Err() == nil {
		age := p.present()
		resp, fail := p.read(ctx, clientv3.OpGet(f.s.names.probe(), clientv3.WithCountOnly()))
		if fail != nil {
			sleep(ctx, retryPause)
			continue
		}
		f.began(resp.Header.Revision)
		p.follow(ctx, age, f.s.names.allQueues(), resp.Header.Revision+1, f.take, clientv3.WithPrefix())
	}
}

// began tells the lines that what happened before a revision may have been left
// out.
func (f *follower) began(rev int64) {
	f.since.Store(rev)
	f.s.linesMu.Lock()
	defer f.s.linesMu.Unlock()
	for _, l := range f.s.lines {
		l.note(func(g *glance) { g.followedSince(rev) })
		l.poke()
	}
}

// take tells each line what is about its key.
func (f *follower) take(evs []*clientv3.Event) {
	of := map[keyRef][]*clientv3.Event{}
	for _, ev := range evs {
		if ref, ok := f.s.names.splitPlace(string(ev.Kv.Key)); ok {
			of[ref] = append(of[ref], ev)
		}
	}
	for ref, evs := range of {
		f.s.linesMu.Lock()
		l := f.s.lines[ref]
		f.s.linesMu.Unlock()
		if l == nil {
			continue
		}
		news := false
		session, _ := f.s.presence.current()
		l.note(func(g *glance) { news = g.takeQueue(f.s.names.queue(ref), session, evs) })
		if news {
			l.poke()
		}
	}
}

// noteLost tells a line that something which its key's lease hung on is gone.
func (s *Store) noteLost(ref keyRef, rev int64) {
	s.linesMu.Lock()
	l := s.lines[ref]
	s.linesMu.Unlock()
	if l == nil {
		return
	}
	news := false
	l.note(func(g *glance) { news = g.lost(rev) })
	if news {
		l.poke()
	}
}

// allQueues is the prefix of who waits for anything.
func (n names) allQueues() string { return n.prefix + "w/" }

// splitPlace returns the key that a place is for.
func (n names) splitPlace(name string) (keyRef, bool) {
	rest, ok := strings.CutPrefix(name, n.allQueues())
	if !ok {
		return keyRef{}, false
	}
	escaped, rest, _ := strings.Cut(rest, "/")
	text, _, ok := strings.Cut(rest, "/")
	ns, err := url.PathUnescape(escaped)
	if err != nil || !ok {
		return keyRef{}, false
	}
	id, err := contract.ParseKeyID(text)
	return keyRef{ns, id}, err == nil
}
