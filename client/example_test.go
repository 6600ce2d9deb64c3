package client_test

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"sync"
	"time"

	"leased/client"
	"leased/contract/memstore"
	"leased/gateway"
	"leased/gateway/api"
)

// exampleServer stands for a leased server. In a program the client is made of
// the server's address: client.Options{Servers: []string{"http://127.0.0.1:8470"}}.
func exampleServer() (c *client.Client, stop func()) {
	store := memstore.New(memstore.Options{}).Open()
	g, err := gateway.New(gateway.Options{
		Namespaces: []gateway.Namespace{{Name: "default", Backend: "memory", Store: store, Policy: gateway.DefaultPolicy()}},
		Auth:       gateway.AuthNone(),
	})
	if err != nil {
		panic(err)
	}
	server := httptest.NewServer(g.Handler())
	c, err = client.New(client.Options{Servers: []string{server.URL}})
	if err != nil {
		panic(err)
	}
	return c, func() {
		// The work has stopped: give back whatever is still held, and say what could
		// not be.
		if err := c.Shutdown(context.Background()); err != nil {
			panic(err)
		}
		c.Close()
		_ = g.Close(context.Background())
		server.Close()
		_ = store.Close(context.Background())
	}
}

// A mutex over machines: whoever wants the key waits for it in line.
func ExampleClient_WithLease_mutex() {
	c, stop := exampleServer()
	defer stop()
	var (
		inside, most int
		wg           sync.WaitGroup
	)
	for i := range 3 {
		wg.Go(func() {
			err := c.WithLease(context.Background(), client.HoldRequest{AcquireRequest: client.AcquireRequest{
				Key:      api.Key{Tenant: "acme", Target: api.Target{Type: "name", ID: "ledger"}, Actor: "billing"},
				Instance: fmt.Sprint("worker-", i),
				Wait:     time.Minute,
			}}, func(context.Context, *client.Session) error {
				inside++ // nobody else is here, and so no lock is needed
				most = max(most, inside)
				inside--
				return nil
			})
			if err != nil {
				fmt.Println(err)
			}
		})
	}
	wg.Wait()
	fmt.Println("at most", most, "at a time")
	// Output: at most 1 at a time
}

// Leader election: each candidate campaigns again and again, and leads for as
// long as its context lasts.
func ExampleClient_Hold_leaderElection() {
	c, stop := exampleServer()
	defer stop()
	campaign := func(ctx context.Context, name string, lead func(ctx context.Context, token uint64)) {
		for ctx.Err() == nil {
			s, err := c.Hold(ctx, client.HoldRequest{AcquireRequest: client.AcquireRequest{
				Key:      api.Key{Tenant: "acme", Target: api.Target{Type: "name", ID: "scheduler"}, Actor: "leader"},
				Instance: name,
				Wait:     time.Minute,
			}})
			switch {
			case errors.Is(err, client.ErrConflict):
				continue // the wait is over; another leads
			case err != nil:
				return // such as that ctx has ended
			}
			lead(s.Context(), s.Token())
			if err := s.Release(); err != nil {
				fmt.Println(name, "is deposed:", err)
			}
		}
	}

	ctx, cancel := context.WithCancel(context.Background())
	terms := make(chan uint64)
	var wg sync.WaitGroup
	for _, name := range []string{"a", "b"} {
		wg.Go(func() {
			campaign(ctx, name, func(ctx context.Context, token uint64) {
				select {
				case terms <- token: // lead; here: step down at once
				case <-ctx.Done():
				}
			})
		})
	}
	first, second := <-terms, <-terms
	cancel()
	wg.Wait()
	fmt.Println("the second leader has a higher token:", second > first)
	// Output: the second leader has a higher token: true
}

// A job that runs now and then, on one of the machines that all try it at the
// same time: whoever does not get the key leaves it for this time.
func ExampleClient_Hold_periodicJob() {
	c, stop := exampleServer()
	defer stop()
	done := make(map[string]bool) // in a program: where the job keeps its results
	tick := func(machine, period string, job func()) {
		s, err := c.Hold(context.Background(), client.HoldRequest{AcquireRequest: client.AcquireRequest{
			Key:      api.Key{Tenant: "acme", Target: api.Target{Type: "name", ID: "report"}, Actor: "nightly"},
			Instance: machine,
			JobID:    period,
		}})
		switch {
		case errors.Is(err, client.ErrConflict):
			fmt.Println(machine, "leaves it")
			return
		case err != nil:
			fmt.Println(err)
			return
		}
		defer func() { _ = s.Release() }() // the lease ends by itself otherwise
		if done[period] {                  // a lease keeps two from doing it at once, not one after the other
			fmt.Println(machine, "finds it done")
			return
		}
		job()
		done[period] = true
		fmt.Println(machine, "has done it")
	}
	tick("m-1", "2026-01-01", func() {
		tick("m-2", "2026-01-01", func() {}) // at the same time
	})
	tick("m-3", "2026-01-01", func() {}) // its clock is late
	// Output:
	// m-2 leaves it
	// m-1 has done it
	// m-3 finds it done
}

// A write with a fence: the place that is written to refuses a token lower than
// one that it has seen, in the same step as the write.
func ExampleSession_Token_fencedWrite() {
	c, stop := exampleServer()
	defer stop()
	var report struct {
		mu    sync.Mutex
		token uint64
		body  string
	}
	// In SQL: UPDATE report SET body = $1, token = $2 WHERE id = 1 AND token <= $2
	write := func(token uint64, body string) error {
		report.mu.Lock()
		defer report.mu.Unlock()
		if token < report.token {
			return fmt.Errorf("a later holder was here")
		}
		report.token, report.body = token, body
		return nil
	}
	ctx := context.Background()
	request := client.HoldRequest{AcquireRequest: client.AcquireRequest{
		Key:      api.Key{Tenant: "acme", Target: api.Target{Type: "name", ID: "report"}, Actor: "writer"},
		Instance: "paused",
	}}
	paused, err := c.Hold(ctx, request)
	if err != nil {
		fmt.Println(err)
		return
	}
	// While its process is paused, its lease ends and another holder writes.
	if _, err := c.Revoke(ctx, client.RevokeRequest{LeaseID: paused.LeaseID(), Reason: "it does not answer"}); err != nil {
		fmt.Println(err)
	}
	request.Instance = "next"
	err = c.WithLease(ctx, request, func(_ context.Context, s *client.Session) error {
		return write(s.Token(), "by the next holder")
	})
	fmt.Println("next:", err)
	// It goes on, in the middle of its work.
	fmt.Println("paused:", write(paused.Token(), "by the paused one"))
	fmt.Println("report:", report.body)
	fmt.Println("revoked:", errors.Is(paused.Release(), client.ErrRevoked))
	// Output:
	// next: <nil>
	// paused: a later holder was here
	// report: by the next holder
	// revoked: true
}
