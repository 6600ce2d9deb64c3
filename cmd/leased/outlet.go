package main

import (
	"io"
	"sync"
	"time"
)

const (
	// maxRoutine and maxLines are how many lines wait for a reader that is slow:
	// routine ones, and all.
	maxRoutine = 256
	maxLines   = 1024
	// lastWords is how long a reader that takes nothing is waited for at the end.
	lastWords = time.Second
)

// outlet writes lines for whoever speaks, who must not wait: a reader that hangs
// would keep the lease's renewals from the command. Lines that find no room are
// counted.
type outlet struct {
	to     io.Writer
	wake   chan struct{}
	wrote  chan struct{}
	ended  chan struct{}
	report func(dropped int) string // the line that tells of lines that were dropped

	mu      sync.Mutex
	lines   []string
	dropped int
	closed  bool
}

// newOutlet starts to write. close has to be called.
func newOutlet(to io.Writer, report func(dropped int) string) *outlet {
	o := &outlet{to: to, report: report, wake: make(chan struct{}, 1), wrote: make(chan struct{}, 1), ended: make(chan struct{})}
	go o.run()
	return o
}

// Write is for lines that matter. It never fails.
func (o *outlet) Write(p []byte) (int, error) {
	o.line(false, string(p))
	return len(p), nil
}

// line takes a line.
func (o *outlet) line(routine bool, text string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case len(o.lines) >= maxLines, routine && len(o.lines) >= maxRoutine:
		o.dropped++
		return
	case o.dropped > 0 && len(o.lines) < maxRoutine:
		o.lines = append(o.lines, o.report(o.dropped))
		o.dropped = 0
	}
	o.lines = append(o.lines, text)
	signalOne(o.wake)
}

func signalOne(to chan<- struct{}) {
	select {
	case to <- struct{}{}:
	default:
	}
}

func (o *outlet) run() {
	defer close(o.ended)
	for {
		o.mu.Lock()
		lines, closed := o.lines, o.closed
		if len(lines) > 0 {
			o.lines = lines[1:]
		}
		o.mu.Unlock()
		switch {
		case len(lines) > 0:
			// When it is gone, nobody can be told, and the lines go nowhere.
			_, _ = io.WriteString(o.to, lines[0])
			signalOne(o.wrote)
		case closed:
			return
		default:
			<-o.wake
		}
	}
}

// close waits until everything is written, or the reader takes nothing.
func (o *outlet) close() {
	o.mu.Lock()
	o.closed = true
	o.mu.Unlock()
	signalOne(o.wake)
	for {
		select {
		case <-o.ended:
			return
		case <-o.wrote:
		case <-time.After(lastWords):
			return
		}
	}
}
