package memstore

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"leased/contract"
)

// reply is how an acquire ended.
type reply struct {
	res contract.Result
	err error
}

func (r reply) String() string {
	if r.err != nil {
		return contract.CodeOf(r.err).String()
	}
	if r.res.Replayed {
		return r.res.Outcome.String() + " replayed"
	}
	return r.res.Outcome.String()
}

// park starts an acquire that has to wait, and returns once it does.
func park(ctx context.Context, s *Store, r contract.AcquireRequest) <-chan reply {
	done := make(chan reply, 1)
	go func() {
		res, err := s.Acquire(ctx, &r)
		done <- reply{res, err}
	}()
	synctest.Wait()
	return done
}

func waiter(d *driver, owner string) contract.AcquireRequest {
	r := d.request(owner, "k")
	r.Wait = time.Minute
	return r
}

func mustAcquire(t *testing.T, s *Store, r contract.AcquireRequest) contract.Lease {
	t.Helper()
	res, err := s.Acquire(t.Context(), &r)
	if err != nil || res.Outcome != contract.OutcomeAcquired {
		t.Fatalf("acquire: got %s, error %v, want acquired", res.Outcome, err)
	}
	return *res.Lease
}

func releaseOf(l contract.Lease, id string) contract.ReleaseRequest {
	return contract.ReleaseRequest{
		Namespace: l.Namespace, RequestID: id, Owner: l.Owner, Instance: l.Instance,
		LeaseID: l.ID, Token: l.Token, Retention: keep(),
	}
}

// TestBackend_GrantCrossesTheEndOfItsWait holds the lock while both happen, so
// that the waiter learns of neither before the other.
func TestBackend_GrantCrossesTheEndOfItsWait(t *testing.T) {
	tests := []struct {
		name string
		end  func(cancel func()) // what ends the wait while the lock is held
		want string
		held bool // whether the waiter holds the key afterwards
	}{
		{name: "cancelled", end: func(cancel func()) { cancel() }, want: "conflict"},
		{name: "wait over", end: func(func()) { time.Sleep(time.Minute) }, want: "acquired", held: true},
		{name: "nothing", end: func(func()) {}, want: "acquired", held: true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := newDriver(t) // for its requests
				b := New(Options{})
				s := b.Open()
				held := mustAcquire(t, s, d.request("alice", "k"))
				base, stop := context.WithTimeout(t.Context(), time.Hour)
				defer stop()
				ctx, cancel := context.WithCancel(base)
				defer cancel()
				done := park(ctx, s, waiter(d, "bob"))

				b.mu.Lock()
				tt.end(cancel)
				b.step(Release{Request: releaseOf(held, "release")})
				b.mu.Unlock()

				got := <-done
				if got.String() != tt.want {
					t.Fatalf("the waiter: got %s, want %s", got, tt.want)
				}
				now, err := s.GetKey(t.Context(), &contract.GetKeyRequest{Namespace: namespace, KeyID: held.KeyID})
				if err != nil {
					t.Fatal(err)
				}
				if (now.Lease != nil) != tt.held {
					t.Errorf("holder afterwards: got %v, want one: %v", now.Lease, tt.held)
				}
				if !tt.held && (now.Last.Owner != "bob" || now.Last.Reason != undoneReason) {
					t.Errorf("last lease: of %s, %q, want bob's, undone", now.Last.Owner, now.Last.Reason)
				}
			})
		})
	}
}

// TestBackend_SharedGrant has two calls of one request id, and cancels one or
// both just as they are granted the key. Undoing the grant for the one must not
// take it from the other, and a grant that neither takes must not stay.
func TestBackend_SharedGrant(t *testing.T) {
	for _, both := range []bool{false, true} {
		t.Run(fmt.Sprint("both cancelled: ", both), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := newDriver(t)
				b := New(Options{})
				first, second := b.Open(), b.Open()
				held := mustAcquire(t, first, d.request("alice", "k"))
				r := waiter(d, "bob")
				ctx1, cancel1 := context.WithCancel(t.Context())
				ctx2, cancel2 := context.WithCancel(t.Context())
				defer cancel2()
				done1, done2 := park(ctx1, first, r), park(ctx2, second, r)

				b.mu.Lock()
				cancel1()
				if both {
					cancel2()
				}
				b.step(Release{Request: releaseOf(held, "release")})
				b.mu.Unlock()
				got := []string{(<-done1).String(), (<-done2).String()}

				now, err := first.GetKey(t.Context(), &contract.GetKeyRequest{Namespace: namespace, KeyID: held.KeyID})
				if err != nil {
					t.Fatal(err)
				}
				if both {
					slices.Sort(got) // either may be the last
					if diff := cmp.Diff([]string{"conflict", "outcome_unknown"}, got); diff != "" || now.Lease != nil {
						t.Errorf("holder %v, want none; answers (-want +got):\n%s", now.Lease, diff)
					}
					return
				}
				if now.Lease == nil || got[1] != "acquired replayed" {
					t.Errorf("who was not cancelled: got %s, holder %v, want its lease", got[1], now.Lease)
				}
				// Whether the other one is sure depends on which went on first.
				if got[0] != "outcome_unknown" && got[0] != "acquired" {
					t.Errorf("who was cancelled: got %s, want outcome_unknown or acquired", got[0])
				}
			})
		})
	}
}

func TestBackend_AdvanceStopsAtEveryEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDriver(t)
		var told []string
		var b *Backend
		b = New(Options{OnExpiry: func(ev contract.Event) {
			told = append(told, fmt.Sprintf("%s at %v late %v", ev.Owner, ev.At.Sub(d.now), ev.Late))
			b.Now() // it is called without the lock
		}})
		s := b.Open()
		mustAcquire(t, s, d.request("alice", "k"))
		brief := d.request("dave", "other")
		brief.TTL = 15 * time.Second
		mustAcquire(t, s, brief)
		bob, carol := park(t.Context(), s, waiter(d, "bob")), park(t.Context(), b.Open(), waiter(d, "carol"))
		b.Advance(100 * time.Second)

		for i, done := range []<-chan reply{bob, carol} {
			got := <-done
			if got.String() != "acquired" || got.res.Lease.ExpiresIn != got.res.Lease.TTL ||
				got.res.Lease.AcquiredAt.Sub(d.now) != time.Duration(i+1)*10*time.Second {
				t.Errorf("waiter %d: got %s, %+v", i, got, got.res.Lease)
			}
		}
		want := []string{"alice at 10s late 0s", "dave at 15s late 0s", "bob at 20s late 0s", "carol at 30s late 0s"}
		if diff := cmp.Diff(want, told); diff != "" {
			t.Errorf("expiries (-want +got):\n%s", diff)
		}
		if got := b.Now().Sub(d.now); got != 100*time.Second {
			t.Errorf("the clock went %v, want 100s", got)
		}
	})
}

// watched is a Model that reports each step before it takes it.
type watched struct {
	*Model
	before func(now time.Time)
}

func (w watched) Step(now time.Time, op Op) Answer {
	w.before(now)
	return w.Model.Step(now, op)
}

// TestBackend_AdvanceWaitsForTakers looks whether time goes on while somebody
// was served and does not know yet. Without that wait a waiter was told of a
// lease that had ended before its call came back.
func TestBackend_AdvanceWaitsForTakers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDriver(t)
		var b *Backend
		last, moved := d.now, 0
		b = New(Options{Machine: watched{NewModel(16), func(now time.Time) {
			if now.After(last) {
				moved++
				if b.untaken > 0 {
					t.Errorf("time goes from %v to %v while %d calls have not taken their answers", last, now, b.untaken)
				}
			}
			last = now
		}}})
		s := b.Open()
		mustAcquire(t, s, d.request("alice", "k"))
		var waiters []<-chan reply
		for i := range 20 {
			waiters = append(waiters, park(t.Context(), s, waiter(d, fmt.Sprint("owner-", i))))
		}
		b.Advance(time.Hour)
		for _, done := range waiters {
			if got := <-done; got.String() != "acquired" {
				t.Errorf("waiter: got %s, want acquired", got)
			}
		}
		if moved != 22 {
			t.Errorf("time moved %d times, want once for each of 21 leases and to the end", moved)
		}
	})
}

func TestStore_EndsOfAHandle(t *testing.T) {
	tests := []struct {
		name   string
		end    func(b *Backend, s *Store)
		waiter string // what a call that waits is told
		later  string // and one that is sent afterwards
		other  bool   // whether other handles go on
	}{
		{name: "close", end: func(_ *Backend, s *Store) { _ = s.Close(t.Context()) }, waiter: "closed", later: "closed", other: true},
		{name: "kill", end: func(_ *Backend, s *Store) { s.Kill() }, waiter: "outcome_unknown", later: "unavailable", other: true},
		{name: "restart", end: func(b *Backend, _ *Store) { b.Restart() }, waiter: "outcome_unknown", later: "unavailable"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := newDriver(t)
				b := New(Options{})
				s, other := b.Open(), b.Open()
				held := mustAcquire(t, s, d.request("alice", "k"))
				done, second := park(t.Context(), s, waiter(d, "bob")), park(t.Context(), other, waiter(d, "carol"))
				stream, err := s.Watch(t.Context(), &contract.WatchRequest{Namespace: namespace})
				if err != nil {
					t.Fatal(err)
				}
				ended := make(chan error, 1)
				go func() {
					_, err := stream.Next(t.Context())
					ended <- err
				}()
				synctest.Wait()
				tt.end(b, s)
				tt.end(b, s) // the same again

				if got := (<-done).String(); got != tt.waiter {
					t.Errorf("a call that waits: got %s, want %s", got, tt.waiter)
				}
				if got := contract.CodeOf(<-ended).String(); got != tt.later {
					t.Errorf("the stream: got %s, want %s", got, tt.later)
				}
				_, err = s.Get(t.Context(), &contract.GetRequest{Namespace: namespace, LeaseID: held.ID})
				if got := contract.CodeOf(err).String(); got != tt.later {
					t.Errorf("a later call: got %s, want %s", got, tt.later)
				}
				if !tt.other {
					<-second
					other = b.Open()
				}
				r := releaseOf(held, "release")
				if res, err := other.Release(t.Context(), &r); err != nil || res.Outcome != contract.OutcomeReleased {
					t.Fatalf("release on another handle: got %s, error %v", res.Outcome, err)
				}
				if tt.other {
					if got := <-second; got.String() != "acquired" {
						t.Errorf("the next waiter on another handle: got %s, want acquired", got)
					}
				}
			})
		})
	}
}

func TestStore_HealthFailsOnlyWhenClosed(t *testing.T) {
	b := New(Options{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	dead, closed := b.Open(), b.Open()
	dead.Kill()
	if err := closed.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	r := &contract.HealthRequest{Namespace: namespace}
	for name, ask := range map[string]func() (contract.Health, error){
		"call over": func() (contract.Health, error) { return b.Open().Health(ctx, r) },
		"dead":      func() (contract.Health, error) { return dead.Health(t.Context(), r) },
	} {
		if h, err := ask(); err != nil || h.Ready || h.Detail == "" {
			t.Errorf("%s: got %+v, error %v, want not ready with a reason", name, h, err)
		}
	}
	if _, err := closed.Health(t.Context(), r); contract.CodeOf(err) != contract.CodeClosed {
		t.Errorf("closed: got %v, want closed", err)
	}
	if _, err := b.Open().Health(t.Context(), &contract.HealthRequest{}); contract.CodeOf(err) != contract.CodeInvalid {
		t.Errorf("without a namespace: got %v, want invalid", err)
	}
}

func TestStream_Next(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDriver(t)
		s := New(Options{}).Open()
		stream, err := s.Watch(t.Context(), &contract.WatchRequest{Namespace: namespace, Owner: "alice"})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := stream.Next(ctx); contract.CodeOf(err) != contract.CodeTimeout {
			t.Fatalf("nothing happens: got %v, want timeout", err)
		}
		next := make(chan string, 1)
		read := func() {
			ev, err := stream.Next(t.Context())
			next <- fmt.Sprint(ev.Kind, " ", contract.CodeOf(err))
		}
		go read()
		synctest.Wait()
		mustAcquire(t, s, d.request("bob", "other"))
		mustAcquire(t, s, d.request("alice", "k"))
		if got, want := <-next, "acquired code(0)"; got != want {
			t.Errorf("after a time-out: got %s, want %s", got, want)
		}
		go read()
		synctest.Wait()
		stream.Close()
		stream.Close()
		if got, want := <-next, "event(0) closed"; got != want {
			t.Errorf("closed beside Next: got %s, want %s", got, want)
		}
	})
}
