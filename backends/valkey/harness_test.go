package valkey_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"sync"
	"testing"

	"leased/backends/valkey"
	"leased/contract"
	"leased/contract/contracttest"
	"leased/test/proc"
)

// durable are the options of a server that loses nothing that it acknowledged.
func durable() []string { return []string{"appendonly", "yes", "appendfsync", "always"} }

// deployment is what a rule's handles are opened on.
type deployment struct {
	name    string
	servers []*proc.Valkey
	prefix  string
}

func (d *deployment) config() valkey.Config {
	cfg := valkey.Config{Prefix: d.prefix}
	for _, v := range d.servers {
		cfg.Addresses = append(cfg.Addresses, v.Addr)
	}
	return cfg
}

func open(t contracttest.TB, cfg valkey.Config) *valkey.Store {
	t.Helper()
	s, err := valkey.Open(context.Background(), cfg)
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	return s
}

// handles remembers what a rule opened, for its end.
type handles struct {
	mu  sync.Mutex
	all map[contract.Store]*valkey.Store
}

func (d *deployment) harness() *contracttest.Harness {
	h := &handles{all: map[contract.Store]*valkey.Store{}}
	return &contracttest.Harness{
		Name: d.name,
		Open: func(t contracttest.TB) contract.Store {
			t.Helper()
			s := open(t, d.config())
			h.mu.Lock()
			defer h.mu.Unlock()
			h.all[s] = s
			return s
		},
		Kill: func(_ contracttest.TB, s contract.Store) {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.all[s].Kill()
			delete(h.all, s)
		},
		Reopen: func(t contracttest.TB) {
			t.Helper()
			h.mu.Lock()
			for s := range h.all {
				h.all[s].Kill()
			}
			clear(h.all)
			h.mu.Unlock()
			for _, v := range d.servers {
				v.Kill()
			}
			for _, v := range d.servers {
				v.Start(t)
			}
			if len(d.servers) > 1 {
				for _, v := range d.servers {
					v.WaitCluster(t)
				}
			}
		},
		Advance:    contracttest.AdvanceRealTime,
		Guarantees: valkey.Guarantees(),
	}
}

// reopening tells the rules that restart the server: they need one of their own.
func reopening() map[string]bool {
	out := map[string]bool{}
	for _, r := range contracttest.Rules() {
		if r.Reopens {
			out[r.ID] = true
		}
	}
	return out
}

// suite runs all rules. Those that restart nothing share servers, each under a
// prefix of its own, so that they do not sweep each other's namespaces.
func suite(t *testing.T, name string, start func(t proc.TB, options ...string) []*proc.Valkey) {
	t.Helper()
	shared, own := start(t), reopening()
	contracttest.Run(t, func(t *testing.T) *contracttest.Harness {
		t.Helper()
		d := &deployment{name: name, servers: shared, prefix: fmt.Sprintf("t%s:", rand.Text()[:8])}
		if own[ruleOf(t.Name())] {
			d.servers = start(t, durable()...)
		}
		return d.harness()
	})
}

// ruleOf returns the rule's id: the last part of its test's name.
func ruleOf(name string) string {
	for i := len(name) - 1; i >= 0; i-- {
		if name[i] == '/' {
			return name[i+1:]
		}
	}
	return name
}

func TestContract(t *testing.T) {
	suite(t, "valkey", func(t proc.TB, options ...string) []*proc.Valkey {
		return []*proc.Valkey{proc.StartValkey(t, options...)}
	})
}

func TestContractCluster(t *testing.T) {
	suite(t, "valkey-cluster", func(t proc.TB, options ...string) []*proc.Valkey {
		return proc.StartCluster(t, 3, options...)
	})
}
