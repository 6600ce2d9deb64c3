package etcd

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"leased/contract"
	"leased/contract/lifecycle"
)

// streamBuffer is how many events a reader can fall behind.
const streamBuffer = 4096

// Watch implements contract.Store. Whoever changes a lease writes the head of its
// key in the same step, so that etcd's own watch is the stream of events.
func (s *Store) Watch(ctx context.Context, r *contract.WatchRequest) (contract.Stream, error) {
	ctx, end, err := s.begin(ctx, r.Validate)
	if err != nil {
		return nil, err
	}
	defer end()
	rev, sub, ok := int64(0), firstSub, true
	if r.After != "" {
		rev, sub, ok = parseEventID(r.After)
	}
	if !ok {
		return nil, contract.Invalid("after", "is not the id of an event")
	}
	age := s.pool.present()
	resp, fail := s.pool.read(ctx, clientv3.OpGet(s.names.probe(), clientv3.WithCountOnly()))
	if fail != nil {
		return nil, errorOf(ctx, fail, false)
	}
	st := &stream{s: s, request: *r, more: make(chan struct{}, 1), age: age}
	switch {
	case rev > resp.Header.Revision:
		return nil, contract.Invalid("after", "is not the id of an event")
	case rev == 0:
		st.rev, st.sub = resp.Header.Revision, lastSub
	default:
		st.rev, st.sub = rev, sub
	}
	st.passed = eventID(st.rev, st.sub)
	st.shown = st.passed
	if st.Stream, err = s.handle.Stream(); err != nil {
		return nil, err
	}
	if !s.start(st.run) {
		st.Close()
		return nil, errClosed()
	}
	return st, nil
}

// stream is a running Watch.
type stream struct {
	*lifecycle.Stream
	s       *Store
	request contract.WatchRequest
	more    chan struct{} // has one when there is something to read

	// Of the goroutine that follows etcd: the event that was taken last.
	rev int64
	sub eventSub
	age <-chan struct{} // that these are of

	mu     sync.Mutex
	events []contract.Event
	lost   string // id of the newest event that was dropped, if any were
	passed string // id of the newest event that was taken, shown or not
	shown  string // id of what Next returned last
}

// run follows etcd until the stream ends.
func (st *stream) run() {
	ctx, cancel := context.WithCancel(st.s.life)
	defer cancel()
	stop := make(chan struct{})
	defer close(stop)
	go func() {
		select {
		case <-st.Ended():
			cancel()
		case <-stop:
		}
	}()
	for ctx.Err() == nil {
		compacted := st.s.pool.follow(ctx, st.age, st.s.names.keys(st.request.Namespace), st.from(), st.take, clientv3.WithPrefix())
		if compacted == 0 {
			st.again(ctx)
			continue
		}
		// What was before is gone from etcd. Its last revision is where a reader
		// can go on.
		st.rev, st.sub = compacted-1, lastSub
		st.drop(eventID(st.rev, st.sub))
	}
}

// from is the first revision of which events are not taken yet.
func (st *stream) from() int64 {
	if st.sub == lastSub {
		return st.rev + 1
	}
	return st.rev
}

// again begins at the present, after a gap, if etcd has gone back: what was
// committed since cannot be told from what was before.
func (st *stream) again(ctx context.Context) {
	select {
	case <-st.age:
	default:
		return
	}
	for ctx.Err() == nil {
		age := st.s.pool.present()
		resp, fail := st.s.pool.read(ctx)
		if fail != nil {
			sleep(ctx, retryPause)
			continue
		}
		st.age = age
		st.rev, st.sub = resp.Header.Revision, lastSub
		st.drop(eventID(st.rev, st.sub))
		return
	}
}

// take puts the events of what etcd told into the buffer, in the order of their
// ids: etcd tells those of a revision all at once, in the order of the operations.
func (st *stream) take(evs []*clientv3.Event) {
	var records []*record
	for _, ev := range evs {
		_, id, part, ok := st.s.names.splitKey(string(ev.Kv.Key))
		if !ok || part != partHead || ev.Type != clientv3.EventTypePut {
			continue
		}
		rec, err := decodeRecord(ev.Kv.Value, ev.Kv.ModRevision, id)
		if err != nil {
			st.s.config.Logger.Error("an event cannot be read", "key_id", id.String(), "error", err)
			st.drop(eventID(ev.Kv.ModRevision, subOf(id)))
			continue
		}
		records = append(records, rec)
	}
	slices.SortStableFunc(records, func(a, b *record) int {
		return cmp.Or(cmp.Compare(a.rev, b.rev), cmp.Compare(subOf(a.id.KeyID()), subOf(b.id.KeyID())))
	})
	for _, rec := range records {
		for _, e := range lastEvents(st.request.Namespace, rec) {
			sub := subOf(e.KeyID)
			if e.Kind == contract.EventAcquired {
				sub |= 1
			}
			if rec.rev < st.rev || rec.rev == st.rev && sub <= st.sub {
				continue
			}
			st.rev, st.sub = rec.rev, sub
			if st.request.Selects(&e) {
				st.push(e)
			}
		}
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	st.passed = eventID(st.rev, st.sub)
}

func (st *stream) push(ev contract.Event) {
	st.mu.Lock()
	if len(st.events) >= streamBuffer {
		st.lost, st.events = st.events[len(st.events)-1].ID, nil
	}
	st.events = append(st.events, ev)
	st.mu.Unlock()
	st.signal()
}

// drop notes that events up to the id cannot be shown.
func (st *stream) drop(id string) {
	st.mu.Lock()
	st.lost, st.events, st.passed = id, nil, id
	st.mu.Unlock()
	st.signal()
}

func (st *stream) signal() {
	select {
	case st.more <- struct{}{}:
	default:
	}
}

// Next implements contract.Stream.
func (st *stream) Next(ctx context.Context) (contract.Event, error) {
	for {
		if err := st.Err(); err != nil {
			return contract.Event{}, err
		}
		if ev, ok := st.pop(); ok {
			return ev, nil
		}
		select {
		case <-st.more:
		case <-st.Ended():
		case <-ctx.Done():
			return contract.Event{}, contract.Errorf(contract.CodeTimeout, context.Cause(ctx), "no event before the deadline")
		}
	}
}

func (st *stream) pop() (contract.Event, bool) {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.lost != "" {
		gap := contract.Event{ID: st.lost, At: time.Now().UTC(), Kind: contract.EventGap, Namespace: st.request.Namespace}
		st.lost, st.shown = "", gap.ID
		return gap, true
	}
	if len(st.events) == 0 {
		return contract.Event{}, false
	}
	ev := st.events[0]
	st.events, st.shown = st.events[1:], ev.ID
	return ev, true
}

// Cursor implements contract.Stream.
func (st *stream) Cursor() string {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.lost != "" || len(st.events) > 0 {
		return st.shown
	}
	return max(st.shown, st.passed) // what was taken just now may be shown and not be noted as passed
}
