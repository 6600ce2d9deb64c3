package fault

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"leased/contract"
	"leased/test/proc"
)

const (
	// callTimeout is the deadline of each call in a situation. It is more than
	// the second for which a store may hope that its server comes back before it
	// says that it cannot serve.
	callTimeout = 1500 * time.Millisecond
	// serveWithin is how soon after a situation a store must serve again.
	serveWithin = 2 * time.Second
)

// served stands for the absence of an error.
const served contract.Code = 0

// codes are the answers that are right; more than one only where the moment
// decides and the answer says which it was.
type codes []contract.Code

// want is what a situation's calls are answered.
type want struct {
	write, read codes
	// except holds what is different for operations, by their names.
	except map[string]codes
	// unknown tells that one write at least must be outcome_unknown: the
	// situation is about such.
	unknown bool
	// ready tells that the namespace may call itself ready meanwhile.
	ready bool
}

func (w want) of(o *operation) codes {
	if right, ok := w.except[o.name]; ok {
		return right
	}
	if o.reads {
		return w.read
	}
	return w.write
}

// scene is one backend in front of one situation.
type scene struct {
	store contract.Store
	begin func(t *testing.T)
	// end ends the situation. When it returns the server could serve.
	end func(t *testing.T)
	// noticed tells that the calls begin once the store says that it is not
	// ready: a call that finds out that its connection is dead cannot know
	// whether what it wrote arrived.
	noticed bool
	// later tells that the situation begins while the calls run, so that reads
	// may come before it.
	later bool
	// spoiled tells that the records are not what they were before.
	spoiled bool
}

// situation is a row of the table. The same answers are expected of every
// backend in it.
type situation struct {
	name   string
	want   want
	scenes map[string]func(t *testing.T, namespace string) *scene
}

func situations() []situation {
	unavailable := want{write: codes{contract.CodeUnavailable}, read: codes{contract.CodeUnavailable}}
	// The deadline passed. Whether anything was sent that could change something
	// is what the two codes tell apart: a store that looks before it writes may
	// not have come to its write.
	late := want{write: codes{contract.CodeOutcomeUnknown, contract.CodeTimeout}, read: codes{contract.CodeTimeout}}
	lost := late
	lost.unknown = true
	// A full store takes nothing new, and still lets go of what it has. Whether
	// there is room for a renewal is the server's to say.
	full := want{write: codes{contract.CodeUnavailable}, read: codes{served}, except: map[string]codes{
		"renew": {served, contract.CodeUnavailable}, "bulk renew": {served, contract.CodeUnavailable},
		"release": {served}, "revoke": {served},
	}}
	// A stream begins without reading a record, and a namespace with one corrupt
	// record serves its others.
	corrupt := want{write: codes{contract.CodeInternal}, read: codes{contract.CodeInternal}, ready: true, except: map[string]codes{
		"watch": {served, contract.CodeInternal},
	}}
	return []situation{
		{"server killed", unavailable, scenes{"raftkv": raftKilled, "valkey": valkeyKilled, "etcd": etcdKilled}},
		{"server paused past the deadline", late, scenes{"raftkv": raftPaused, "valkey": valkeyPaused, "etcd": etcdPaused}},
		{"connection cut before sending", unavailable, scenes{
			"raftkv": raftCut, "valkey": valkeyTraffic(proc.Refuse), "etcd": etcdTraffic(proc.Refuse),
		}},
		{"request swallowed", late, scenes{
			"raftkv": raftPaused, "valkey": valkeyTraffic(proc.SwallowRequests), "etcd": etcdTraffic(proc.SwallowRequests),
		}},
		{"reply swallowed", lost, scenes{"raftkv": raftSwallowed, "valkey": valkeyTraffic(proc.SwallowReplies), "etcd": etcdSwallowed}},
		{"read-only replica", unavailable, scenes{"raftkv": raftFollower, "valkey": valkeyReplica}},
		{"demoted to a replica", unavailable, scenes{"raftkv": raftFollower, "valkey": valkeyDemoted}},
		{"loading", unavailable, scenes{"valkey": valkeyLoading}},
		{"no quorum", unavailable, scenes{"raftkv": raftFollower, "etcd": etcdMinority}},
		{"out of memory or over quota", full, scenes{"valkey": valkeyFull, "etcd": etcdFull}},
		{"no permission", unavailable, scenes{"valkey": valkeyForbidden, "etcd": etcdForbidden}},
		{"wrong type under our key", corrupt, scenes{"valkey": valkeyForeign, "etcd": etcdForeign}},
	}
}

type scenes = map[string]func(t *testing.T, namespace string) *scene

// TestSituations holds each backend, in each situation that can happen to it, to
// the answers of the table, to its deadlines, to what the answers mean, and to
// serving again by itself.
func TestSituations(t *testing.T) {
	for _, s := range situations() {
		t.Run(s.name, func(t *testing.T) {
			for name, set := range s.scenes {
				t.Run(name, func(t *testing.T) {
					// A namespace's name may hold what a store's own keys are made of.
					ns := "fault {a}/" + strings.ReplaceAll(s.name, " ", "-")
					play(t, set(t, ns), ns, s.want)
				})
			}
		})
	}
}

func play(t *testing.T, s *scene, ns string, w want) {
	t.Helper()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := s.store.Close(ctx); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	st := newStage(t, s.store, ns)
	ops := st.operations(t)
	s.begin(t)
	if s.noticed {
		st.awaitNotReady(t)
	}
	var calls sync.WaitGroup
	for _, o := range ops {
		right := w.of(o)
		if s.later && o.reads {
			right = append(codes{served}, right...)
		}
		calls.Go(func() { o.call(t, st.late, right) })
	}
	calls.Go(func() { st.checkHealth(t, w.ready || s.later) })
	calls.Wait()
	if w.unknown && !slices.ContainsFunc(ops, func(o *operation) bool { return o.got == contract.CodeOutcomeUnknown }) {
		t.Errorf("no call is answered %v, which this situation is about", contract.CodeOutcomeUnknown)
	}
	s.end(t)
	st.checkServes(t)
	if s.spoiled {
		return
	}
	for _, o := range ops {
		o.settle(t)
	}
}

// call makes the operation's call and holds its answer to the table.
func (o *operation) call(t *testing.T, late *proc.Lateness, want codes) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), callTimeout)
	defer cancel()
	began := time.Now()
	err := o.do(ctx)
	took := late.Took(began)
	o.got = contract.CodeOf(err)
	if !slices.Contains(want, o.got) {
		t.Errorf("%s: answered %v after %v, want %v", o.name, answer(err), took.Round(time.Millisecond), want)
	}
	if limit := callTimeout + contract.AnswerSlack; took > limit {
		t.Errorf("%s: answered after %v, want at most %v", o.name, took, limit)
	}
}

func answer(err error) string {
	if err == nil {
		return "served"
	}
	return err.Error()
}

func (c codes) String() string {
	var names []string
	for _, code := range c {
		if code == served {
			names = append(names, "served")
		} else {
			names = append(names, code.String())
		}
	}
	return strings.Join(names, " or ")
}

// settle holds the answer to what it means: what was certainly not applied left
// nothing, and what is unknown is found out by the same request.
func (o *operation) settle(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if o.reads {
		if err := o.do(ctx); err != nil {
			t.Errorf("%s, after the situation: %v", o.name, err)
		}
		return
	}
	switch o.got {
	case served:
	case contract.CodeOutcomeUnknown:
		if err := o.do(ctx); err != nil {
			t.Errorf("%s, repeated with the same request id after outcome_unknown: %v", o.name, err)
		}
	default:
		if err := o.untouched(ctx); err != nil {
			t.Errorf("%s: answered %v, and yet: %v", o.name, o.got, err)
		}
	}
}

// awaitNotReady looks at the store's health until it has said often enough that
// it is not ready: a store has several connections, and finds out about each.
func (st *stage) awaitNotReady(t *testing.T) {
	t.Helper()
	looks := 0
	proc.Succeeds(t, "the store says often enough that it is not ready", 40*time.Second, func() error {
		ctx, cancel := context.WithTimeout(t.Context(), callTimeout)
		defer cancel()
		h, err := st.store.Health(ctx, &contract.HealthRequest{Namespace: st.ns})
		switch {
		case err != nil:
			return err
		case !h.Ready:
			looks++
		}
		if looks < 20 {
			return fmt.Errorf("%d times, at last %+v", looks, h)
		}
		return nil
	})
}

// checkHealth wants the store to say that it is not ready, and why.
func (st *stage) checkHealth(t *testing.T, mayBeReady bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), callTimeout)
	defer cancel()
	began := time.Now()
	h, err := st.store.Health(ctx, &contract.HealthRequest{Namespace: st.ns})
	if took := st.late.Took(began); took > callTimeout+contract.AnswerSlack {
		t.Errorf("health: answered after %v, want at most %v", took, callTimeout+contract.AnswerSlack)
	}
	switch {
	case err != nil:
		t.Errorf("health: %v, want an answer", err)
	case h.Ready && !mayBeReady:
		t.Errorf("health: ready, though nothing is served")
	case !h.Ready && (h.Detail == "" || strings.Contains(h.Detail, "127.0.0.1")):
		t.Errorf("health: not ready because %q, want a reason without an address", h.Detail)
	case h.Guarantees == contract.Guarantees{}:
		t.Errorf("health: no guarantees, though a store promises the same whether or not it serves")
	}
}

// checkServes wants a new grant within serveWithin.
func (st *stage) checkServes(t *testing.T) {
	t.Helper()
	began, n := time.Now(), 0
	proc.Succeeds(t, "the store serves after the situation", 10*serveWithin, func() error {
		n++
		ctx, cancel := context.WithTimeout(t.Context(), callTimeout)
		defer cancel()
		_, err := st.store.Acquire(ctx, st.acquire(fmt.Sprintf("again-%d", n)))
		return err
	})
	if took := st.late.Took(began); took > serveWithin {
		t.Errorf("the store serves again %v after the situation, want at most %v", took, serveWithin)
	}
}
