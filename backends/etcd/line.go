package etcd

import (
	"bytes"
	"context"
	"slices"
	"sync"
	"time"

	"leased/contract"
)

const (
	// lineTimeout bounds each thing that a line asks of etcd.
	lineTimeout = 5 * time.Second
	// linePoll is how often a line looks at its key without being told to: what
	// wakes it is not relied upon.
	linePoll = 500 * time.Millisecond
	// queueLife is how long the queue of a key that nobody asks for is kept.
	queueLife = 24 * time.Hour
	// doubtFor is how long etcd may take to apply what it was sent, beyond its own
	// time-out of a request.
	doubtFor = 10 * time.Second
	// leaveTimeout bounds how long a call whose wait is over waits to learn what
	// came of it. The other half is for a machine that has other work.
	leaveTimeout = contract.AnswerSlack / 2
	// gatherFor is how long after a hand-over those who come to the queue wait for
	// the next one.
	gatherFor = 20 * time.Millisecond
)

// line is where calls of this store wait for one key. However many they are, one
// goroutine asks etcd for all of them, and only if the first in the queue is one
// of them does it try for the key.
type line struct {
	s    *Store
	ref  keyRef
	wake chan struct{}

	mu      sync.Mutex
	waiting map[contract.Scope]*spot
	order   []contract.Scope // of waiting, in the order in which they came here
	retired bool
	holder  *record   // as last read,
	asked   time.Time // which began then
	known   glance
	// passed is when the key was last handed on here. Then those who come wait a
	// little for the next time, to get their places in that transaction.
	passed    time.Time
	gathering bool
}

// spot is where the copies of one attempt wait.
type spot struct {
	a       *attempt
	calls   []*waiter
	pending bool  // a grant was sent whose outcome is not known yet
	tried   bool  // to get a place, unread
	seating bool  // a place for it is on its way
	placed  int64 // the revision of the hand-over that gave it a place
	// granted is the lease that its calls were told of, or that was given back.
	granted contract.LeaseID
	// doubt is until when a place may appear that was asked for and not confirmed.
	doubt time.Time
	// owed is until when a place is made even if nobody waits here any more: a call
	// whose wait ends keeps its place, also when etcd was slower than the wait.
	owed time.Time
}

// isOwed tells that the spot is to have a place though its calls have left.
func (sp *spot) isOwed() bool { return time.Now().Before(sp.owed) }

// waiter is one call that waits.
type waiter struct {
	ch chan told // gets one answer

	since time.Time // when the call began
	saw   *record   // who was seen to hold the key since, if anybody was

	// Under the line's mutex.

	// looked tells that, since, there was no answer to the call's attempt: that was
	// looked for, or the attempt had a place, which nothing has that was answered.
	looked  bool
	leaving bool
	gone    bool // nobody is there to take a grant
	limit   time.Time
}

// told is what a waiter is answered.
type told struct {
	res   contract.Result
	err   error
	share *share // of a grant
}

// share is a grant that the copies at a spot have together. Only when none of
// them takes it is it undone.
type share struct {
	mu    sync.Mutex
	calls int
	taken bool
	id    contract.LeaseID
	rev   int64 // of the grant
}

// take takes the grant, or leaves it when gone. last tells that nobody took it.
func (g *share) take(gone bool) (last bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.calls--
	if !gone {
		g.taken = true
	}
	return g.calls == 0 && !g.taken
}

// line returns the line for a key with the call in it, and nothing when the
// store is closing.
func (s *Store) line(a *attempt, w *waiter) *line {
	s.linesMu.Lock()
	defer s.linesMu.Unlock()
	l := s.lines[a.ref]
	if l != nil && l.join(a, w) {
		return l
	}
	l = &line{s: s, ref: a.ref, wake: make(chan struct{}, 1), waiting: map[contract.Scope]*spot{}}
	l.known.since = s.follower.since.Load()
	l.join(a, w)
	if !s.start(l.run) {
		return nil
	}
	s.lines[a.ref] = l
	return l
}

func (s *Store) wakeLines() {
	s.linesMu.Lock()
	defer s.linesMu.Unlock()
	for _, l := range s.lines {
		l.forget()
		l.poke()
	}
}

// wakeLine tells those who wait for a key what this store has made of it.
func (s *Store) wakeLine(ref keyRef, r *record) {
	if l := s.noteLine(ref, r); l != nil {
		l.poke()
	}
}

// noteLine is wakeLine for what they can do nothing with yet.
func (s *Store) noteLine(ref keyRef, r *record) *line {
	s.linesMu.Lock()
	defer s.linesMu.Unlock()
	l := s.lines[ref]
	if l != nil {
		l.note(func(g *glance) { g.wrote(r) })
	}
	return l
}

func (l *line) poke() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// join adds a call, unless the line has ended.
func (l *line) join(a *attempt, w *waiter) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.retired {
		return false
	}
	sp := l.waiting[a.scope]
	switch {
	case sp == nil:
		l.waiting[a.scope] = &spot{a: a, calls: []*waiter{w}}
		l.order = append(l.order, a.scope)
		if l.gather() {
			return true
		}
	case !bytes.Equal(sp.a.print[:], a.print[:]):
		// Whose the id is stands in etcd, where the line may not have looked yet.
		w.ch <- told{err: contestedError{}}
	default:
		sp.calls = append(sp.calls, w)
	}
	l.poke()
	return true
}

// gather lets a call that came wait for the next hand-over, if there was one a
// moment ago. The caller holds the lock.
func (l *line) gather() bool {
	if time.Since(l.passed) > gatherFor {
		return false
	}
	if !l.gathering {
		l.gathering = true
		time.AfterFunc(gatherFor, func() {
			l.mu.Lock()
			l.gathering = false
			l.mu.Unlock()
			l.poke()
		})
	}
	return true
}

// leave tells that a call's wait is over. It is answered.
func (l *line) leave(a *attempt, w *waiter, gone bool, limit time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	w.leaving, w.gone, w.limit = true, gone, limit
	if sp := l.waiting[a.scope]; sp != nil && slices.Contains(sp.calls, w) {
		sp.owed = time.Now().Add(doubtFor)
	}
	l.poke()
}

// run works for the line's calls until there are none.
func (l *line) run() {
	l.s.presence.use(1)
	defer l.s.presence.use(-1)
	ctx := l.s.life
	l.s.follower.use()
	poll := time.NewTicker(linePoll)
	defer poll.Stop()
	for {
		again, err := l.step(ctx)
		if err != nil && ctx.Err() == nil {
			l.s.config.Logger.Debug("waiting", "error", err)
		}
		if l.retire(ctx) {
			return
		}
		if again > 0 {
			sleep(ctx, again)
			continue
		}
		select {
		case <-l.wake:
		case <-poll.C:
			l.forget()
		case <-ctx.Done():
		}
	}
}

// retire ends the line if nobody waits in it, or the store has ended.
func (l *line) retire(ctx context.Context) bool {
	l.s.linesMu.Lock()
	defer l.s.linesMu.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.waiting) > 0 && ctx.Err() == nil {
		return false
	}
	l.retired = true
	for _, sp := range l.waiting {
		for _, w := range sp.calls {
			w.ch <- told{err: errClosed()}
		}
	}
	l.waiting = map[contract.Scope]*spot{}
	if l.s.lines[l.ref] == l {
		delete(l.s.lines, l.ref)
	}
	return true
}
