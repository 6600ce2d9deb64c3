package cluster

import (
	"errors"
	"fmt"
	"sync"
)

// cleanup is what has to be undone, in reverse order: by Open when it fails half
// way, and by Close.
type cleanup struct {
	mu    sync.Mutex
	steps []step
}

type step struct {
	name string
	undo func() error
}

func (c *cleanup) push(name string, undo func() error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.steps = append(c.steps, step{name, undo})
}

// run undoes everything, whatever fails on the way, and joins the errors.
func (c *cleanup) run() error {
	var errs []error
	for {
		s, ok := c.last()
		if !ok {
			return errors.Join(errs...)
		}
		if err := s.undo(); err != nil {
			errs = append(errs, fmt.Errorf("stop %s: %w", s.name, err))
		}
		c.mu.Lock()
		c.steps = c.steps[:len(c.steps)-1]
		c.mu.Unlock()
	}
}

// last returns the step to undo next, or the one that is being undone.
func (c *cleanup) last() (step, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.steps) == 0 {
		return step{}, false
	}
	return c.steps[len(c.steps)-1], true
}
