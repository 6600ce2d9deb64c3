package valkey_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	vendor "github.com/valkey-io/valkey-go"

	"leased/backends/valkey"
	"leased/contract"
	"leased/test/proc"
)

// stall is what a shared machine may take from a test at any time: a promised
// bound is missed only beyond it.
const stall = time.Second

// recoverWithin is how soon after a server's return calls must be served.
const recoverWithin = 2 * time.Second

// bench is a store on a server of its own.
type bench struct {
	*testing.T
	store  *valkey.Store
	server *proc.Valkey
	ids    atomic.Int64
}

func newBench(t *testing.T, options ...string) *bench {
	t.Helper()
	v := proc.StartValkey(t, options...)
	return on(t, v, valkey.Config{Addresses: []string{v.Addr}})
}

func on(t *testing.T, v *proc.Valkey, cfg valkey.Config) *bench {
	t.Helper()
	b := &bench{T: t, store: open(t, cfg), server: v}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := b.store.Close(ctx); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return b
}

func (b *bench) acquireOf(key string) *contract.AcquireRequest {
	return acquireOf(key, b.ids.Add(1))
}

func (b *bench) within(d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	b.Cleanup(cancel)
	return ctx
}

// grant acquires a key that must be free.
func (b *bench) grant(key string) *contract.Lease {
	b.Helper()
	res, err := b.store.Acquire(b.within(proc.Patience), b.acquireOf(key))
	if err != nil || res.Outcome != contract.OutcomeAcquired {
		b.Fatalf("acquire %s: got %v, error %v, want acquired", key, res.Outcome, err)
	}
	return res.Lease
}

// lowFloor is a floor that changes nothing.
const lowFloor = 7_777_777

// calls are all operations on a held lease, by name; whether they change
// anything is in the name of the map.
type calls map[string]func(ctx context.Context) error

func (b *bench) mutations(held *contract.Lease) calls {
	return calls{
		"acquire": func(ctx context.Context) error {
			_, err := b.store.Acquire(ctx, b.acquireOf(fmt.Sprint("free-", b.ids.Add(1))))
			return err
		},
		"wait": func(ctx context.Context) error {
			r := b.acquireOf(held.Key.Target.ID)
			r.Wait = time.Minute
			_, err := b.store.Acquire(ctx, r)
			return err
		},
		"renew": func(ctx context.Context) error {
			_, err := b.store.Renew(ctx, b.renewOf(held))
			return err
		},
		"bulk": func(ctx context.Context) error {
			r := b.renewOf(held)
			_, err := b.store.RenewBulk(ctx, &contract.RenewBulkRequest{
				Namespace: r.Namespace, RequestID: r.RequestID, Owner: r.Owner, Instance: r.Instance,
				Leases: []contract.RenewItem{{LeaseID: r.LeaseID, Token: r.Token}}, Retention: r.Retention,
			})
			return err
		},
		"release": func(ctx context.Context) error {
			_, err := b.store.Release(ctx, releaseOf(held, b.ids.Add(1)))
			return err
		},
		"revoke": func(ctx context.Context) error {
			_, err := b.store.Revoke(ctx, &contract.RevokeRequest{
				Namespace: held.Namespace, RequestID: fmt.Sprint("revoke-", b.ids.Add(1)), Principal: "root", LeaseID: held.ID,
				Mode: contract.RevokeRight, Reason: "why not", Retention: releaseOf(held, 0).Retention,
			})
			return err
		},
		"floor": func(ctx context.Context) error {
			return b.store.RaiseFloor(ctx, &contract.RaiseFloorRequest{Namespace: held.Namespace, Above: lowFloor})
		},
	}
}

func (b *bench) renewOf(l *contract.Lease) *contract.RenewRequest {
	return &contract.RenewRequest{
		Namespace: l.Namespace, RequestID: fmt.Sprint("renew-", b.ids.Add(1)), Owner: l.Owner, Instance: l.Instance,
		LeaseID: l.ID, Token: l.Token, Retention: releaseOf(l, 0).Retention,
	}
}

func (b *bench) reads(held *contract.Lease) calls {
	ns := held.Namespace
	return calls{
		"check": func(ctx context.Context) error {
			_, err := b.store.Check(ctx, &contract.CheckRequest{Namespace: ns, KeyID: held.KeyID, Token: held.Token})
			return err
		},
		"get": func(ctx context.Context) error {
			_, err := b.store.Get(ctx, &contract.GetRequest{Namespace: ns, LeaseID: held.ID})
			return err
		},
		"get key": func(ctx context.Context) error {
			_, err := b.store.GetKey(ctx, &contract.GetKeyRequest{Namespace: ns, KeyID: held.KeyID})
			return err
		},
		"list": func(ctx context.Context) error {
			_, err := b.store.List(ctx, &contract.ListRequest{Namespace: ns})
			return err
		},
		"history": func(ctx context.Context) error {
			_, err := b.store.History(ctx, &contract.HistoryRequest{Namespace: ns, KeyID: held.KeyID})
			return err
		},
		"watch": func(ctx context.Context) error {
			st, err := b.store.Watch(ctx, &contract.WatchRequest{Namespace: ns})
			if err == nil {
				st.Close()
			}
			return err
		},
	}
}

// expect runs each call with a deadline and wants the code of its error to be
// one of those, 0 for none, and an answer in time.
func (b *bench) expect(situation string, cs calls, limit time.Duration, want ...contract.Code) {
	b.Helper()
	for name, call := range cs {
		began := time.Now()
		err := call(b.within(limit))
		took := time.Since(began)
		if got := contract.CodeOf(err); !slices.Contains(want, got) {
			b.Errorf("%s, %s: got %v (%v), want %v", situation, name, got, err, want)
		}
		if took > limit+contract.AnswerSlack+stall {
			b.Errorf("%s, %s: answered after %v with a deadline of %v", situation, name, took, limit)
		}
		var e *contract.Error
		if err != nil && !errors.As(err, &e) {
			b.Errorf("%s, %s: got a %T", situation, name, err)
		}
	}
}

// expectAtOnce is expect for calls that are made at the same time.
func (b *bench) expectAtOnce(situation string, cs calls, limit time.Duration, want ...contract.Code) {
	b.Helper()
	var all sync.WaitGroup
	for name, call := range cs {
		all.Go(func() { b.expect(situation, calls{name: call}, limit, want...) })
	}
	all.Wait()
}

func (b *bench) health() contract.Health {
	b.Helper()
	h, err := b.store.Health(b.within(proc.Patience), &contract.HealthRequest{Namespace: "bench"})
	if err != nil {
		b.Fatalf("health: %v", err)
	}
	return h
}

// eventually waits until ok.
func (b *bench) eventually(what string, ok func() bool) {
	b.Helper()
	proc.Until(b, what, proc.Patience, ok)
}

// serves wants the store to serve again in time.
func (b *bench) serves() {
	b.Helper()
	proc.Until(b, "a key can be acquired", recoverWithin, func() bool {
		res, err := b.store.Acquire(b.within(time.Second), b.acquireOf(fmt.Sprint("again-", b.ids.Add(1))))
		return err == nil && res.Outcome == contract.OutcomeAcquired
	})
}

// believed has the server believe that every gateway lives, and that turns which nobody
// took have only come, until the function that it returns is called, which has it
// believe that they are dead. Otherwise a test of what is believed for a second is one
// of how busy the machine is.
func (b *bench) believed() (end func()) {
	b.Helper()
	const script = `local t = redis.call('TIME')
		local at = string.format('%.0f', t[1] * 1000000 + t[2] + ARGV[1])
		for _, z in ipairs(KEYS) do
			for _, m in ipairs(redis.call('ZRANGE', z, 0, -1)) do redis.call('ZADD', z, 'XX', at, m) end;
		end
		return 'done'`
	c, err := vendor.NewClient(vendor.ClientOption{InitAddress: []string{b.server.Addr}, ForceSingleClient: true, DisableCache: true})
	if err != nil {
		b.Fatal(err)
	}
	base := b.store.Base("bench")
	set := func(d time.Duration) {
		do := c.B().Eval().Script(script).Numkeys(2).Key(base+":g", base+":u").Arg(fmt.Sprint(d.Microseconds())).Build()
		if got, err := c.Do(context.Background(), do).ToString(); err != nil || got != "done" {
			b.Errorf("what the server believes could not be changed: %s, %v", got, err)
		}
	}
	set(time.Hour)
	// Gateways that beat have less believed of all, and of turns, after a stall.
	var running sync.WaitGroup
	stop := make(chan struct{})
	running.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(20 * time.Millisecond):
				set(time.Hour)
			}
		}
	})
	end = sync.OnceFunc(func() {
		close(stop)
		running.Wait()
		set(-time.Second)
		c.Close()
	})
	b.Cleanup(end)
	return end
}

// slowest asks the server for something all the time until it is called, which returns
// how long the slowest answer took: how much a busy machine takes from everybody.
func (b *bench) slowest() func() time.Duration {
	b.Helper()
	stop, took := make(chan struct{}), make(chan time.Duration, 1)
	go func() {
		most := time.Duration(0)
		for {
			began := time.Now()
			_, _ = b.store.List(b.within(proc.Patience), &contract.ListRequest{Namespace: "nothing"})
			most = max(most, time.Since(began))
			select {
			case <-stop:
				took <- most
				return
			case <-time.After(time.Millisecond):
			}
		}
	}()
	return func() time.Duration { close(stop); return <-took }
}

// unreachable returns once the store knows that its connections are gone and that
// nobody listens.
func (b *bench) unreachable(s *valkey.Store, held *contract.Lease) {
	b.Helper()
	refused := 0 // in a row: there are several connections, each of which has to notice
	b.eventually("the connections are known to be gone", func() bool {
		_, err := s.Get(b.within(proc.Patience), &contract.GetRequest{Namespace: held.Namespace, LeaseID: held.ID})
		if err != nil && strings.Contains(err.Error(), "connection refused") {
			refused++
		} else {
			refused = 0
		}
		return refused == 30
	})
}
