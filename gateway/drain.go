package gateway

import (
	"context"
	"errors"
	"sync"
)

// errDraining is the cause that a parked call's context ends with.
var errDraining = errors.New("the gateway is draining")

// drainer knows the calls that wait for a key, so that closing does not have to
// wait for them: each may wait for minutes.
type drainer struct {
	mu       sync.Mutex
	draining bool
	parked   map[*context.CancelCauseFunc]struct{}
}

func newDrainer() *drainer {
	return &drainer{parked: make(map[*context.CancelCauseFunc]struct{})}
}

// park registers a call that is about to wait. It reports false when the gateway
// is draining: the call must not wait then. The call leaves when it has ended.
func (d *drainer) park(interrupt *context.CancelCauseFunc) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.draining {
		return false
	}
	d.parked[interrupt] = struct{}{}
	return true
}

func (d *drainer) leave(interrupt *context.CancelCauseFunc) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.parked, interrupt)
}

// drain ends every wait and lets none begin.
func (d *drainer) drain() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.draining = true
	for interrupt := range d.parked {
		(*interrupt)(errDraining)
	}
	clear(d.parked)
}

func (d *drainer) isDraining() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.draining
}
