package guard

import (
	"context"
	"fmt"
	"sync"
)

// Register admits work by its token. Memory is one; a Register of one's own may
// stand in front of whatever the work writes to.
type Register interface {
	// Enter admits work with a token that is not lower than any seen for the key,
	// when no work with a lower one goes on any more. It returns a *StaleError for a
	// lower token, ErrInvalid for a fence that no lease has, and another error when
	// ctx ends first or the register cannot be asked.
	//
	// The context that it returns descends from ctx and ends with a *StaleError as
	// its cause when a higher token arrives: the work should stop. leave has to be
	// called when the work has ended, once.
	Enter(ctx context.Context, f Fence) (work context.Context, leave func(), err error)
}

// Memory is a register in this process, for what nothing outside of it writes to.
// It may be used concurrently.
//
// It forgets with the process: after a restart the first token is accepted, also
// an old one. Raise what is known before anything is admitted. It keeps each key
// that it has seen, in about 200 bytes.
type Memory struct {
	stale Counter

	mu   sync.Mutex
	keys map[string]*slot
}

// slot is one key. Work of one token goes on at a time.
type slot struct {
	highest uint64 // that was seen
	token   uint64 // of the work that goes on
	work    map[*context.CancelCauseFunc]struct{}
	idle    chan struct{} // closed when the work has ended, or a higher token came
}

// NewMemory returns a register that has seen nothing. stale counts rejections; it
// may be nil.
func NewMemory(stale Counter) *Memory {
	return &Memory{stale: stale, keys: make(map[string]*slot)}
}

// Raise makes every lower token of the key stale.
func (m *Memory) Raise(f Fence) error {
	if err := f.check(); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.see(f)
	return nil
}

// Do runs work that Enter admits.
func (m *Memory) Do(ctx context.Context, f Fence, work func(context.Context) error) error {
	ctx, leave, err := m.Enter(ctx, f)
	if err != nil {
		return err
	}
	defer leave()
	return work(ctx)
}

// Enter is Register.Enter. A token counts as seen when it arrives, also if its
// work is never admitted: somebody was granted it.
func (m *Memory) Enter(ctx context.Context, f Fence) (context.Context, func(), error) {
	if err := f.check(); err != nil {
		return nil, nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.see(f)
	for {
		if f.Token < s.highest {
			return nil, nil, refuse(m.stale, f, s.highest)
		}
		if err := ctx.Err(); err != nil {
			return nil, nil, fmt.Errorf("fence %s: %w", f.Key, context.Cause(ctx))
		}
		if len(s.work) == 0 || s.token == f.Token {
			work, leave := m.begin(ctx, s, f.Token)
			return work, leave, nil
		}
		idle := s.idle
		m.mu.Unlock()
		select {
		case <-idle:
		case <-ctx.Done():
		}
		m.mu.Lock()
	}
}

// see raises the key's token, and ends the contexts of work with a lower one. mu
// is held.
func (m *Memory) see(f Fence) *slot {
	s := m.keys[f.Key]
	if s == nil {
		s = &slot{work: make(map[*context.CancelCauseFunc]struct{}), idle: make(chan struct{})}
		m.keys[f.Key] = s
	}
	if f.Token <= s.highest {
		return s
	}
	s.highest = f.Token
	for cancel := range s.work {
		(*cancel)(&StaleError{Key: f.Key, Token: s.token, Highest: f.Token})
	}
	s.wake()
	return s
}

// begin notes work. mu is held.
func (m *Memory) begin(ctx context.Context, s *slot, token uint64) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	s.token = token
	s.work[&cancel] = struct{}{}
	return ctx, sync.OnceFunc(func() {
		cancel(nil)
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(s.work, &cancel)
		if len(s.work) == 0 {
			s.wake()
		}
	})
}

// wake has those who wait look again. mu is held.
func (s *slot) wake() {
	close(s.idle)
	s.idle = make(chan struct{})
}
