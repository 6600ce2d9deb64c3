package valkey

import "context"

// Kill ends a handle as kill -9 ends its gateway: nothing is said to the server,
// and calls that wait vanish.
func (s *Store) Kill() {
	s.mu.Lock()
	s.closed, s.over = true, true
	s.mu.Unlock()
	close(s.dead)
	s.link.close()
}

// Base returns what the namespace's keys begin with.
func (s *Store) Base(namespace string) string { return base(s.cfg.Prefix, namespace) }

// Drain waits for what runs in the background.
func (s *Store) Drain(context.Context) { s.behind.Wait() }
