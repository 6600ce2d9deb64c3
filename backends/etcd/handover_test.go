package etcd

import (
	"context"
	"slices"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"leased/contract"
	"leased/test/proc"
)

// TestLine_joinsWithHandOver gives a newcomer its place in the transaction that
// hands the key to the one who was there before.
func TestLine_joinsWithHandOver(t *testing.T) {
	server := proc.StartEtcd(t, proc.EtcdOptions{NoFsync: true})
	s, err := Open(t.Context(), Config{Endpoints: server.Endpoints()})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	t.Cleanup(func() { _ = s.Close(ctx) })
	key, err := contract.Key{Tenant: "acme", Target: contract.Target{Type: contract.TargetName, ID: "key"}, Actor: "test"}.Normalize()
	if err != nil {
		t.Fatal(err)
	}
	request := func(owner string, wait time.Duration) *contract.AcquireRequest {
		return &contract.AcquireRequest{
			Namespace: "test", RequestID: "acquire", Owner: owner, Instance: "1", Key: key, TTL: time.Hour, MaxLifetime: 2 * time.Hour,
			Wait: wait, Retention: contract.Retention{Idempotency: 10 * time.Minute, History: time.Hour, HistoryPerKey: 16},
		}
	}
	alice, err := s.Acquire(ctx, request("alice", 0))
	if err != nil || alice.Outcome != contract.OutcomeAcquired {
		t.Fatalf("acquire: got %v, error %v", alice.Outcome, err)
	}
	session, err := s.presence.ensure(ctx)
	if err != nil {
		t.Fatal(err)
	}
	bob, carol := newAttempt(request("bob", time.Minute)), newAttempt(request("carol", time.Minute))
	place := newPlace(bob, &queue{})
	place.At = []string{session}
	cmps, ops, fail := s.putPlaces(ctx, bob.ref, []queueChange{{place: place}})
	if fail == nil {
		_, fail = s.pool.txn(ctx, cmps, ops)
	}
	if fail != nil {
		t.Fatal(fail)
	}
	st, err := s.load(ctx, bob.ref, want{queue: true})
	if err != nil {
		t.Fatal(err)
	}
	// A line that does nothing by itself.
	l := &line{s: s, ref: bob.ref, wake: make(chan struct{}, 1), waiting: map[contract.Scope]*spot{}}
	l.known.read(st)
	calls := map[string]chan told{}
	for _, a := range []*attempt{bob, carol} {
		w := &waiter{ch: make(chan told, 1)}
		calls[a.req.Owner] = w.ch
		l.waiting[a.scope] = &spot{a: a, calls: []*waiter{w}}
		l.order = append(l.order, a.scope)
	}
	s.linesMu.Lock()
	s.lines[l.ref] = l
	s.linesMu.Unlock()
	res, err := s.Release(ctx, &contract.ReleaseRequest{
		Namespace: "test", RequestID: "release", Owner: "alice", Instance: "1", LeaseID: alice.Lease.ID, Token: alice.Lease.Token,
		Retention: request("alice", 0).Retention,
	})
	if err != nil || res.Outcome != contract.OutcomeReleased {
		t.Fatalf("release: got %v, error %v", res.Outcome, err)
	}
	select {
	case m := <-calls["bob"]:
		if m.res.Outcome != contract.OutcomeAcquired {
			t.Errorf("the first waiter got %v, error %v", m.res.Outcome, m.err)
		}
	default:
		t.Fatal("the key was not handed on with the release")
	}
	if st, err = s.load(ctx, bob.ref, want{queue: true}); err != nil {
		t.Fatal(err)
	}
	p := st.queue.place(carol.scope)
	if len(st.queue.places) != 1 || p == nil || p.create != st.headMod || !slices.Equal(p.At, []string{session}) {
		t.Errorf("the queue is %+v, want one place, made at revision %d", st.queue.places, st.headMod)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if known := l.known.st; known == nil || known.queue.place(carol.scope) == nil {
		t.Error("the line does not know of the place")
	}
}

func placeEvent(t *testing.T, prefix string, p *place, rev int64, drop bool) *clientv3.Event {
	t.Helper()
	ev := &clientv3.Event{Kv: &mvccpb.KeyValue{Key: []byte(prefix + p.name), ModRevision: rev}, Type: clientv3.EventTypeDelete}
	if !drop {
		ev.Type, ev.Kv.CreateRevision, ev.Kv.Value = clientv3.EventTypePut, rev, []byte(encode(p))
	}
	return ev
}

func testPlace(at string, n byte) *place {
	a := &attempt{scope: contract.Scope{n}}
	p := newPlace(a)
	p.At = []string{at}
	return &p
}

// TestGlance_takeQueue_late takes what etcd's watch tells of a place after this
// store has made it and removed it: it does not come back.
func TestGlance_takeQueue_late(t *testing.T) {
	g := &glance{}
	g.read(&state{rev: 10, queue: &queue{}})
	p := testPlace("own", 1)
	g.queued([]queueChange{{place: *p}}, 11)
	made := *g.st.queue.place(p.scope)
	g.queued([]queueChange{{place: made, drop: true}}, 12)
	for rev := int64(11); rev <= 12; rev++ {
		drop := rev == 12
		if g.takeQueue("q/", "own", []*clientv3.Event{placeEvent(t, "q/", p, rev, drop)}); len(g.st.queue.places) != 0 {
			t.Errorf("after the event of revision %d the queue is %+v", rev, g.st.queue.places)
		}
	}
	if other := testPlace("other", 1); !g.takeQueue("q/", "own", []*clientv3.Event{placeEvent(t, "q/", other, 13, false)}) {
		t.Error("somebody else's place under the same name is no news")
	}
	if len(g.st.queue.places) != 1 || g.told != 13 {
		t.Errorf("the queue is %+v, known up to %d; want one place, up to 13", g.st.queue.places, g.told)
	}
}

// TestGlance_read_old has an answer of etcd come after what its watch told of
// later: the queue that it shows is not taken for complete up to then.
func TestGlance_read_old(t *testing.T) {
	g := &glance{}
	g.takeQueue("q/", "own", []*clientv3.Event{placeEvent(t, "q/", testPlace("other", 1), 21, false)})
	if g.read(&state{rev: 20, queue: &queue{}}); g.st != nil {
		t.Error("a state from before the last event was taken")
	}
	if g.lost(25); g.st != nil {
		t.Error("what was lost made a state")
	}
	if g.read(&state{rev: 24, queue: &queue{}}); g.st != nil {
		t.Error("a state from before the lease was over was taken")
	}
	if g.read(&state{rev: 25, queue: &queue{}}); g.st == nil || g.told != 25 {
		t.Error("a state that is new enough was not taken")
	}
	if g.followedSince(30); g.st != nil {
		t.Error("a state from before the watch was kept")
	}
	if g.read(&state{rev: 29, queue: &queue{}}); g.st != nil {
		t.Error("a state from before the watch was taken")
	}
}
