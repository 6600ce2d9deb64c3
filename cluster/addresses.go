package cluster

import (
	"sync"

	"github.com/hashicorp/raft"
)

// addresses knows where nodes can be reached. Three say so, and each can be the
// one that is right: the configuration file, which an operator changed on this
// node only or forgot to change; the node itself, in its last handshake; and
// raft's configuration. All are tried, at the same time; the handshake tells
// whether the right node answered.
type addresses struct {
	mu         sync.Mutex
	configured map[string]string // by node id
	told       map[string]string
	raft       *raft.Raft // nil until it runs
}

func newAddresses(configured map[string]string) *addresses {
	return &addresses{configured: configured, told: make(map[string]string)}
}

func (a *addresses) use(r *raft.Raft) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.raft = r
}

// tell records what node said of itself, or what somebody asked to try.
func (a *addresses) tell(node, address string) {
	if address == "" {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.told[node] = address
}

// of returns where to try to reach node, without repetition.
func (a *addresses) of(node string) []string {
	a.mu.Lock()
	candidates := []string{a.configured[node], a.told[node]}
	r := a.raft
	a.mu.Unlock()
	if r != nil {
		for _, s := range r.GetConfiguration().Configuration().Servers {
			// A server without a peer port has its own id here, which nobody can dial.
			if nodeOf(string(s.ID)) == node && string(s.Address) != node {
				candidates = append(candidates, string(s.Address))
			}
		}
	}
	var found []string
	seen := map[string]bool{"": true}
	for _, c := range candidates {
		if !seen[c] {
			seen[c] = true
			found = append(found, c)
		}
	}
	return found
}
