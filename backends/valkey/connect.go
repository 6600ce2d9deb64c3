package valkey

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/valkey-io/valkey-go"
)

// rightsTags is how many keys, most likely on several nodes, a cluster is asked
// about rights with.
const rightsTags = 5

// errRole tells that a server that should decide is a replica.
var errRole = errors.New("the server is a replica")

// connect returns a client for whatever the addresses lead to.
func (l *link) connect(ctx context.Context) (valkey.Client, error) {
	switch l.cfg.Mode {
	case ModeSentinel:
		o := l.options()
		o.Sentinel = valkey.SentinelOption{
			MasterSet: l.cfg.SentinelMaster, Username: l.cfg.SentinelUsername, Password: l.cfg.SentinelPassword,
			TLSConfig: l.cfg.TLS, TopologyRefreshInterval: checkEvery,
		}
		o.Sentinel.Dialer = o.Dialer
		return newClient(o)
	case ModeCluster:
		return newClient(l.options())
	case ModeAuto, ModeStandalone:
	}
	var last error
	for _, address := range l.cfg.Addresses {
		o := l.options()
		o.InitAddress, o.ForceSingleClient = []string{address}, true
		c, err := newClient(o)
		if err != nil {
			last = err
			continue
		}
		info, err := l.info(ctx, c)
		switch {
		case err != nil:
			last = err
		case info["cluster_enabled"] == "1" && l.cfg.Mode == ModeAuto:
			c.Close()
			return newClient(l.options())
		case info["cluster_enabled"] == "1":
			last = errors.New("the server is part of a cluster and the mode is standalone")
		case info["role"] != "master":
			last = errRole
		default:
			return c, nil
		}
		c.Close()
	}
	return nil, last
}

func newClient(o valkey.ClientOption) (valkey.Client, error) {
	c, err := valkey.NewClient(o)
	if err != nil {
		return nil, err
	}
	return c, nil
}

// info returns the fields of INFO that a look is about.
func (l *link) info(ctx context.Context, c valkey.Client) (map[string]string, error) {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	text, err := c.Do(ctx, c.B().Info().Section("server").Section("replication").Section("memory").
		Section("persistence").Section("cluster").Build()).ToString()
	if err != nil {
		return nil, err
	}
	fields := map[string]string{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			fields[name] = value
		}
	}
	return fields, nil
}

// primary is what one primary said of itself.
type primary struct {
	condition
	err error
}

// ask finds out what the primaries promise, all at the same time: one that is
// down takes its time. It returns them by address, without the replicas.
func (l *link) ask(ctx context.Context, c valkey.Client) map[string]primary {
	nodes := map[string]valkey.Client{"": c}
	if l.clustered(c) {
		nodes = c.Nodes()
	}
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	var mu sync.Mutex
	var all sync.WaitGroup
	found := map[string]primary{}
	for address, n := range nodes {
		all.Go(func() {
			var p primary
			info, err := l.info(ctx, n)
			switch {
			case err == nil && info["role"] == "master":
				p.condition = inspect(ctx, n, info)
			case err == nil:
				p.err = errRole
			default:
				p.err = err
			}
			mu.Lock()
			defer mu.Unlock()
			found[address] = p
		})
	}
	all.Wait()
	return found
}

// look finds out what the servers promise. Every primary of a cluster counts.
func (l *link) look(ctx context.Context, c valkey.Client) error {
	next := condition{}
	var last error
	found := l.ask(ctx, c)
	for _, p := range found {
		if p.err != nil {
			if last == nil || errors.Is(last, errRole) {
				last = p.err
			}
			continue
		}
		next.refuse = cmp.Or(next.refuse, p.refuse)
		next.policy, next.persistence, next.runID = p.policy, p.persistence, p.runID
	}
	if next.runID == "" {
		return last
	}
	if err := l.may(ctx, c, &next); err != nil {
		return err
	}
	l.settle(&next, l.recognise(found))
	return nil
}

// recognise notes who the primaries are, and tells whether one is another than
// before. One that does not answer may still be who it was.
func (l *link) recognise(found map[string]primary) bool {
	first, other := len(l.known) == 0, false
	for address, p := range found {
		switch {
		case p.err == nil && l.known[address] != p.runID:
			l.known[address], other = p.runID, true
		case errors.Is(p.err, errRole):
			delete(l.known, address)
		}
	}
	return other && !first
}

// settle makes next the condition, and says what is new.
func (l *link) settle(next *condition, other bool) {
	old := l.state.Swap(next)
	clear(l.told)
	if other {
		l.log.Warn("valkey: a primary was restarted or is another now", "run_id", next.runID, "persistence", next.persistence)
		l.generation.Add(1)
		l.changed()
	}
	if old.err != nil && old.runID != "" {
		l.log.Info("valkey: the server serves again", "run_id", next.runID)
	}
	if next.forbid != "" && old.forbid != next.forbid {
		l.log.Error("valkey: nothing is changed", "why", next.forbid)
	}
	if next.refuse != "" && old.refuse != next.refuse {
		l.log.Error("valkey: nothing is granted", "why", next.refuse)
	}
}

// may finds out whether the server lets the scripts do what they have to. Of a
// cluster the nodes are asked until one answers, and none has to.
func (l *link) may(ctx context.Context, c valkey.Client, next *condition) error {
	tags, timeout := 1, checkTimeout
	if l.clustered(c) {
		tags, timeout = rightsTags, checkTimeout/rightsTags
	}
	var err error
	for i := range tags {
		err = l.try(ctx, c, fmt.Sprintf("%s{rights%d}", l.cfg.Prefix, i), timeout)
		r, refused := l.rules.refused(err)
		if forbidden(err) || (refused && r.code == "NOPERM") {
			next.forbid = "the server's ACL forbids what a lease store needs"
			l.log.Debug("valkey: a right is missing", "err", err)
			return nil
		}
		if err == nil {
			return nil
		}
	}
	if l.clustered(c) {
		return nil
	}
	return err
}

// try runs the script that tries all rights.
func (l *link) try(ctx context.Context, c valkey.Client, key string, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return l.rights.lua.Exec(ctx, c, []string{key}, nil).Error()
}

func (l *link) clustered(c valkey.Client) bool { return c.Mode() == valkey.ClientModeCluster }

// inspect returns what one primary says of itself.
func inspect(ctx context.Context, c valkey.Client, info map[string]string) condition {
	var next condition
	policy := info["maxmemory_policy"]
	config := map[string]string{}
	// CONFIG may be forbidden: INFO says the most of it.
	if m, err := c.Do(ctx, c.B().ConfigGet().Parameter("maxmemory-policy", "appendonly", "appendfsync", "save").Build()).AsStrMap(); err == nil {
		config = m
	}
	if p := config["maxmemory-policy"]; p != "" {
		policy = p
	}
	if policy != "noeviction" {
		next.refuse = fmt.Sprintf("the server's maxmemory-policy is %q: it could drop a lease that is held; it must be noeviction", policy)
	}
	next.policy = policy
	next.runID = info["run_id"]
	switch {
	case info["aof_enabled"] == "1" && config["appendfsync"] != "":
		next.persistence = "append-only file, fsync " + config["appendfsync"]
	case info["aof_enabled"] == "1":
		next.persistence = "append-only file"
	case config["save"] != "":
		next.persistence = "snapshots only"
	default:
		next.persistence = "none"
	}
	return next
}
