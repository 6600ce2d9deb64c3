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
	told       map[string]string // by server id
	raft       *raft.Raft        // nil until it runs
}

func newAddresses(configured map[string]string) *addresses {
	return &addresses{configured: configured, told: make(map[string]string)}
}

func (a *addresses) use(r *raft.Raft) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.raft = r
}

// maxTold bounds what is remembered of servers that come and go.
const maxTold = 256

// tell records what a server said of itself, or, for a node's id, what somebody
// asked to try.
func (a *addresses) tell(server, address string) {
	if address == "" {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, known := a.told[server]; !known && len(a.told) >= maxTold {
		clear(a.told)
	}
	a.told[server] = address
}

// toldBy returns what a server said of itself, if anything.
func (a *addresses) toldBy(server string) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.told[server]
}

// of returns where to try to reach node, without repetition.
func (a *addresses) of(node string) []string {
	a.mu.Lock()
	candidates := []string{a.configured[node]}
	for server, address := range a.told {
		if nodeOf(server) == node {
			candidates = append(candidates, address)
		}
	}
	r := a.raft
	a.mu.Unlock()
	if r != nil {
		for _, s := range r.GetConfiguration().Configuration().Servers {
			// A server that nobody can dial has its own id here.
			if nodeOf(string(s.ID)) == node && nodeOf(string(s.Address)) != node {
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
