package memstore

import (
	"crypto/rand"
	"sync"
	"time"

	"leased/contract"
)

// defaultRing is how many events of a namespace a stream can fall behind.
const defaultRing = 1024

// Options configure a Backend. The zero Options are complete.
type Options struct {
	// Start is the first instant of the backend's clock; zero means the first of
	// January 2026.
	Start time.Time
	// Ring is how many events of each namespace are kept for streams; 0 means
	// 1,024. A stream that falls further behind is told of a gap.
	Ring int
	// Nonce makes lease ids; nil means crypto/rand. It is called under the
	// backend's lock.
	Nonce func() [16]byte
	// OnExpiry is told of each expiry, by the call during which it was recorded.
	OnExpiry contract.ExpiryObserver
	// Machine is the step function; nil means a new Model. It belongs to the
	// Backend from then on.
	Machine Machine
}

// Backend is what several Stores share, as gateways share a server. Its clock
// stands still until Advance.
type Backend struct {
	nonce    func() [16]byte
	onExpiry contract.ExpiryObserver

	// mu guards all below, and the fields of Stores and parked calls that say
	// so. It makes every operation one atomic step.
	mu       sync.Mutex
	machine  Machine
	now      time.Time
	lastCall CallID
	parked   map[CallID]*parkedCall
	stores   map[*Store]bool // those that are open
	// changed is closed and replaced when streams have something to look at.
	changed chan struct{}
	// untaken counts the parked calls that were answered and have not gone on
	// yet; taken is signalled when it falls.
	untaken int
	taken   sync.Cond
}

// New returns an empty backend.
func New(o Options) *Backend {
	if o.Start.IsZero() {
		o.Start = time.Date(2026, time.January, 1, 0, 0, 0, 0, time.UTC)
	}
	if o.Ring == 0 {
		o.Ring = defaultRing
	}
	if o.Machine == nil {
		o.Machine = NewModel(o.Ring)
	}
	if o.Nonce == nil {
		o.Nonce = func() (nonce [16]byte) {
			_, _ = rand.Read(nonce[:]) // it never fails: it ends the program instead
			return nonce
		}
	}
	b := &Backend{
		nonce: o.Nonce, onExpiry: o.OnExpiry, machine: o.Machine, now: o.Start,
		parked: map[CallID]*parkedCall{}, stores: map[*Store]bool{}, changed: make(chan struct{}),
	}
	b.taken.L = &b.mu
	return b
}

// Guarantees returns what the store promises.
func Guarantees() contract.Guarantees {
	return contract.Guarantees{
		ProcessCrash: "nothing survives the end of the process",
		MachineCrash: "nothing survives the end of the process",
		FailOver:     "there is one copy and nothing to fail over to",
		Partition:    "there is no network to be cut",
		ClockStep:    "the clock is the test's and moves only when told to",
		Restore:      "there is no backup to restore",
		Granularity:  time.Nanosecond,
		MinTTL:       time.Nanosecond,
		Slack:        0,
		Fairness:     "first come first served per key, over all stores on the backend",
		QuotaExact:   true,
	}
}

// Open returns another handle on the backend.
func (b *Backend) Open() *Store {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := &Store{b: b}
	b.stores[s] = true
	return s
}

// Now returns the instant that the backend's clock shows.
func (b *Backend) Now() time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.now
}

// Advance lets d pass on the backend's clock. It stops at the end of every
// lease on the way, so that each is recorded on time and its key is handed over
// then; and before time goes on, whoever was served has taken its grant. A
// waiter would otherwise find its lease over before it had it.
func (b *Backend) Advance(d time.Duration) {
	b.mu.Lock()
	end := b.now.Add(d)
	var events []contract.Event
	for {
		for b.untaken > 0 {
			b.taken.Wait()
		}
		next, ok := b.machine.NextExpiry()
		if !ok || !next.After(b.now) || next.After(end) {
			break
		}
		b.now = next
		events = append(events, b.step(Tick{}).Events...)
	}
	if end.After(b.now) { // another Advance may have run while this one waited
		b.now = end
	}
	events = append(events, b.step(Tick{}).Events...)
	b.mu.Unlock()
	b.observe(events)
}

// Restart stands for a crash of the backend and its start: what was committed
// stays, every handle is dead and every parked call is gone.
func (b *Backend) Restart() {
	b.mu.Lock()
	a := b.step(Restart{})
	for s := range b.stores {
		s.dead = true
		b.cutDead(s)
	}
	clear(b.stores)
	b.wakeStreams()
	b.mu.Unlock()
	b.observe(a.Events)
}

// do runs op for s.
func (b *Backend) do(s *Store, op Op) (Answer, error) {
	b.mu.Lock()
	if err := s.usable(); err != nil {
		b.mu.Unlock()
		return Answer{}, err
	}
	a := b.step(op)
	b.mu.Unlock()
	b.observe(a.Events)
	return a, a.Err
}

// step runs op now and hands what it caused to parked calls and streams. The
// caller holds the lock, and passes the events to observe once it does not.
func (b *Backend) step(op Op) Answer {
	a := b.machine.Step(b.now, op)
	b.wake(a.Wakes)
	if len(a.Events) > 0 {
		b.wakeStreams()
	}
	return a
}

func (b *Backend) wakeStreams() {
	close(b.changed)
	b.changed = make(chan struct{})
}

func (b *Backend) observe(events []contract.Event) {
	if b.onExpiry == nil {
		return
	}
	for _, ev := range events {
		if ev.Kind == contract.EventExpired {
			b.onExpiry(ev)
		}
	}
}
