package cluster

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// turnStep lies between the moments at which two followers miss their leader. The
// later one is elected by those that miss it already; a pre-vote with both fsyncs
// takes less on a disk that a lease store can use.
const turnStep = 40 * time.Millisecond

const (
	// askAfter is after how long without a word of the leader the voters ask each other
	// how long their logs are, and askTimeout how long they wait for that.
	askAfter   = 200 * time.Millisecond
	askTimeout = 150 * time.Millisecond
)

// silence has a follower miss a silent leader at a time that is the same each time,
// in turn with the other voters, those with the shortest log first. raft itself looks at random times, up to two
// timeouts after the last word, and whoever looks first is refused by those that
// still believe in the leader: an election took 0.9 s instead of 0.45 s. The first in line is
// refused so too, and elects the next one; that has to have as much of the log.
//
// It only makes raft look. Whether the leader is silent, raft decides, and it goes
// on to look by itself: were this broken, elections would be as slow as without.
type silence struct {
	raft          *raft.Raft
	self          raft.ServerID
	ask           func(ctx context.Context, server raft.ServerID) (lastIndex uint64)
	stop, stopped chan struct{}

	asked time.Time // the leader's last word when the others were asked
	logs  map[raft.ServerID]uint64
}

func watchSilence(r *raft.Raft, self raft.ServerID, ask func(context.Context, raft.ServerID) uint64) *silence {
	s := &silence{raft: r, self: self, ask: ask, stop: make(chan struct{}), stopped: make(chan struct{})}
	go s.run()
	return s
}

func (s *silence) run() {
	defer close(s.stopped)
	timer := time.NewTimer(heartbeatTimeout)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
			timer.Reset(s.look())
		case <-s.stop:
			return
		}
	}
}

// look makes raft look if it is this node's turn, and returns when to come again.
func (s *silence) look() time.Duration {
	_, leader := s.raft.LeaderWithID()
	if leader == "" || s.raft.State() != raft.Follower {
		return heartbeatTimeout // no leader can be missed before
	}
	configuration := s.raft.GetConfiguration().Configuration()
	if placeInLine(configuration, leader, s.self, nil) < 0 {
		return heartbeatTimeout
	}
	last := s.raft.LastContact()
	if left := askAfter - time.Since(last); left > 0 {
		return left
	}
	if !s.asked.Equal(last) {
		s.asked, s.logs = last, s.askLogs(configuration, leader)
	}
	place := placeInLine(configuration, leader, s.self, s.logs)
	left := heartbeatTimeout + time.Duration(place)*turnStep - time.Since(last)
	if left > 0 {
		return left
	}
	// It fails for an invalid configuration only, and this one is in use.
	_ = lookNow(s.raft)
	return turnStep
}

// askLogs returns where the logs of the voters in line end, as far as they say; nil
// when no other one does.
func (s *silence) askLogs(c raft.Configuration, leader raft.ServerID) map[raft.ServerID]uint64 {
	ctx, cancel := context.WithTimeout(context.Background(), askTimeout)
	defer cancel()
	others := line(c, leader)
	others = slices.DeleteFunc(others, func(id raft.ServerID) bool { return id == s.self })
	ends := make([]uint64, len(others))
	var asked sync.WaitGroup
	for i, id := range others {
		asked.Go(func() { ends[i] = s.ask(ctx, id) })
	}
	asked.Wait()
	if !slices.ContainsFunc(ends, func(end uint64) bool { return end > 0 }) {
		return nil
	}
	logs := map[raft.ServerID]uint64{s.self: s.raft.LastIndex()}
	for i, id := range others {
		logs[id] = ends[i]
	}
	return logs
}

func (s *silence) close() error {
	close(s.stop)
	<-s.stopped
	return nil
}

// line returns the voters that could follow the leader, in the order of their ids.
func line(c raft.Configuration, leader raft.ServerID) []raft.ServerID {
	var line []raft.ServerID
	for _, s := range c.Servers {
		if s.Suffrage == raft.Voter && s.ID != leader {
			line = append(line, s.ID)
		}
	}
	slices.Sort(line)
	return line
}

// placeInLine returns which of the voters that could follow leader id is, from 0,
// or -1 if it is none. The one whose log ends last is the last. All nodes agree on it
// when they know the same logs: they have the same configuration, and logs do not grow
// while there is no leader. Without logs it goes by id.
func placeInLine(c raft.Configuration, leader, id raft.ServerID, logs map[raft.ServerID]uint64) int {
	line := line(c, leader)
	slices.SortStableFunc(line, func(a, b raft.ServerID) int { return cmp.Compare(logs[a], logs[b]) })
	return slices.Index(line, id)
}
