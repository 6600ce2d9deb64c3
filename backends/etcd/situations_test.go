package etcd_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"leased/backends/etcd"
	"leased/contract"
	"leased/test/proc"
)

// situation is something that goes wrong with etcd, and what calls are answered
// then: writes, and reads.
type situation struct {
	name    string
	options proc.EtcdOptions
	begin   func(t *testing.T, e *proc.Etcd)
	end     func(t *testing.T, e *proc.Etcd)
	write   contract.Code
	read    contract.Code
	// ends is what release and revoke are answered, if not as other writes: 0 for
	// an outcome.
	ends contract.Code
	// noticed tells that the calls begin once the store says that it is not ready:
	// one that finds out that its connection is dead, or that the member which it
	// asked has no leader, cannot know what became of what it sent.
	noticed bool
}

func situations() []situation {
	return []situation{
		{name: "killed", begin: func(_ *testing.T, e *proc.Etcd) { e.Kill(0) },
			end:   start,
			write: contract.CodeUnavailable, read: contract.CodeUnavailable, ends: contract.CodeUnavailable, noticed: true},
		{name: "paused past the deadline", begin: func(t *testing.T, e *proc.Etcd) { t.Helper(); e.Pause(t, 0) },
			end:   func(_ *testing.T, e *proc.Etcd) { e.Resume(0) },
			write: contract.CodeOutcomeUnknown, read: contract.CodeTimeout, ends: contract.CodeOutcomeUnknown},
		{name: "without quorum", options: proc.EtcdOptions{Members: 3},
			begin: func(_ *testing.T, e *proc.Etcd) { e.Kill(0); e.Kill(1) },
			end:   start,
			write: contract.CodeUnavailable, read: contract.CodeUnavailable, ends: contract.CodeUnavailable, noticed: true},
		{name: "out of space", options: proc.EtcdOptions{Args: []string{"--quota-backend-bytes=2097152"}},
			begin: fill, end: func(*testing.T, *proc.Etcd) {},
			write: contract.CodeUnavailable, read: 0, ends: 0},
	}
}

func start(t *testing.T, e *proc.Etcd) {
	t.Helper()
	e.StartAll(t)
}

func etcdClient(t *testing.T, e *proc.Etcd) *clientv3.Client {
	t.Helper()
	c, err := clientv3.New(clientv3.Config{Endpoints: e.Endpoints(), DialTimeout: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// fill writes until etcd takes no more.
func fill(t *testing.T, e *proc.Etcd) {
	t.Helper()
	c := etcdClient(t, e)
	for i := range 1000 {
		if _, err := c.Put(t.Context(), fmt.Sprint("filler/", i), string(make([]byte, 100_000))); err != nil {
			return
		}
	}
	t.Fatal("etcd is never out of space")
}

func openOn(t *testing.T, c etcd.Config) *etcd.Store {
	t.Helper()
	s, err := etcd.Open(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		_ = s.Close(ctx)
	})
	return s
}

// untilReady waits until a store has authenticated itself: a password is meant to take
// much of a machine, and on a busy one more than the second that a call waits for it.
func untilReady(t *testing.T, s *etcd.Store) {
	t.Helper()
	proc.Succeeds(t, "the store is ready", proc.Patience, func() error {
		h, err := s.Health(t.Context(), &contract.HealthRequest{Namespace: "test"})
		if err == nil && !h.Ready {
			err = errors.New(h.Detail)
		}
		return err
	})
}

func testAcquire(t *testing.T, name, request string) *contract.AcquireRequest {
	t.Helper()
	key, err := contract.Key{Tenant: "acme", Target: contract.Target{Type: contract.TargetName, ID: name}, Actor: "test"}.Normalize()
	if err != nil {
		t.Fatal(err)
	}
	return &contract.AcquireRequest{
		Namespace: "test", RequestID: request, Owner: "alice", Instance: "alice-1", Key: key, TTL: time.Hour, MaxLifetime: 2 * time.Hour,
		Retention: contract.Retention{Idempotency: 10 * time.Minute, History: time.Hour, HistoryPerKey: 16},
	}
}

func grantOn(t *testing.T, s contract.Store, name string) *contract.Lease {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	return gotKey(t, name, func() (contract.Result, error) { return s.Acquire(ctx, testAcquire(t, name, "grant-"+name)) })
}

func gotKey(t *testing.T, name string, call func() (contract.Result, error)) *contract.Lease {
	t.Helper()
	res, err := call()
	if err != nil || res.Outcome != contract.OutcomeAcquired {
		t.Fatalf("acquire %s: got %v, error %v", name, res.Outcome, err)
	}
	return res.Lease
}

// recovered makes the first call of a gateway after etcd came back, which it is
// served within the two seconds that are promised.
func recovered(t *testing.T, call func(context.Context) (contract.Result, error)) (contract.Result, error) {
	t.Helper()
	for back := time.Now(); ; {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		res, err := call(ctx)
		cancel()
		if contract.CodeOf(err) != contract.CodeUnavailable || time.Since(back) > 2*time.Second {
			return res, err
		}
	}
}

// calls are the operations, aimed at leases of their own.
func callsOn(t *testing.T, s contract.Store) (writes, ends, reads map[string]func(context.Context) error) {
	t.Helper()
	renewed, released, revoked, read := grantOn(t, s, "renewed"), grantOn(t, s, "released"), grantOn(t, s, "revoked"), grantOn(t, s, "read")
	keep := testAcquire(t, "x", "x").Retention
	writes = map[string]func(context.Context) error{
		"acquire": func(ctx context.Context) error {
			_, err := s.Acquire(ctx, testAcquire(t, "free", "acquire"))
			return err
		},
		"renew": func(ctx context.Context) error {
			_, err := s.Renew(ctx, &contract.RenewRequest{
				Namespace: "test", RequestID: "renew", Owner: "alice", Instance: "alice-1", LeaseID: renewed.ID, Token: renewed.Token, Retention: keep,
			})
			return err
		},
	}
	ends = map[string]func(context.Context) error{
		"release": func(ctx context.Context) error {
			_, err := s.Release(ctx, &contract.ReleaseRequest{
				Namespace: "test", RequestID: "release", Owner: "alice", Instance: "alice-1", LeaseID: released.ID, Token: released.Token, Retention: keep,
			})
			return err
		},
		"revoke": func(ctx context.Context) error {
			_, err := s.Revoke(ctx, &contract.RevokeRequest{
				Namespace: "test", RequestID: "revoke", Principal: "root", Mode: contract.RevokeRight, Reason: "test", LeaseID: revoked.ID, Retention: keep,
			})
			return err
		},
	}
	reads = map[string]func(context.Context) error{
		"check": func(ctx context.Context) error {
			_, err := s.Check(ctx, &contract.CheckRequest{Namespace: "test", KeyID: read.KeyID, Token: read.Token})
			return err
		},
		"get": func(ctx context.Context) error {
			_, err := s.Get(ctx, &contract.GetRequest{Namespace: "test", LeaseID: read.ID})
			return err
		},
		"list": func(ctx context.Context) error {
			_, err := s.List(ctx, &contract.ListRequest{Namespace: "test"})
			return err
		},
		"history": func(ctx context.Context) error {
			_, err := s.History(ctx, &contract.HistoryRequest{Namespace: "test", KeyID: read.KeyID})
			return err
		},
	}
	return writes, ends, reads
}

// TestStore_situations holds every operation to its answer when etcd fails, in
// time, and to the end of it within two seconds of etcd's return.
func TestStore_situations(t *testing.T) {
	for _, sit := range situations() {
		t.Run(sit.name, func(t *testing.T) {
			server := proc.StartEtcd(t, sit.options)
			s := openOn(t, etcd.Config{Endpoints: server.Endpoints()})
			writes, ends, reads := callsOn(t, s)
			sit.begin(t, server)
			for looks := 0; sit.noticed && looks < 20; {
				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
				h, err := s.Health(ctx, &contract.HealthRequest{Namespace: "test"})
				cancel()
				if err == nil && !h.Ready {
					looks++
				}
			}
			try := func(calls map[string]func(context.Context) error, want contract.Code) {
				t.Helper()
				const limit = 1500 * time.Millisecond
				var made sync.WaitGroup
				for op, call := range calls {
					made.Go(func() {
						ctx, cancel := context.WithTimeout(t.Context(), limit)
						defer cancel()
						began := time.Now()
						err := call(ctx)
						took := time.Since(began)
						if got := contract.CodeOf(err); got != want {
							t.Errorf("%s: got %v (%v), want %v", op, got, err, want)
						}
						if took > limit+contract.AnswerSlack {
							t.Errorf("%s answered after %v, later than %v after its deadline of %v", op, took, contract.AnswerSlack, limit)
						}
					})
				}
				made.Wait()
			}
			try(writes, sit.write)
			try(reads, sit.read)
			try(ends, sit.ends)
			sit.end(t, server)
			if sit.read == 0 {
				return
			}
			back := time.Now()
			for {
				ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
				h, err := s.Health(ctx, &contract.HealthRequest{Namespace: "test"})
				cancel()
				if err == nil && h.Ready {
					break
				}
				if time.Since(back) > 2*time.Second {
					t.Fatalf("not ready %v after etcd came back: %q, error %v", time.Since(back), h.Detail, err)
				}
			}
			grantOn(t, s, "afterwards")
		})
	}
}

// TestOpen_down opens a store on an etcd that is not there.
func TestOpen_down(t *testing.T) {
	server := proc.StartEtcd(t, proc.EtcdOptions{})
	server.Kill(0)
	s := openOn(t, etcd.Config{Endpoints: server.Endpoints()})
	if h, err := s.Health(t.Context(), &contract.HealthRequest{Namespace: "test"}); err != nil || h.Ready {
		t.Fatalf("health without etcd: got %+v, error %v, want not ready", h, err)
	}
	server.StartAll(t)
	for back := time.Now(); ; {
		h, err := s.Health(t.Context(), &contract.HealthRequest{Namespace: "test"})
		if err == nil && h.Ready {
			break
		}
		if time.Since(back) > 2*time.Second {
			t.Fatalf("not ready two seconds after etcd came: %+v, error %v", h, err)
		}
	}
	grantOn(t, s, "afterwards")
}

// TestStore_pausedMember keeps serving while one member of three hangs.
func TestStore_pausedMember(t *testing.T) {
	server := proc.StartEtcd(t, proc.EtcdOptions{Members: 3})
	s := openOn(t, etcd.Config{Endpoints: server.Endpoints()})
	grantOn(t, s, "before")
	for i := range 3 {
		server.Pause(t, i)
		// The paused one may have led: while another is elected, which may take longer
		// than a call waits for it, etcd serves nobody, and says so.
		first := testAcquire(t, fmt.Sprint("first-", i), fmt.Sprint("grant-first-", i))
		proc.Until(t, "the others serve", 10*time.Second, func() bool {
			res, err := s.Acquire(t.Context(), first)
			if err != nil && contract.CodeOf(err) != contract.CodeUnavailable && contract.CodeOf(err) != contract.CodeOutcomeUnknown {
				t.Fatalf("acquire: %v", err)
			}
			return err == nil && res.Outcome == contract.OutcomeAcquired
		})
		for k := range 3 {
			began := time.Now()
			grantOn(t, s, fmt.Sprintf("then-%d-%d", i, k))
			if took := time.Since(began); took > 3*time.Second {
				t.Errorf("with member %d paused an acquire took %v", i, took)
			}
		}
		server.Resume(i)
	}
}

// TestStore_emptied wants higher tokens, and the old holder refused, when etcd has
// lost everything.
func TestStore_emptied(t *testing.T) {
	server := proc.StartEtcd(t, proc.EtcdOptions{})
	s := openOn(t, etcd.Config{Endpoints: server.Endpoints()})
	old := grantOn(t, s, "key")
	for i := range 20 {
		grantOn(t, s, fmt.Sprint("other-", i))
	}
	server.Empty(t, 0)
	server.StartAll(t)
	res, err := recovered(t, func(ctx context.Context) (contract.Result, error) {
		return s.Renew(ctx, renewalOf(t, old, "renew"))
	})
	if err != nil || res.Outcome != contract.OutcomeNotFound {
		t.Errorf("renew of a lease that etcd lost: got %v, error %v, want not_found", res.Outcome, err)
	}
	if l := grantOn(t, s, "key"); l.Token <= old.Token {
		t.Errorf("token %d after token %d", l.Token, old.Token)
	}
}

// TestStore_authentication goes on when etcd's tokens end, and answers
// unavailable where the user may not write.
func TestStore_authentication(t *testing.T) {
	t.Parallel()
	server := proc.StartEtcd(t, proc.EtcdOptions{Args: []string{"--auth-token-ttl=1"}})
	c := etcdClient(t, server)
	ctx := t.Context()
	for _, step := range []func() error{
		func() error { _, err := c.UserAdd(ctx, "root", "secret"); return err },
		func() error { _, err := c.UserGrantRole(ctx, "root", "root"); return err },
		func() error { _, err := c.RoleAdd(ctx, "leases"); return err },
		func() error {
			_, err := c.RoleGrantPermission(ctx, "leases", "leased/", "leased0", clientv3.PermissionType(clientv3.PermReadWrite))
			return err
		},
		func() error { _, err := c.UserAdd(ctx, "gateway", "secret"); return err },
		func() error { _, err := c.UserGrantRole(ctx, "gateway", "leases"); return err },
		func() error { _, err := c.AuthEnable(ctx); return err },
	} {
		if err := step(); err != nil {
			t.Fatal(err)
		}
	}
	s := openOn(t, etcd.Config{Endpoints: server.Endpoints(), Username: "gateway", Password: "secret"})
	untilReady(t, s)
	grantOn(t, s, "first")
	timer := time.NewTimer(2500 * time.Millisecond) // beyond the life of a token
	<-timer.C
	grantOn(t, s, "second")

	elsewhere := openOn(t, etcd.Config{Endpoints: server.Endpoints(), Username: "gateway", Password: "secret", Prefix: "other/"})
	if _, err := elsewhere.Acquire(ctx, testAcquire(t, "key", "r")); contract.CodeOf(err) != contract.CodeUnavailable {
		t.Errorf("acquire without permission: got %v, want unavailable", err)
	}
	stranger := openOn(t, etcd.Config{Endpoints: server.Endpoints(), Username: "gateway", Password: "wrong"})
	if _, err := stranger.Acquire(ctx, testAcquire(t, "key", "r")); contract.CodeOf(err) != contract.CodeUnavailable {
		t.Errorf("acquire with a wrong password: got %v, want unavailable", err)
	}
}
