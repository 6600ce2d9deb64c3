package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/hashicorp/raft"
)

const (
	defaultSnapshotEntries  = 8192
	defaultSnapshotInterval = 2 * time.Minute

	// snapshotCheck is how often it is looked whether a snapshot is due. It also
	// keeps a busy node with little state from writing one snapshot after the
	// other.
	snapshotCheck = time.Second
	// snapshotRetry is the pause after a failed one: writing a large state again
	// each second would help a full disk least of all.
	snapshotRetry = 10 * time.Second
	// maxEntries bounds the log however large the state is: its file is mapped
	// into memory, and half a million entries were half a gigabyte of it.
	maxEntries = 131072

	// minTrailing is how many entries at least stay in the log below a snapshot,
	// for followers that are a little behind. It is above maxInFlight, so that no
	// snapshot is sent to a follower that only has entries of a deposed leader more:
	// raft v1.7.3 sends it again and again then, or panics (raft#697).
	minTrailing = 1024
)

// SnapshotConfig says when a snapshot is taken on its own, whichever comes first.
type SnapshotConfig struct {
	// Entries is how many entries make a snapshot due; 0 means 8,192. If the FSM
	// has a method SnapshotCost() int, which tells how many records its state has
	// and may be called at any time from any goroutine, then as many as there are
	// records when that is more, up to 131,072. Afterwards this many entries, and
	// at least 1,024, are kept below the snapshot.
	//
	// If the FSM has a method SnapshotBlocked() bool, for any goroutine too, none is
	// taken as long as that answers true.
	Entries int
	// Interval is after how long a snapshot is due if anything was applied; 0
	// means 2 minutes.
	Interval time.Duration
}

// costly is what an FSM may implement, see SnapshotConfig.
type costly interface {
	SnapshotCost() int
}

// blocking is what an FSM may implement that cannot be snapshotted at times: while
// it answers true no snapshot is taken. It may be called at any time from any
// goroutine.
type blocking interface {
	SnapshotBlocked() bool
}

// snapshotter takes snapshots, one at a time. raft's own trigger knows neither
// the interval nor the cost.
type snapshotter struct {
	cfg     SnapshotConfig
	log     *slog.Logger
	machine *machine
	store   *snapshotStore
	cost    func() int
	blocked func() bool
	take    func() error

	requests chan chan error
	stop     chan struct{}
	stopped  chan struct{}

	since   time.Time // of the last snapshot, or of the start
	retryAt time.Time // not before, after a failure
}

func newSnapshotter(cfg SnapshotConfig, log *slog.Logger, m *machine, store *snapshotStore, take func() error) *snapshotter {
	s := &snapshotter{
		cfg:      cfg,
		log:      log,
		machine:  m,
		store:    store,
		cost:     func() int { return 0 },
		blocked:  func() bool { return false },
		take:     take,
		requests: make(chan chan error),
		stop:     make(chan struct{}),
		stopped:  make(chan struct{}),
	}
	if c, ok := m.fsm.(costly); ok {
		s.cost = c.SnapshotCost
	}
	if b, ok := m.fsm.(blocking); ok {
		s.blocked = b.SnapshotBlocked
	}
	return s
}

// run serves until stop is closed; a snapshot that is being taken is finished.
func (s *snapshotter) run() {
	defer close(s.stopped)
	s.since = time.Now()
	ticker := time.NewTicker(snapshotCheck)
	defer ticker.Stop()
	for {
		select {
		case answer := <-s.requests:
			answer <- s.snapshot()
		case <-ticker.C:
			if s.due(time.Now()) {
				// Nobody asked for it, and the next one may succeed.
				_ = s.snapshot()
			}
		case <-s.stop:
			return
		}
	}
}

// fresh returns how many entries the newest snapshot lacks, 0 if none of them is
// a command.
func (s *snapshotter) fresh() uint64 {
	index, _ := s.store.latest()
	if command := s.machine.command.Load(); command > index {
		return command - index
	}
	return 0
}

func (s *snapshotter) due(now time.Time) bool {
	fresh := s.fresh()
	if fresh == 0 || s.blocked() || now.Before(s.retryAt) {
		return false
	}
	if now.Sub(s.since) >= s.cfg.Interval {
		return true
	}
	return fresh >= s.threshold()
}

func (s *snapshotter) threshold() uint64 {
	// A snapshot writes the whole state, so the more records there are the more
	// commands it has to be worth: one each. With four records a command,
	// snapshots took 9 % of the processor time under load. Fewer would make the
	// log, and the restart that replays it, longer.
	return uint64(max(s.cfg.Entries, min(s.cost(), maxEntries)))
}

func (s *snapshotter) snapshot() error {
	if s.fresh() == 0 {
		return nil
	}
	start := time.Now()
	err := s.take()
	if errors.Is(err, raft.ErrNothingNewToSnapshot) {
		err = nil
	}
	if err != nil {
		// raft has logged it.
		s.retryAt = time.Now().Add(snapshotRetry)
		return fmt.Errorf("snapshot: %w", err)
	}
	s.since, s.retryAt = time.Now(), time.Time{}
	index, _ := s.store.latest()
	s.log.Info("snapshot taken", "index", index, "duration", time.Since(start))
	return nil
}

// Snapshot writes a snapshot now and returns when it is on disk. It does nothing
// when the newest one already holds every command. When ctx ends first Snapshot
// returns the cause, and the snapshot goes on.
func (n *Node) Snapshot(ctx context.Context) error {
	if !n.calls.enter() {
		return ErrClosed
	}
	defer n.calls.leave()
	done := make(chan error, 1)
	select {
	case n.snapshots.requests <- done:
	case <-ctx.Done():
		return fmt.Errorf("snapshot: %w", context.Cause(ctx))
	}
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("snapshot: %w", context.Cause(ctx))
	}
}
