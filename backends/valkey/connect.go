package valkey

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/valkey-io/valkey-go"
)

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

// look finds out what the servers promise. Every primary of a cluster counts.
func (l *link) look(ctx context.Context, c valkey.Client) error {
	nodes := []valkey.Client{c}
	if l.clustered(c) {
		nodes = nodes[:0]
		for _, n := range c.Nodes() {
			nodes = append(nodes, n)
		}
	}
	next := condition{}
	var last error
	seen := 0
	for _, n := range nodes {
		info, err := l.info(ctx, n)
		if err != nil {
			last = err
			continue
		}
		if info["role"] != "master" {
			if len(nodes) == 1 {
				return errRole
			}
			continue
		}
		seen++
		l.inspect(ctx, n, info, &next)
	}
	if seen == 0 {
		if last == nil {
			last = errRole
		}
		return last
	}
	if err := l.may(ctx, c, &next); err != nil {
		return err
	}
	old := l.state.Swap(&next)
	switch {
	case old.err == nil && old.runID != next.runID && old.runID != "" && len(nodes) == 1:
		l.log.Warn("valkey: the server was restarted", "run_id", next.runID, "persistence", next.persistence)
	case old.err != nil && old.runID != "":
		l.log.Info("valkey: the server serves again", "run_id", next.runID)
	}
	if next.forbid != "" && old.forbid != next.forbid {
		l.log.Error("valkey: nothing is changed", "why", next.forbid)
	}
	if next.refuse != "" && old.refuse != next.refuse {
		l.log.Error("valkey: nothing is granted", "why", next.refuse)
	}
	return nil
}

// may finds out whether the server lets the scripts do what they have to.
func (l *link) may(ctx context.Context, c valkey.Client, next *condition) error {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	err := l.rights.lua.Exec(ctx, c, []string{l.cfg.Prefix + "{rights}"}, nil).Error()
	r, refused := l.rules.refused(err)
	if forbidden(err) || (refused && r.code == "NOPERM") {
		next.forbid = "the server's ACL forbids what a lease store needs"
		l.log.Debug("valkey: a right is missing", "err", err)
		return nil
	}
	if l.clustered(c) {
		return nil // the node of that slot may be down alone
	}
	return err
}

func (l *link) clustered(c valkey.Client) bool { return c.Mode() == valkey.ClientModeCluster }

// inspect adds what one primary says of itself.
func (l *link) inspect(ctx context.Context, c valkey.Client, info map[string]string, next *condition) {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
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
}
