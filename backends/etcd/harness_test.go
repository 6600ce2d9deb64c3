package etcd_test

import (
	"context"
	"strings"
	"sync"
	"testing"

	"leased/backends/etcd"
	"leased/contract"
	"leased/contract/contracttest"
	"leased/test/proc"
)

// server is an etcd with the handles that are open on it.
type server struct {
	etcd *proc.Etcd

	mu      sync.Mutex
	handles map[*etcd.Store]bool
}

func newServer(t proc.EtcdTB, o proc.EtcdOptions) *server {
	t.Helper()
	return &server{etcd: proc.StartEtcd(t, o), handles: map[*etcd.Store]bool{}}
}

func (s *server) open(t contracttest.TB) contract.Store {
	t.Helper()
	st, err := etcd.Open(context.Background(), etcd.Config{Endpoints: s.etcd.Endpoints()})
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.handles[st] = true
	return st
}

func (s *server) kill(st contract.Store) {
	s.mu.Lock()
	h := st.(*etcd.Store)
	delete(s.handles, h)
	s.mu.Unlock()
	h.Kill()
}

// reopen restarts etcd. Handles from before are dead.
func (s *server) reopen(t contracttest.TB) {
	t.Helper()
	s.mu.Lock()
	old := s.handles
	s.handles = map[*etcd.Store]bool{}
	s.mu.Unlock()
	for h := range old {
		h.Kill()
	}
	s.etcd.Restart(t)
}

func (s *server) harness(name string) *contracttest.Harness {
	return &contracttest.Harness{
		Name:       name,
		Open:       s.open,
		Kill:       func(_ contracttest.TB, st contract.Store) { s.kill(st) },
		Reopen:     s.reopen,
		Advance:    contracttest.AdvanceRealTime,
		Guarantees: etcd.Guarantees(),
	}
}

func reopens(t *testing.T) bool {
	t.Helper()
	for _, rule := range contracttest.Rules() {
		if strings.HasSuffix(t.Name(), "/"+rule.ID) {
			return rule.Reopens
		}
	}
	return true
}

// runSuite shares one server among the rules that do not restart it.
func runSuite(t *testing.T, name string, members int) {
	t.Helper()
	shared := newServer(t, proc.EtcdOptions{Members: members, NoFsync: true})
	contracttest.Run(t, func(t *testing.T) *contracttest.Harness {
		t.Helper()
		if reopens(t) {
			return newServer(t, proc.EtcdOptions{Members: members}).harness(name)
		}
		return shared.harness(name)
	})
}

func TestContract(t *testing.T) { runSuite(t, "etcd", 1) }

func TestContractThree(t *testing.T) { runSuite(t, "etcd of three", 3) }
