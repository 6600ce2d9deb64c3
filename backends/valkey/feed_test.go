package valkey_test

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"

	"leased/contract"
	"leased/test/proc"
)

// clients returns how many connections the server has.
func (b *bench) clients() int {
	b.Helper()
	for line := range strings.Lines(b.server.Do(b.T, "INFO", "clients")) {
		if n, ok := strings.CutPrefix(strings.TrimSpace(line), "connected_clients:"); ok {
			count, err := strconv.Atoi(n)
			if err != nil {
				b.Fatal(err)
			}
			return count
		}
	}
	b.Fatal("INFO has no connected_clients")
	return 0
}

// TestWatch_oneConnection: however many streams wait at a gateway, the server has
// one more connection, and each is told everything; when the last one is closed
// nobody waits any more.
func TestWatch_oneConnection(t *testing.T) {
	b := newBench(t)
	held := b.grant("held")
	const streams, renewals = 200, 40
	open := make([]contract.Stream, streams)
	for i := range open {
		stream, err := b.store.Watch(b.within(proc.Patience), &contract.WatchRequest{Namespace: held.Namespace})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(stream.Close)
		open[i] = stream
	}
	before := b.clients()
	var requests []*contract.RenewRequest
	for range renewals {
		requests = append(requests, b.renewOf(held))
	}
	var all sync.WaitGroup
	wrong := make(chan error, streams)
	for i, stream := range open {
		all.Go(func() {
			for j, r := range requests {
				ev, err := stream.Next(b.within(proc.Patience))
				if err != nil || ev.RequestID != r.RequestID {
					wrong <- fmt.Errorf("stream %d, event %d: got %s of %s, %w", i, j, ev.Kind, ev.RequestID, err)
					return
				}
			}
		})
	}
	for _, r := range requests {
		if res, err := b.store.Renew(b.within(proc.Patience), r); err != nil || res.Outcome != contract.OutcomeRenewed {
			t.Fatalf("renew: %v, %v", res.Outcome, err)
		}
	}
	if got := b.clients(); got > before+3 {
		t.Errorf("%d connections with %d streams that wait, %d before they did", got, streams, before)
	}
	all.Wait()
	close(wrong)
	for err := range wrong {
		t.Error(err)
	}
	for _, stream := range open {
		stream.Close()
	}
	// One that comes later begins anew.
	again, err := b.store.Watch(b.within(proc.Patience), &contract.WatchRequest{Namespace: held.Namespace})
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	r := b.renewOf(held)
	if _, err := b.store.Renew(b.within(proc.Patience), r); err != nil {
		t.Fatal(err)
	}
	if ev, err := again.Next(b.within(proc.Patience)); err != nil || ev.RequestID != r.RequestID {
		t.Errorf("a stream after all others were closed: got %s of %s, %v", ev.Kind, ev.RequestID, err)
	}
}
