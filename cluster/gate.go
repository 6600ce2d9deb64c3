package cluster

import "sync"

// gate counts what is inside and can be shut: nobody enters any more, and shut
// waits for those who are in. A bare WaitGroup may not be waited for while
// others enter.
type gate struct {
	mu   sync.RWMutex
	down bool
	in   sync.WaitGroup
}

// enter tells whether the caller is in; then it must leave.
func (g *gate) enter() bool {
	g.mu.RLock()
	defer g.mu.RUnlock()
	if g.down {
		return false
	}
	g.in.Add(1)
	return true
}

func (g *gate) leave() {
	g.in.Done()
}

// shut keeps everybody else out and waits until nobody is in.
func (g *gate) shut() {
	g.mu.Lock()
	g.down = true
	g.mu.Unlock()
	g.in.Wait()
}
