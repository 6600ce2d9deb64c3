package prove

import (
	"fmt"
	"net/http"
	"path/filepath"
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
	logs    []string // files
}

// fault is something that goes wrong, and is mended.
type fault struct {
	name  string
	begin func()
	mend  func()
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

// network adds what can happen between two ends.
func (d *deployment) network(t *testing.T, where string, p *proc.Proxy) {
	t.Helper()
	for _, f := range []struct {
		name    string
		traffic proc.Traffic
	}{
		{"cut", proc.Refuse}, {"ignored", proc.Ignore}, {"replies swallowed", proc.SwallowReplies}, {"requests swallowed", proc.SwallowRequests},
	} {
		d.faults = append(d.faults, fault{
			name:  where + ": " + f.name,
			begin: func() { p.Set(t, f.traffic) },
			mend:  func() { p.Set(t, proc.Pass) },
		})
	}
	d.faults = append(d.faults, fault{
		name:  where + ": slow",
		begin: func() { p.Delay(300 * time.Millisecond) },
		mend:  func() { p.Delay(0) },
	})
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
	)
	serve := func() {
		server = proc.StartLeasedOn(t, bin, dir, backend+namespaces)
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
	d.faults = append(d.faults,
		fault{name + ": killed", func() { server.Kill() }, serve},
		fault{name + ": restarted", func() { server.Stop(t) }, serve},
		fault{name + ": paused", func() { server.Pause(t) }, func() { server.Resume(t) }},
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
	d := &deployment{promise: raftkvPromise()}
	d.gateway(t, "node", bin, "backends: {b: {type: raftkv}}\n")
	return d
}

func raftkvCluster(t *testing.T, bin string) *deployment {
	t.Helper()
	d := &deployment{promise: raftkvPromise()}
	c := proc.NewLeasedCluster(t, bin, 3, "backends: {b: {type: raftkv}}\n"+namespaces)
	for _, n := range c.Nodes {
		peers := proc.StartProxy(t, n.Peer)
		n.Via = peers.Address
		front := proc.StartProxy(t, n.Addr)
		d.servers = append(d.servers, "http://"+front.Address)
		d.direct = append(d.direct, "http://"+n.Addr)
		d.logs = append(d.logs, filepath.Join(n.Dir, "log"))
		d.network(t, n.ID, front)
		// Others do not reach the node; it reaches them.
		d.network(t, n.ID+"'s peers", peers)
		d.faults = append(d.faults,
			fault{n.ID + ": killed", func() { n.Kill() }, func() { c.Launch(t, n) }},
			fault{n.ID + ": paused", func() { n.Pause(t) }, func() { n.Resume(t) }},
		)
	}
	var leader *proc.Node
	find := func() *proc.Node { leader, _ = c.Leader(t, c.Nodes[0]); return leader }
	leads := []fault{
		{"leader: killed", func() { find().Kill() }, func() { c.Launch(t, leader) }},
		{"leader: paused", func() { find().Pause(t) }, func() { leader.Resume(t) }},
		{"all: killed", func() {
			for _, n := range c.Nodes {
				n.Kill()
			}
		}, func() {
			for _, n := range c.Nodes {
				c.Launch(t, n)
			}
		}},
	}
	// As often as the rest together: a leader is what matters.
	for range 4 {
		d.faults = append(d.faults, leads...)
	}
	c.Start(t)
	return d
}

func valkeyBackend(addresses string) string {
	return fmt.Sprintf("backends: {b: {type: valkey, addresses: [%q]}}\n", addresses)
}

func valkey(t *testing.T, bin string) *deployment {
	t.Helper()
	d := &deployment{promise: history.Promise{Slack: 250 * time.Millisecond}}
	v := proc.StartValkey(t, "appendonly", "yes", "appendfsync", "always")
	d.logs = append(d.logs, filepath.Join(v.Dir, "log"))
	for _, name := range []string{"gateway one", "gateway two"} {
		between := proc.StartProxy(t, v.Addr)
		d.gateway(t, name, bin, valkeyBackend(between.Address))
		d.network(t, name+" to valkey", between)
	}
	for range 3 {
		d.faults = append(d.faults,
			fault{"valkey: killed", v.Kill, func() { v.Start(t) }},
			fault{"valkey: paused", func() { v.Pause(t) }, v.Resume},
			fault{"valkey: scripts flushed", func() { v.Do(t, "SCRIPT", "FLUSH") }, func() {}},
			fault{"valkey: connections cut", func() { v.Do(t, "CLIENT", "KILL", "TYPE", "normal") }, func() {}},
		)
	}
	return d
}

func valkeySentinel(t *testing.T, bin string) *deployment {
	t.Helper()
	d := &deployment{promise: history.Promise{Slack: 250 * time.Millisecond, Loses: true}}
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
			fault{"primary: killed", func() { primary.Kill(); promoted() }, func() { primary.Start(t); follow() }},
			fault{"primary: paused", func() { primary.Pause(t); promoted() }, func() { primary.Resume(); follow() }},
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
	d := &deployment{promise: etcdPromise()}
	e := proc.StartEtcd(t, proc.EtcdOptions{})
	for _, name := range []string{"gateway one", "gateway two"} {
		between := proc.StartProxy(t, strings.TrimPrefix(e.Endpoints()[0], "http://"))
		d.gateway(t, name, bin, fmt.Sprintf("backends: {b: {type: etcd, endpoints: [%q]}}\n", between.Address))
		d.network(t, name+" to etcd", between)
	}
	for range 5 {
		d.faults = append(d.faults,
			fault{"etcd: killed", func() { e.Kill(0) }, func() { e.StartAll(t) }},
			fault{"etcd: paused", func() { e.Pause(t, 0) }, func() { e.Resume(0) }},
		)
	}
	return d
}

func etcdCluster(t *testing.T, bin string) *deployment {
	t.Helper()
	d := &deployment{promise: etcdPromise()}
	e := proc.StartEtcd(t, proc.EtcdOptions{Members: 3})
	var endpoints []string
	for _, url := range e.Endpoints() {
		endpoints = append(endpoints, strings.TrimPrefix(url, "http://"))
	}
	backend := fmt.Sprintf("backends: {b: {type: etcd, endpoints: [%q, %q, %q]}}\n", endpoints[0], endpoints[1], endpoints[2])
	d.gateway(t, "gateway one", bin, backend)
	d.gateway(t, "gateway two", bin, backend)
	for i := range endpoints {
		member := fmt.Sprint("member ", i+1)
		for range 3 {
			d.faults = append(d.faults,
				fault{member + ": killed", func() { e.Kill(i) }, func() { e.StartAll(t) }},
				fault{member + ": paused", func() { e.Pause(t, i) }, func() { e.Resume(i) }},
			)
		}
	}
	d.faults = append(d.faults, fault{"all members: killed", func() { e.Restart(t) }, func() {}})
	return d
}
