package raftkv_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"leased/backends/raftkv"
	"leased/contract"
)

// faulty is a node's log that can be told to refuse commands, and counts those
// that it took.
type faulty struct {
	raftkv.Proposer

	refuse atomic.Int64 // so many of the next commands
	taken  atomic.Int64
}

// refused says that the log never saw the command.
type refused struct{}

func (refused) Error() string   { return "refused by the test" }
func (refused) Submitted() bool { return false }

func (f *faulty) Propose(ctx context.Context, command []byte) (any, error) {
	if f.refuse.Add(-1) >= 0 {
		return nil, refused{}
	}
	f.taken.Add(1)
	return f.Proposer.Propose(ctx, command)
}

func newFaultyNode(t *testing.T) (*node, *faulty) {
	t.Helper()
	f := new(faulty)
	n := &node{dir: t.TempDir(), start: time.Now(), handles: make(map[contract.Store]*handle)}
	n.wrap = func(p raftkv.Proposer) raftkv.Proposer {
		f.Proposer = p
		return f
	}
	n.open(t)
	t.Cleanup(func() { n.close(t) })
	return n, f
}

func queueLength(t *testing.T, s contract.Store, key contract.Key) int {
	t.Helper()
	res, err := s.GetKey(t.Context(), &contract.GetKeyRequest{Namespace: "default", KeyID: key.ID()})
	if err != nil {
		t.Fatal(err)
	}
	return res.Queue.Length
}

// A waiter whose leaving the log refuses is tried again: it would stay present
// with nobody there, and be granted the key.
func TestStore_LeavingIsRepeated(t *testing.T) {
	n, log := newFaultyNode(t)
	s := n.handle()
	held := mustAcquire(t, s, acquireRequest(t, "holder"))
	r := acquireRequest(t, "waiter")
	r.Wait = time.Minute
	ctx, cancel := context.WithCancel(t.Context())
	var over sync.WaitGroup
	over.Go(func() {
		if res, err := s.Acquire(ctx, r); res.Outcome == contract.OutcomeAcquired {
			t.Errorf("the waiter was granted the held key: %+v, %v", res, err)
		}
	})
	waitFor(t, "the waiter", func() bool { return queueLength(t, s, held.Key) == 1 })
	log.refuse.Store(2)
	cancel()
	over.Wait()
	waitFor(t, "the waiter's end", func() bool { return queueLength(t, s, held.Key) == 0 })
	if left := log.refuse.Load(); left > 0 {
		t.Errorf("%d commands were to be refused and were not", left)
	}
}

// However many read a lease that has run out, one entry ends it.
func TestEngine_ManyReadersSweepOnce(t *testing.T) {
	n, log := newFaultyNode(t)
	s := n.handle()
	l := mustAcquire(t, s, acquireRequest(t, "holder"))
	before, began := log.taken.Load(), time.Now()
	var readers sync.WaitGroup
	begin := make(chan struct{})
	for range 200 {
		readers.Go(func() {
			<-begin
			if got := mustGet(t, s, l.ID); got.State != contract.StateExpired {
				t.Errorf("a lease past its TTL reads as %v", got.State)
			}
		})
	}
	n.offset.Add(int64(31 * time.Second))
	close(begin)
	readers.Wait()
	got := log.taken.Load() - before
	// One for a read, one for the sweeper that looks every 50 ms, and its ticks, two a
	// second.
	if most := 3 + int64(time.Since(began)/(500*time.Millisecond)); got > most {
		t.Errorf("200 reads of a lease that had run out wrote %d entries, want at most %d", got, most)
	}
}
