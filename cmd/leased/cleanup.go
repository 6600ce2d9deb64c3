package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"
)

// cleanups is the stack of what has been opened, closed in reverse.
type cleanups struct {
	steps []cleanup
}

type cleanup struct {
	name string
	end  func(context.Context) error
}

// push adds a step that runs before all steps pushed so far.
func (c *cleanups) push(name string, end func(context.Context) error) {
	c.steps = append(c.steps, cleanup{name, end})
}

// run closes everything, the last first, and empties the stack. A step that
// fails or is late keeps no other from running: a store that hangs must not cost
// the audit log its last lines. The error names each step that failed.
func (c *cleanups) run(ctx context.Context, log *slog.Logger) error {
	var all []error
	for n := len(c.steps); n > 0; n-- {
		step := c.steps[n-1]
		began := time.Now()
		err := step.end(ctx)
		if err != nil {
			all = append(all, fmt.Errorf("close %s: %w", step.name, err))
		}
		log.Debug("closed", "what", step.name, "duration", time.Since(began), "error", err)
	}
	c.steps = nil
	return errors.Join(all...)
}
