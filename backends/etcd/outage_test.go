package etcd_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"leased/backends/etcd"
	"leased/contract"
	"leased/test/proc"
)

// throughProxy opens a store that reaches etcd through a network that the test
// can do something to.
func throughProxy(t *testing.T, server *proc.Etcd) (*etcd.Store, *proc.Proxy) {
	t.Helper()
	p := proc.StartProxy(t, strings.TrimPrefix(server.Endpoints()[0], "http://"))
	return openOn(t, etcd.Config{Endpoints: []string{"http://" + p.Address}}), p
}

// TestStore_hopes wants the first call after an outage to be served: the pause
// until the next attempt to connect is not the caller's business.
func TestStore_hopes(t *testing.T) {
	s, p := throughProxy(t, proc.StartEtcd(t, proc.EtcdOptions{}))
	grantOn(t, s, "before")
	for i := range 5 {
		p.Set(t, proc.Refuse)
		// Long enough for the pauses to be as long as they get.
		for began, refused := time.Now(), 0; refused < 3 || time.Since(began) < time.Second; {
			h, err := s.Health(within(t, 5*time.Second), &contract.HealthRequest{Namespace: "test"})
			if err != nil {
				t.Fatal(err)
			}
			if !h.Ready {
				refused++
			}
			pause(10 * time.Millisecond)
		}
		p.Set(t, proc.Pass)
		grantOn(t, s, fmt.Sprint("after-", i))
	}
}

// TestStore_killedMember kills the member that is asked first, which is not the
// leader: the others serve the very next call.
func TestStore_killedMember(t *testing.T) {
	server := proc.StartEtcd(t, proc.EtcdOptions{Members: 3})
	c := etcdClient(t, server)
	endpoints := server.Endpoints()
	for i, endpoint := range endpoints {
		status, err := c.Status(within(t, 20*time.Second), endpoint)
		if err != nil {
			t.Fatal(err)
		}
		if status.Leader == status.Header.MemberId {
			continue
		}
		s := openOn(t, etcd.Config{Endpoints: append([]string{endpoint}, slices.Delete(slices.Clone(endpoints), i, i+1)...)})
		grantOn(t, s, "before")
		server.Kill(i)
		for n := range 20 {
			grantOn(t, s, fmt.Sprint("then-", n))
		}
		return
	}
	t.Fatal("all members are the leader")
}

// TestStore_Acquire_placeOfBriefWait has a wait end before etcd, which is slow,
// has stored the place: the call is told a conflict, in time, and is before those
// who come to its gateway later all the same.
func TestStore_Acquire_placeOfBriefWait(t *testing.T) {
	server := proc.StartEtcd(t, proc.EtcdOptions{})
	direct := openOn(t, etcd.Config{Endpoints: server.Endpoints()})
	s, p := throughProxy(t, server)
	held := grantOn(t, s, "key")
	first := testAcquire(t, "key", "first")
	first.Wait = 300 * time.Millisecond
	p.Delay(100 * time.Millisecond) // a wait begins with more steps than that
	if res, err := s.Acquire(within(t, 20*time.Second), first); err != nil || res.Outcome != contract.OutcomeConflict {
		t.Fatalf("a wait that ended: got %v, error %v, want conflict", res.Outcome, err)
	}
	p.Delay(0)

	answers := make(chan string, 2)
	ask := func(s contract.Store, request string, waiters int) {
		t.Helper()
		r := testAcquire(t, "key", request)
		r.Wait = 20 * time.Second
		ctx, cancel := context.WithTimeout(context.Background(), 25*time.Second)
		go func() {
			defer cancel()
			res, err := s.Acquire(ctx, r)
			if err != nil || res.Outcome != contract.OutcomeAcquired {
				t.Errorf("%s: got %v, error %v", request, res.Outcome, err)
			}
			answers <- request
		}()
		for length := -1; length != waiters; pause(2 * time.Millisecond) {
			got, err := direct.GetKey(within(t, proc.Patience), &contract.GetKeyRequest{Namespace: "test", KeyID: held.KeyID})
			if err != nil {
				t.Fatal(err)
			}
			length = got.Queue.Length
		}
	}
	ask(s, "second", 1)
	ask(direct, "first", 2)
	if res, err := direct.Release(within(t, proc.Patience), releaseOf(t, held, "release")); err != nil || res.Outcome != contract.OutcomeReleased {
		t.Fatal(res.Outcome, err)
	}
	got := <-answers
	if got != "first" {
		t.Errorf("%s is served first, want the one that came first", got)
	}
	next, err := direct.GetKey(within(t, proc.Patience), &contract.GetKeyRequest{Namespace: "test", KeyID: held.KeyID})
	if err != nil || next.Lease == nil {
		t.Fatal(next.Outcome, err)
	}
	if res, err := direct.Release(within(t, proc.Patience), releaseOf(t, next.Lease, "release-next")); err != nil || res.Outcome != contract.OutcomeReleased {
		t.Fatal(res.Outcome, err)
	}
	<-answers
}

// heard is a log as its reader sees it: levels and messages.
type heard struct {
	mu    sync.Mutex
	lines []string
}

func (h *heard) Enabled(context.Context, slog.Level) bool { return true }
func (h *heard) WithAttrs([]slog.Attr) slog.Handler       { return h }
func (h *heard) WithGroup(string) slog.Handler            { return h }

func (h *heard) Handle(_ context.Context, r slog.Record) error {
	if r.Level >= slog.LevelInfo {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.lines = append(h.lines, r.Level.String()+" "+r.Message)
	}
	return nil
}

func (h *heard) all() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.lines)
}

// TestStore_saysWhetherServed starts a store while etcd is down: whoever reads the
// log is told so once, when it is there, and likewise of an outage later.
func TestStore_saysWhetherServed(t *testing.T) {
	t.Parallel()
	server := proc.StartEtcd(t, proc.EtcdOptions{})
	server.Kill(0)
	log := &heard{}
	openOn(t, etcd.Config{Endpoints: server.Endpoints(), Logger: slog.New(log)})
	const (
		down  = "WARN etcd: cannot be reached or does not serve; its namespaces are unavailable until it does"
		up    = "INFO etcd: connected"
		again = "INFO etcd: serves again"
	)
	told := func(want ...string) {
		t.Helper()
		proc.Until(t, "the log says "+strings.Join(want, ", then "), 20*time.Second, func() bool { return len(log.all()) >= len(want) })
		if got := log.all(); !slices.Equal(got, want) {
			t.Fatalf("the log has %q, want %q", got, want)
		}
	}
	told(down)
	server.StartAll(t) // takes longer than several looks
	told(down, again)
	server.Kill(0)
	told(down, again, down)

	other := &heard{}
	server.StartAll(t)
	told(down, again, down, again)
	openOn(t, etcd.Config{Endpoints: server.Endpoints(), Logger: slog.New(other)})
	proc.Until(t, "the other store's log says something", 20*time.Second, func() bool { return len(other.all()) > 0 })
	if got := other.all(); !slices.Equal(got, []string{up}) {
		t.Errorf("with etcd up the log has %q, want %q", got, up)
	}
}
