package prove

import (
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"leased/test/history"
	"leased/test/proc"
)

// deployment is a running service and what can be done to it.
type deployment struct {
	promise history.Promise
	servers []string // where clients reach it: proxies
	direct  []string // the same without anything in between
	faults  []fault
	// first has the kinds of fault that happen before chance decides: none is left out by
	// a run that is short.
	first []string
	logs  []string // files
}

// namespaces is what all deployments have: the history is kept whole, since it is
// compared with what clients were told.
const namespaces = "namespaces: {default: {backend: b, history: {keep: 168h, per_key: 65536}}}\n"

// await waits until every gateway serves.
func (d *deployment) await(t *testing.T) {
	t.Helper()
	for _, url := range d.direct {
		proc.Succeeds(t, "a gateway serves again", proc.Patience, func() error {
			res, err := http.Get(url + "/readyz")
			if err != nil {
				return err
			}
			defer res.Body.Close()
			if res.StatusCode != http.StatusOK {
				return fmt.Errorf("status %d", res.StatusCode)
			}
			return nil
		})
	}
}

// gateway starts a gateway behind a proxy, and adds what can happen to both.
func (d *deployment) gateway(t *testing.T, name, bin, backend string) {
	t.Helper()
	dir := t.TempDir()
	d.logs = append(d.logs, filepath.Join(dir, "log"))
	at := len(d.direct)
	var (
		server *proc.Server
		front  *proc.Proxy
		hand   = proc.NewClockHand(t)
	)
	serve := func() {
		server = proc.StartLeasedOn(t, bin, dir, backend+namespaces, hand.Env)
		address := strings.TrimPrefix(server.URL, "http://")
		if front == nil {
			front = proc.StartProxy(t, address)
			d.servers = append(d.servers, "http://"+front.Address)
			d.direct = append(d.direct, "")
		}
		front.Retarget(address)
		d.direct[at] = server.URL
	}
	serve()
	d.network(t, name, front)
	d.clocks(t, name, hand, func() string { return server.URL }, func() { server.Kill() }, serve)
	d.faults = append(d.faults,
		fault{name: name + ": killed", begin: func() { server.Kill() }, mend: serve},
		fault{name: name + ": restarted", begin: func() { server.Stop(t) }, mend: serve},
		fault{name: name + ": paused", begin: func() { server.Pause(t) }, mend: func() { server.Resume(t) }},
	)
}

// deployments returns how to start each.
func deployments() map[string]func(t *testing.T, bin string) *deployment {
	return map[string]func(*testing.T, string) *deployment{
		"raftkv":          raftkv,
		"raftkv-cluster":  raftkvCluster,
		"valkey":          valkey,
		"valkey-sentinel": valkeySentinel,
		"etcd":            etcd,
		"etcd-cluster":    etcdCluster,
	}
}

func raftkvPromise() history.Promise {
	return history.Promise{Slack: 250 * time.Millisecond, FaultSlack: 500 * time.Millisecond}
}

func raftkv(t *testing.T, bin string) *deployment {
	t.Helper()
	d := &deployment{promise: raftkvPromise(), first: []string{"clock ahead", "killed, clock behind", "restarted"}}
	d.gateway(t, "node", bin, "backends: {b: {type: raftkv}}\n")
	return d
}

func raftkvCluster(t *testing.T, bin string) *deployment {
	t.Helper()
	d := &deployment{promise: raftkvPromise(), first: []string{"not heard", "clock behind", "does not hear"}}
	c := proc.NewLeasedCluster(t, bin, 3, "backends: {b: {type: raftkv}}\n"+namespaces)
	var peers []peer
	for _, n := range c.Nodes {
		behind := proc.StartProxy(t, n.Peer)
		n.Via = behind.Address
		peers = append(peers, peer{n.ID, behind, `"from":"` + n.ID + `@`})
		front := proc.StartProxy(t, n.Addr)
		d.servers = append(d.servers, "http://"+front.Address)
		d.direct = append(d.direct, "http://"+n.Addr)
		d.logs = append(d.logs, filepath.Join(n.Dir, "log"))
		d.network(t, n.ID, front)
		// Those of others' connections to the node; it reaches them.
		d.network(t, n.ID+"'s peers", behind)
		hand := proc.NewClockHand(t)
		n.Env = append(n.Env, hand.Env)
		kill, launch := func() { n.Kill() }, func() { c.Launch(t, n) }
		d.clocks(t, n.ID, hand, func() string { return n.URL }, kill, func() { launch(); n.WaitReady(t) })
		d.faults = append(d.faults,
			fault{name: n.ID + ": killed", begin: kill, mend: launch},
			fault{name: n.ID + ": paused", begin: func() { n.Pause(t) }, mend: func() { n.Resume(t) }},
		)
	}
	d.leader(t, c, peers)
	c.Start(t)
	return d
}

// leader adds what can happen to the node that leads a cluster, and to all at once.
func (d *deployment) leader(t *testing.T, c *proc.Cluster, peers []peer) {
	t.Helper()
	var leader *proc.Node
	find := func() *proc.Node { leader, _ = c.Leader(t, c.Nodes[0]); return leader }
	// As often as the rest together: a leader is what matters.
	for range 4 {
		d.faults = append(d.faults,
			fault{name: "leader: killed", begin: func() { find().Kill() }, mend: func() { c.Launch(t, leader) }},
			fault{name: "leader: paused", begin: func() { find().Pause(t) }, mend: func() { leader.Resume(t) }},
			fault{name: "all: killed", begin: func() {
				for _, n := range c.Nodes {
					n.Kill()
				}
			}, mend: func() {
				for _, n := range c.Nodes {
					c.Launch(t, n)
				}
			}},
		)
		d.partitions(t, "leader", peers, true, func() int { return slices.Index(c.Nodes, find()) })
	}
	for i := range peers {
		d.partitions(t, peers[i].name, peers, false, func() int { return i })
	}
}

func valkeyBackend(addresses string) string {
	return fmt.Sprintf("backends: {b: {type: valkey, addresses: [%q]}}\n", addresses)
}

func valkey(t *testing.T, bin string) *deployment {
	t.Helper()
	d := &deployment{promise: history.Promise{Slack: 250 * time.Millisecond}, first: []string{"scripts flushed", "connections cut", "slow"}}
	v := proc.StartValkey(t, "appendonly", "yes", "appendfsync", "always")
	d.logs = append(d.logs, filepath.Join(v.Dir, "log"))
	for _, name := range []string{"gateway one", "gateway two"} {
		between := proc.StartProxy(t, v.Addr)
		d.gateway(t, name, bin, valkeyBackend(between.Address))
		d.network(t, name+" to valkey", between)
	}
	for range 3 {
		d.faults = append(d.faults,
			fault{name: "valkey: killed", begin: v.Kill, mend: func() { v.Start(t) }},
			fault{name: "valkey: paused", begin: func() { v.Pause(t) }, mend: v.Resume},
			fault{name: "valkey: scripts flushed", begin: func() { v.Do(t, "SCRIPT", "FLUSH") }, mend: func() {}},
			fault{name: "valkey: connections cut", begin: func() { v.Do(t, "CLIENT", "KILL", "TYPE", "normal") }, mend: func() {}},
		)
	}
	return d
}

func valkeySentinel(t *testing.T, bin string) *deployment {
	t.Helper()
	d := &deployment{promise: history.Promise{Slack: 250 * time.Millisecond, Loses: true}, first: []string{"killed", "replies swallowed"}}
	options := []string{"appendonly", "yes", "appendfsync", "always"}
	primary := proc.StartValkey(t, options...)
	replica := proc.StartReplica(t, primary, options...)
	sentinel := proc.StartSentinel(t, "leases", primary)
	sentinel.Eventually(t, "the sentinel knows the replica", func(s string) bool { return s != "" }, "SENTINEL", "REPLICAS", "leases")
	for _, v := range []*proc.Valkey{primary, replica, sentinel} {
		d.logs = append(d.logs, filepath.Join(v.Dir, "log"))
	}
	backend := fmt.Sprintf("backends: {b: {type: valkey, addresses: [%q], sentinel_master: leases}}\n", sentinel.Addr)
	d.gateway(t, "gateway one", bin, backend)
	d.gateway(t, "gateway two", bin, backend)
	// Not before the sentinel has made up its mind: an old primary that comes back earlier
	// is made the primary again while it is told to follow.
	promoted := func() {
		_, port, _ := strings.Cut(replica.Addr, ":")
		sentinel.Eventually(t, "the sentinel has the new primary", func(s string) bool { return strings.Contains(s, port) },
			"SENTINEL", "GET-MASTER-ADDR-BY-NAME", "leases")
		replica.Eventually(t, "the replica is promoted", func(s string) bool { return strings.HasPrefix(s, "master") }, "ROLE")
	}
	// The old primary comes back as it was, and is told of the new one.
	follow := func() {
		host, port, _ := strings.Cut(replica.Addr, ":")
		primary.Options("replicaof", host+" "+port)
		primary.Do(t, "REPLICAOF", host, port)
		primary, replica = replica, primary
		replica.Eventually(t, "the old primary follows", func(s string) bool { return strings.Contains(s, "master_link_status:up") }, "INFO", "replication")
	}
	for range 10 {
		d.faults = append(d.faults,
			fault{name: "primary: killed", begin: func() { primary.Kill(); promoted() }, mend: func() { primary.Start(t); follow() }},
			fault{name: "primary: paused", begin: func() { primary.Pause(t); promoted() }, mend: func() { primary.Resume(); follow() }},
		)
	}
	return d
}

// etcdPromise has the TTL that begins afresh with a leader, and what it takes to have one.
func etcdPromise() history.Promise {
	return history.Promise{Slack: 4 * time.Second, FaultSlack: 4 * time.Second}
}

func etcd(t *testing.T, bin string) *deployment {
	t.Helper()
	d := &deployment{promise: etcdPromise(), first: []string{"ignored", "requests swallowed", "killed, clock ahead"}}
	e := proc.StartEtcd(t, proc.EtcdOptions{})
	for _, name := range []string{"gateway one", "gateway two"} {
		between := proc.StartProxy(t, strings.TrimPrefix(e.Endpoints()[0], "http://"))
		d.gateway(t, name, bin, fmt.Sprintf("backends: {b: {type: etcd, endpoints: [%q]}}\n", between.Address))
		d.network(t, name+" to etcd", between)
	}
	for range 5 {
		d.faults = append(d.faults,
			fault{name: "etcd: killed", begin: func() { e.Kill(0) }, mend: func() { e.StartAll(t) }},
			fault{name: "etcd: paused", begin: func() { e.Pause(t, 0) }, mend: func() { e.Resume(0) }},
		)
	}
	return d
}

func etcdCluster(t *testing.T, bin string) *deployment {
	t.Helper()
	d := &deployment{promise: etcdPromise(), first: []string{"one way", "paused", "cut"}}
	var peers []peer
	e := proc.StartEtcd(t, proc.EtcdOptions{Members: 3, Via: func(address string) string {
		p := proc.StartProxy(t, address)
		peers = append(peers, peer{name: fmt.Sprint("member ", len(peers)+1), proxy: p})
		return p.Address
	}})
	for i, id := range e.IDs(t) {
		peers[i].says = "X-Server-From: " + id
	}
	var endpoints []string
	for _, url := range e.Endpoints() {
		endpoints = append(endpoints, strings.TrimPrefix(url, "http://"))
	}
	backend := fmt.Sprintf("backends: {b: {type: etcd, endpoints: [%q, %q, %q]}}\n", endpoints[0], endpoints[1], endpoints[2])
	d.gateway(t, "gateway one", bin, backend)
	d.gateway(t, "gateway two", bin, backend)
	for i := range endpoints {
		member := peers[i].name
		for range 3 {
			d.partitions(t, member, peers, true, func() int { return i })
			d.faults = append(d.faults,
				fault{name: member + ": killed", begin: func() { e.Kill(i) }, mend: func() { e.StartAll(t) }},
				fault{name: member + ": paused", begin: func() { e.Pause(t, i) }, mend: func() { e.Resume(i) }},
			)
		}
	}
	d.faults = append(d.faults, fault{name: "all members: killed", begin: func() { e.Restart(t) }, mend: func() {}})
	return d
}
