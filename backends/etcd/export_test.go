package etcd

// Kill ends the store as the end of its process would: calls are cut, waiters
// vanish, and etcd is told nothing.
func (s *Store) Kill() {
	s.dead.Store(true)
	s.mu.Lock()
	if !s.closed {
		s.closed = true
		close(s.closing)
	}
	s.mu.Unlock()
	s.stop()
	s.pool.stop()
	s.background.Wait()
	_ = s.pool.close()
}
