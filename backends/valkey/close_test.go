package valkey_test

import (
	"context"
	"testing"
	"time"

	"go.uber.org/goleak"

	"leased/backends/valkey"
	"leased/contract"
	"leased/test/proc"
)

// TestClose_leavesNothing runs alone: it looks at all goroutines.
func TestClose_leavesNothing(t *testing.T) {
	v := proc.StartValkey(t)
	before := goleak.IgnoreCurrent()
	s := open(t, valkey.Config{Addresses: []string{v.Addr}})
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	res, err := s.Acquire(ctx, acquireOf("held", 1))
	if err != nil || res.Outcome != contract.OutcomeAcquired {
		t.Fatalf("acquire: %v, %v", res.Outcome, err)
	}
	stream, err := s.Watch(ctx, &contract.WatchRequest{Namespace: "bench"})
	if err != nil {
		t.Fatal(err)
	}
	waiter := make(chan error, 1)
	go func() {
		r := acquireOf("held", 2)
		r.Wait = 20 * time.Second
		_, err := s.Acquire(ctx, r)
		waiter <- err
	}()
	go func() {
		for {
			if _, err := stream.Next(ctx); err != nil {
				waiter <- err
				return
			}
		}
	}()
	for h := (contract.Health{}); h.Waiters != 1; {
		if h, err = s.Health(ctx, &contract.HealthRequest{Namespace: "bench"}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(ctx); err != nil {
		t.Fatalf("close: %v", err)
	}
	for range 2 {
		if err := <-waiter; contract.CodeOf(err) != contract.CodeClosed {
			t.Errorf("a call that waited when the store was closed: got %v, want closed", err)
		}
	}
	goleak.VerifyNone(t, before)
}
